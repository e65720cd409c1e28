"""What foldcli needs of Python and other packages: from pyproject.toml in a checkout, else as installed."""

import importlib
import importlib.metadata
import platform
import re
import tomllib
from pathlib import Path

from foldcli.doctor.outcome import Outcome, Status

_PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
# where a package's module is not called as the package
_MODULES = {"biopython": "Bio", "numba-cuda": "numba.cuda", "PyYAML": "yaml"}
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BOUND = re.compile(r"(>=|<)\s*([0-9][0-9.]*)")


def package_ranges() -> dict[str, str]:
    """Versions that foldcli asks for, such as ">=2.11,<2.14", by package; extras are left out."""
    if _PYPROJECT.is_file():
        lines = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    else:
        lines = [line for line in importlib.metadata.requires("foldcli") or [] if ";" not in line]
    names = [(_NAME.match(line), line) for line in lines]
    return {match.group(): _in_order(line[match.end() :]) for match, line in names if match}


def python_range() -> str:
    """Versions of Python, such as ">=3.11,<3.14"."""
    if _PYPROJECT.is_file():
        asked = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["requires-python"]
    else:
        asked = importlib.metadata.metadata("foldcli")["Requires-Python"]
    return _in_order(str(asked))


def _in_order(bounds: str) -> str:
    """The lower bound first: an installed package has them in an order of its own."""
    return ",".join(sorted(bounds.strip().split(","), reverse=True))


def how_to_install(name: str) -> str:
    """The command that gets a package of a version that suits."""
    return f"pip install --force-reinstall '{name}{package_ranges()[name]}'"


def check_python() -> Outcome:
    """The interpreter's version."""
    found, asked = platform.python_version(), python_range()
    status = _within(found, asked)
    remedy = "" if status is Status.OK else f"Use Python {asked}."
    return Outcome("Python", status, found + _unless_ok(status, asked), remedy)


def check_package(name: str) -> Outcome:
    """A package's version, and that it can be imported."""
    asked = package_ranges()[name]
    install = how_to_install(name)
    if name == "py2Dmol":
        return _check_viewer(install)
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Outcome(name, Status.BROKEN, "not installed", install)
    # an error of any kind is told by who called
    importlib.import_module(_MODULES.get(name, name.replace("-", "_")))
    status = _within(found, asked)
    return Outcome(name, status, found + _unless_ok(status, asked), "" if status is Status.OK else install)


def _check_viewer(install: str) -> Outcome:
    """Of the package whose JavaScript reports use; it is never imported, and all but reports goes without."""
    from foldcli.report.viewer import load_viewer

    viewer = load_viewer()
    if viewer.missing:
        return Outcome("py2Dmol", Status.WARNING, "reports have no structure: " + viewer.missing, install)
    return Outcome("py2Dmol", Status.OK, viewer.version)


def _within(found: str, asked: str) -> Status:
    """Too old lacks what is needed; too new has not been tried."""
    version = _numbers(found)
    for bound, text in _BOUND.findall(asked):
        if bound == ">=" and version < _numbers(text):
            return Status.BROKEN
        if bound == "<" and version >= _numbers(text):
            return Status.WARNING
    return Status.OK


def _unless_ok(status: Status, asked: str) -> str:
    return "" if status is Status.OK else f", and foldcli is made for {asked}"


def _numbers(version: str) -> tuple[int, ...]:
    """(2, 13, 0) of "2.13.0+cpu"; what follows the numbers, as of a release candidate, does not count."""
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = tuple(map(int, match.group().split("."))) if match else ()
    # 2.14 and 2.14.0 are one version
    return numbers + (0,) * (4 - len(numbers))
