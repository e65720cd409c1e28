"""The JavaScript of py2Dmol, which draws the structure, read from the installed package.

The package is not imported, since that would load IPython. This module imports nothing heavy, so that
`foldcli doctor` can use it.
"""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_PACKAGE = "py2Dmol"
_SCRIPT = "py2Dmol/resources/viewer-mol.min.js"
# the page uses internal names of the viewer, which a later series may change
_SERIES = "1.6."


@dataclass(frozen=True)
class Viewer:
    """The structure viewer of a page.

    Args:
        script: JavaScript, preceded by its licence as a comment; "" if there is none.
        version: version of the package.
        missing: reason why there is no viewer, for the reader of the page; "" if there is one.
    """

    script: str = ""
    version: str = ""
    missing: str = ""


def load_viewer() -> Viewer:
    """Return the viewer of the installed package, or the reason why it cannot be used."""
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
    # the licence requires its notice to be kept
    licence = package.read_text("licenses/LICENSE") or package.read_text("LICENSE")
    return Viewer(f"{licence or ''}\n{script}", package.version)
