"""The house has stairs in one direction: imports run downwards only, and `cuda` stays a namespace."""

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
# NVIDIA's own wheels provide these inside the shared namespace
NVIDIA = {"bindings", "core", "pathfinder", "compute", "coop", "cccl", "tile", "stf"}
HEAVY = {"torch", "numba", "numpy", "Bio", "gemmi", "safetensors", "triton"}


def imported(path: Path, top_level_only: bool = False) -> set[str]:
    """Dotted names of the modules a file imports, anywhere in it or at its top level only."""
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
        for name in imported(path):
            top, _, rest = name.partition(".")
            if top in ALLOWED and not (top == "cuda" and rest.split(".")[0] in NVIDIA):
                assert top in ALLOWED[package], f"{path.relative_to(root)} imports {name}"


def test_features_uses_only_the_readers_of_msa(root: Path) -> None:
    engine = {"msa.search", "msa.cpu", "msa.gpu", "msa.profile", "msa.database"}
    for path in (root / "features").rglob("*.py"):
        for name in imported(path):
            assert not any(name == part or name.startswith(part + ".") for part in engine), f"{path}: {name}"


def test_commands_import_nothing_heavy_at_their_top(root: Path) -> None:
    for path in (root / "foldcli").rglob("*.py"):
        tops = {name.split(".")[0] for name in imported(path, top_level_only=True)}
        assert not tops & HEAVY, f"{path.relative_to(root)} imports {tops & HEAVY}"


def test_cuda_stays_a_namespace_and_leaves_nvidias_names_alone(root: Path) -> None:
    assert not (root / "cuda" / "__init__.py").exists()
    names = {path.stem for path in (root / "cuda").iterdir()}
    assert not names & NVIDIA
