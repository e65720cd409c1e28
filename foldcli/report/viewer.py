"""Mol*, the JavaScript program that draws structures in reports, from the installed package molstar-cli.

Each folder of results gets one copy, which its pages load by a relative path. The package is never imported.
This module imports nothing heavy, so that `foldcli doctor` can use it.
"""

import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from msa.base.atomic import atomic_write, remove_temporary_files

PACKAGE = "molstar-cli"
FOLDER = "viewer"
_FILES = "molstar_cli/static/molstar"
# supported versions of Mol*; pages use names that a later series may change
_SERIES = "5."
# seconds; temporary files older than this were left by killed runs
_MAX_WRITE_TIME = 600


@dataclass(frozen=True)
class Viewer:
    """The installed viewer.

    Args:
        script: its JavaScript, a classic script of 5 MB; None if it cannot be used.
        version: version of Mol*.
        missing: reason why it cannot be used, as shown on pages; "" if it can.
    """

    script: Path | None = None
    licence: str = ""
    version: str = ""
    missing: str = ""

    @property
    def file_name(self) -> str:
        """Name of its copy; it includes the version, so that a folder can hold several versions."""
        return f"molstar-{self.version}.js"


@cache
def load_viewer() -> Viewer:
    """Return the viewer of the installed package, or the reason why it cannot be used."""
    remedy = f"install it with: pip install {PACKAGE}, and run: foldcli report"
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError:
        return Viewer(missing=f"the Python package {PACKAGE} is not installed; {remedy}")
    folder = Path(str(package.locate_file(_FILES)))
    try:
        version = (folder / "VERSION").read_text(encoding="utf-8").strip()
        licence = (folder / "LICENSE.molstar").read_text(encoding="utf-8")
        if not version.startswith(_SERIES):
            return Viewer(missing=f"{PACKAGE} {package.version} has Mol* {version}, and {_SERIES}x is needed")
        if not (folder / "molstar.js").is_file():
            raise FileNotFoundError
    except (OSError, ValueError):
        return Viewer(missing=f"{PACKAGE} {package.version} is installed without its {_FILES}; {remedy}")
    return Viewer(folder / "molstar.js", licence, version)


def copy_viewer(viewer: Viewer, folder: Path) -> Path | None:
    """Copy the viewer with its licence into a folder of results, unless the folder has it.

    Several processes may do this at once: each writes a temporary file, and all have the same content.

    Args:
        viewer: see `load_viewer`.
        folder: the folder of the viewer, which may be shared by all targets.

    Returns:
        The copy; None if there is no viewer.
    """
    if viewer.script is None:
        return None
    notice = "".join(
        f" * {line}".rstrip() + "\n" for line in viewer.licence.replace("*/", "* /").splitlines()
    )
    header = f"/*! Mol* {viewer.version}, https://molstar.org\n{notice} */\n".encode()
    path = folder / viewer.file_name
    if not _has_size(path, len(header) + viewer.script.stat().st_size):
        with atomic_write(path, "wb") as stream:
            stream.write(header)
            stream.write(viewer.script.read_bytes())
    remove_temporary_files(folder, "molstar-", before=time.time() - _MAX_WRITE_TIME)
    return path


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False
