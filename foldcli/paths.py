"""Folders that foldcli reads and writes, and the location of its own packages."""

import importlib.util
import os
import tempfile
from pathlib import Path

from foldcli.errors import NoCacheFolder

_PACKAGES_FOLDER = Path(__file__).resolve().parents[1]


def cache_dir() -> Path:
    """Return `$FOLDCLI_CACHE`, else `$XDG_CACHE_HOME/foldcli`, else `~/.cache/foldcli`.

    Raises:
        NoCacheFolder: neither variable is set, and the user has no home folder.
    """
    if folder := os.environ.get("FOLDCLI_CACHE"):
        return Path(folder)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "foldcli"
    try:
        return Path.home() / ".cache/foldcli"
    except RuntimeError:
        raise NoCacheFolder from None


def default_feature_cache() -> Path:
    """Return the folder of the feature cache that commands use without --cache."""
    return cache_dir() / "features"


def make_writable_folder(folder: Path) -> None:
    """Create a folder for results and check that files can be written to it.

    Raises:
        OSError: the folder cannot be created or written to; the error names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_writable_folder(folder)


def check_writable_folder(folder: Path) -> None:
    """Check that files can be written to a folder or, if it does not exist, that it can be created.

    Nothing is created, so that a command that is refused later leaves no empty folder.

    Raises:
        OSError: they cannot; the error names the folder, or its nearest parent that exists.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        error.filename = str(existing)
        raise


def hiding_file(package: str) -> str | None:
    """Return the file that Python would import instead of one of foldcli's own packages, if there is one.

    Nothing is imported.
    """
    spec = importlib.util.find_spec(package)
    # foldcli's packages are next to foldcli/; its `cuda` is a namespace package, which has no file
    if spec is None or spec.origin is None:
        return None
    is_ours = package != "cuda" and Path(spec.origin).resolve().parent == _PACKAGES_FOLDER / package
    return None if is_ours else spec.origin
