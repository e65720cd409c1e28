"""Source files and names that the pages, docstrings and comments mention exist."""

import ast
import re
from functools import cache
from pathlib import Path

SOURCE_PATH = re.compile(r"`((?:foldcli|msa|features|model|cuda|tests|benchmarks)/[a-z0-9_/]+(?:\.py|/))`")
PACKAGES = ("cuda", "features", "foldcli", "model", "msa")
DOTTED_NAME = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)(?=[`(])")
NAME_IN_FILE = re.compile(r"`(\w+)` in `([a-z0-9_/]+\.py)`")


def test_mentioned_source_files_exist(root: Path, page: Path) -> None:
    for path in SOURCE_PATH.findall(page.read_text()):
        # the namespace package cuda must not have one
        if path != "cuda/__init__.py":
            assert (root / path).exists(), f"{page.relative_to(root)}: {path}"


def test_mentioned_names_are_defined_in_their_file(root: Path, page: Path) -> None:
    for name, path in NAME_IN_FILE.findall(page.read_text()):
        source = (root / path).read_text()
        assert re.search(rf"^(?:class|def) {name}\b|^{name}\b.*=", source, re.MULTILINE), f"{path}: {name}"


def test_the_glossary_names_definitions(root: Path) -> None:
    glossary = (root / "docs/architecture.md").read_text().partition("## Glossary")[2]
    assert len(NAME_IN_FILE.findall(glossary)) >= 15


def test_functions_of_one_target_exist(root: Path) -> None:
    page = (root / "docs/architecture.md").read_text()
    steps = page.partition("## One target, function by function")[2].partition("\n## ")[0]
    names = re.findall(r"`((?:\w+\.)+\w+)`", steps.partition("1. ")[2])
    names.remove("done.json")
    assert len(names) >= 15
    assert not [name for name in names if not is_defined(root, f"foldcli.pipeline.{name}")]


def test_dotted_names_in_the_source_exist(root: Path) -> None:
    missing = [
        f"{path.relative_to(root)}: {name}"
        for package in (*PACKAGES, "tests", "benchmarks", "recipes")
        for path in sorted((root / package).rglob("*.py"))
        for name in DOTTED_NAME.findall(path.read_text())
        # NAME stands for any name
        if not (is_defined(root, name) or name.endswith(".NAME"))
    ]
    assert not missing


def is_defined(root: Path, name: str) -> bool:
    """Return True for a package, a module, a name at the top level of one, or a member of a class there."""
    path, parts = root, name.split(".")
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if parts and (path / f"{parts[0]}.py").is_file():
        path /= f"{parts.pop(0)}.py"
    elif parts:
        path /= "__init__.py"
    return not parts or (path.is_file() and ".".join(parts[:2]) in defined_names(path))


@cache
def defined_names(path: Path) -> set[str]:
    """Return the names at the top level of a module, and of the members of its classes as CLASS.MEMBER."""
    names: set[str] = set()
    for statement in ast.parse(path.read_text()).body:
        names |= bound_names(statement)
        if isinstance(statement, ast.ClassDef):
            # attributes may be set in __init__
            members = {name for child in ast.walk(statement) for name in bound_names(child)}
            names |= {f"{statement.name}.{member}" for member in members}
    return names


def bound_names(statement: ast.AST) -> set[str]:
    """Return the names that a statement defines or imports; `self.NAME = …` defines NAME."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in statement.names}
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {
            node.id if isinstance(node, ast.Name) else node.attr
            for target in targets
            for node in ast.walk(target)
            if isinstance(node, ast.Name | ast.Attribute)
        }
    return set()
