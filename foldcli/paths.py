"""Where files go."""

import os
import tempfile
from pathlib import Path


def cache_dir() -> Path:
    """`$FOLDCLI_CACHE`, else `$XDG_CACHE_HOME/foldcli`, else `~/.cache/foldcli`."""
    if own := os.environ.get("FOLDCLI_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "foldcli"


def keep_triton_kernels() -> None:
    """Have compiled kernels kept in the cache; to be called before Triton is imported, which reads it."""
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache_dir() / "kernels" / "triton"))


def make_writable_folder(folder: Path) -> None:
    """Make a folder for results, and find out now whether it can be written.

    Raises:
        OSError: it cannot be made or written; the error names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        error.filename = str(folder)
        raise
