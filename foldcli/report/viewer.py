"""The JavaScript of py2Dmol, which draws the structure, read from the installed package.

The package is not imported: that would load IPython, which a page on disk has no use for.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_PACKAGE = "py2Dmol"
_SCRIPT = "py2Dmol/resources/viewer-mol.min.js"
# the page drives the viewer by names that a later one may not have
_SERIES = "1.6."


@dataclass(frozen=True)
class Viewer:
    """What draws the structure.

    Args:
        script: JavaScript, its licence as a comment before it; empty if it is not there.
        version: of the package.
        missing: why there is none, for the reader of the page.
    """

    script: str = ""
    version: str = ""
    missing: str = ""


def load_viewer() -> Viewer:
    """The viewer of the installed package, or why it cannot be used."""
    remedy = f"install it with: pip install '{_PACKAGE}=={_SERIES}*', and run: foldcli report"
    try:
        package = distribution(_PACKAGE)
    except PackageNotFoundError:
        return Viewer(missing=f"the Python package {_PACKAGE} is not installed; {remedy}")
    if not package.version.startswith(_SERIES):
        return Viewer(missing=f"{_PACKAGE} {package.version} is installed; {remedy}")
    try:
        script = Path(str(package.locate_file(_SCRIPT))).read_text(encoding="utf-8")
    except OSError:
        return Viewer(missing=f"{_PACKAGE} {package.version} is installed without its {_SCRIPT}; {remedy}")
    licence = package.read_text("licenses/LICENSE") or package.read_text("LICENSE")
    # the licence asks that its notice be kept
    return Viewer(f"{licence or ''}\n{script}", package.version)
