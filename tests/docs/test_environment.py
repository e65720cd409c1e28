"""Completeness of docs/exit-codes-and-environment.md: all variables that the code reads, all exit codes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldcli.errors import ExitCode

PACKAGES = ("foldcli", "msa", "features", "model", "cuda")


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "docs/exit-codes-and-environment.md").read_text()


def is_environment(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environ"


def variables(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expression of a variable's name for each read of the environment."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=value, attr="get" | "setdefault" | "pop"), args=[name, *_]
            ):
                if is_environment(value):
                    yield name
            case ast.Call(func=ast.Attribute(attr="getenv"), args=[name, *_]):
                yield name
            case ast.Subscript(value=value, slice=name, ctx=ast.Load()) if is_environment(value):
                yield name
            case ast.Compare(left=name, comparators=[value]) if is_environment(value):
                yield name


def test_every_variable_that_is_read_is_documented(root: Path, text: str) -> None:
    read = set()
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            for name in variables(ast.parse(path.read_text())):
                assert isinstance(name, ast.Constant), (
                    f"{path}:{name.lineno}: use the variable's name as a literal"
                )
                read.add(name.value)
    table = text.partition("### Read by foldcli")[2].partition("###")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == read
    assert read


def test_every_exit_code_is_documented(root: Path, text: str) -> None:
    table = text.partition("## Exit codes")[2].partition("## Env")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == list(ExitCode)
