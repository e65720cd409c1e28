"""Imports between the packages: downwards only, and nothing heavy where `foldcli --help` would load it."""

import ast
from collections import Counter
from functools import cache
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


@cache
def import_statements(path: Path, top_level_only: bool = False) -> list[tuple[str, list[str]]]:
    """Return the imports of a file: the module after `from`, or "", and the imported names."""
    tree = ast.parse(path.read_text())
    found = []
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found.append(("", [alias.name for alias in node.names]))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append((node.module or "", [alias.name for alias in node.names]))
    return found


def imported_modules(path: Path, top_level_only: bool = False) -> set[str]:
    """Return the dotted names of the modules that a file imports, anywhere or at its top level only."""
    statements = import_statements(path, top_level_only)
    return {name for module, names in statements for name in ([module] if module else names)}


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_run_downwards_only(root: Path, package: str) -> None:
    files = sorted((root / package).rglob("*.py"))
    assert files
    for path in files:
        for name in imported_modules(path):
            top, _, rest = name.partition(".")
            is_foreign = top == "cuda" and rest.split(".")[0] in NVIDIA
            # errors, files, processes and shared tables: any package may import them, except for kernels
            is_base = top == "msa" and rest.split(".")[0] == "base" and package != "cuda"
            if top in ALLOWED and not is_foreign and not is_base:
                assert top in ALLOWED[package], f"{path.relative_to(root)} imports {name}"


def test_features_except_templates_imports_only_readers_and_errors_from_msa(root: Path) -> None:
    engine = {"msa.search", "msa.cpu", "msa.gpu", "msa.profile", "msa.database"}
    for path in (root / "features").rglob("*.py"):
        if "templates" in path.parts:  # templates are searched
            continue
        for name in imported_modules(path):
            assert not any(name == part or name.startswith(part + ".") for part in engine), f"{path}: {name}"


def test_command_line_imports_nothing_heavy_at_top_level(root: Path) -> None:
    files = [path for pattern in LIGHT for path in root.glob(pattern)]
    assert len(files) > 20
    for path in files:
        packages = {name.split(".")[0] for name in imported_modules(path, top_level_only=True)}
        assert not packages & HEAVY, f"{path.relative_to(root)} imports {packages & HEAVY}"


def test_click_is_imported_by_the_command_line_only(root: Path) -> None:
    allowed = {f"foldcli/{name}.py" for name in ("__main__", "cli", "errors")}
    found = {
        str(path.relative_to(root))
        for package in ALLOWED
        for path in (root / package).rglob("*.py")
        if any(name.split(".")[0] == "click" for name in imported_modules(path))
    }
    assert allowed <= found
    assert {Path(name).parts[1] for name in found - allowed} == {"commands", "options"}


def test_options_are_imported_by_commands_and_sessions_only(root: Path) -> None:
    rooms = {"foldcli.commands", "foldcli.options", "foldcli.api"}
    for path in (root / "foldcli").rglob("*.py"):
        room = ".".join(path.relative_to(root).parts[:2])
        if room not in rooms:
            used = {name for name in imported_names(path) if name.startswith("foldcli.options")}
            assert not used, f"{path.relative_to(root)} imports {used}"


@pytest.mark.parametrize("package", ALLOWED)
def test_deferred_imports_have_a_comment(root: Path, package: str) -> None:
    bare = []
    for path in (root / package).rglob("*.py"):
        if path.parent.name == "commands" or path == root / "foldcli/cli.py":
            continue
        lines, explained = path.read_text().splitlines(), 0
        for node in sorted(deferred_imports(path), key=lambda node: node.lineno):
            before = lines[node.lineno - 2].strip()
            own = lines[node.lineno - 1 : node.end_lineno]
            # one comment suffices for adjacent imports
            if before.startswith("#") or any("#" in line for line in own) or node.lineno == explained + 1:
                explained = node.end_lineno or node.lineno
            else:
                bare.append(f"{path.relative_to(root)}:{node.lineno}")
    assert not bare, f"which slow library does each delay? {bare}"


def deferred_imports(path: Path) -> set[ast.Import | ast.ImportFrom]:
    """Return the imports in the functions of a file."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    found = (node for function in functions for node in ast.walk(function))
    return {node for node in found if isinstance(node, ast.Import | ast.ImportFrom)}


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
        for parent, names in import_statements(path):
            submodules = {f"{parent}.{name}" for name in names} if parent else set(names)
            found |= submodules & paths.keys() or {parent} & paths.keys()
        imports[module] = found
    # remove modules that import no remaining module until none is left, or only circles are
    while leaves := {module for module, found in imports.items() if not found & imports.keys()}:
        imports = {module: found for module, found in imports.items() if module not in leaves}
    assert not imports, f"import circles among {sorted(imports)}"


# rooms with more files than a reader keeps in mind: one file for each command, and one for each kernel
LARGE_ROOMS = {"foldcli.commands", "cuda.fused.attention"}


def room_of(module: str, path: Path) -> str:
    """Return the folder of a module as a dotted name; a package's own `__init__` is in its room."""
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def test_rooms_import_downwards_only_and_are_small(root: Path) -> None:
    paths = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for package in ALLOWED
        for path in (root / package).rglob("*.py")
        if "docs" not in path.parts
    }
    arrows: dict[str, set[str]] = {room_of(module, path): set() for module, path in paths.items()}
    for module, path in paths.items():
        for name in imported_names(path):
            if name in paths:
                arrows[room_of(module, path)].add(room_of(name, paths[name]))
    # a folder that is only a parent of rooms, such as `foldcli.pipeline`, contains nothing to import
    arrows = {room: targets - {room} for room, targets in arrows.items()}
    while lowest := {room for room, targets in arrows.items() if not targets & arrows.keys()}:
        arrows = {room: targets for room, targets in arrows.items() if room not in lowest}
    assert not arrows, f"import circles among the rooms {sorted(arrows)}"
    sizes = Counter(room_of(module, path) for module, path in paths.items() if path.name != "__init__.py")
    assert {room for room, size in sizes.items() if size > 12} <= LARGE_ROOMS


def imported_names(path: Path) -> set[str]:
    """Return the dotted names of the modules that a file imports; of packages those of their modules."""
    statements = import_statements(path)
    submodules = {f"{module}.{name}" if module else name for module, names in statements for name in names}
    return submodules | {module for module, _ in statements if module}


def test_no_file_of_the_tests_imports_a_test_module(root: Path) -> None:
    for path in (root / "tests").rglob("*.py"):
        for name in imported_names(path):
            parts = name.split(".")
            assert parts[0] != "tests" or not any(part.startswith("test_") for part in parts[1:]), (
                f"{path.relative_to(root)} imports {name}"
            )
