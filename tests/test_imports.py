"""Imports between the packages: downwards only, and nothing heavy where `foldcli --help` would load it."""

import ast
from pathlib import Path

import pytest

ALLOWED = {
    "foldcli": {"foldcli", "msa", "features", "model"},
    "features": {"features", "msa"},
    "msa": {"msa", "cuda"},
    "model": {"model", "cuda"},
    "cuda": {"cuda"},
}
# packages that NVIDIA's own wheels provide inside the shared namespace `cuda`
NVIDIA = {"bindings", "core", "pathfinder", "compute", "coop", "cccl", "tile", "stf"}
HEAVY = {"torch", "numba", "numpy", "Bio", "gemmi", "safetensors", "triton", "matplotlib"}
# Commands load everything else in their bodies; tests/foldcli/commands/test_help.py checks that `--help`
# loads nothing heavy through other modules either.
LIGHT = ("foldcli/*.py", "foldcli/commands/*.py", "foldcli/options/*.py")


def imported_modules(path: Path, top_level_only: bool = False) -> set[str]:
    """Return the dotted names of the modules that a file imports, anywhere or at its top level only."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_run_downwards_only(root: Path, package: str) -> None:
    files = sorted((root / package).rglob("*.py"))
    assert files
    for path in files:
        for name in imported_modules(path):
            top, _, rest = name.partition(".")
            if top in ALLOWED and not (top == "cuda" and rest.split(".")[0] in NVIDIA):
                assert top in ALLOWED[package], f"{path.relative_to(root)} imports {name}"


def test_features_except_templates_imports_only_readers_and_errors_from_msa(root: Path) -> None:
    engine = {"msa.search", "msa.cpu", "msa.gpu", "msa.profile", "msa.database"}
    for path in (root / "features").rglob("*.py"):
        if path.parent.name == "templates":  # templates are searched
            continue
        for name in imported_modules(path):
            assert not any(name == part or name.startswith(part + ".") for part in engine), f"{path}: {name}"


def test_command_line_imports_nothing_heavy_at_top_level(root: Path) -> None:
    files = [path for pattern in LIGHT for path in root.glob(pattern)]
    assert len(files) > 20
    for path in files:
        packages = {name.split(".")[0] for name in imported_modules(path, top_level_only=True)}
        assert not packages & HEAVY, f"{path.relative_to(root)} imports {packages & HEAVY}"


def test_cuda_is_a_namespace_package_without_nvidias_names(root: Path) -> None:
    assert not (root / "cuda" / "__init__.py").exists()
    names = {path.stem for path in (root / "cuda").iterdir()}
    assert not names & NVIDIA


def test_imports_have_no_circles(root: Path) -> None:
    paths = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for package in ALLOWED
        for path in (root / package).rglob("*.py")
    }
    imports: dict[str, set[str]] = {}
    for module, path in paths.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names} & paths.keys()
            elif isinstance(node, ast.ImportFrom) and node.module:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= submodules & paths.keys() or {node.module} & paths.keys()
        imports[module] = found
    # remove modules that import no remaining module until none is left, or only circles are
    while leaves := {module for module, found in imports.items() if not found & imports.keys()}:
        imports = {module: found for module, found in imports.items() if module not in leaves}
    assert not imports, f"import circles among {sorted(imports)}"
