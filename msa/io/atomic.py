"""Files that other processes never see half-written."""

import contextlib
import errno
import glob
import math
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from msa.io.temporary_names import temporary_path


class DiskFull(OSError):
    """A file that could not be written because the disk, or the user's share of it, is full.

    Args:
        error: the system's error.
        path: final name of the file.
        written: bytes written before the error.
    """

    def __init__(self, error: OSError, path: Path, written: int) -> None:
        super().__init__(error.errno, error.strerror, str(path))
        self.written = written


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return True if a path can be written to but not replaced: a device, a pipe, or a file that is open.

    Open files are those in /dev and /proc, such as /dev/stdout and /dev/fd/3.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    if stat.S_ISREG(mode):
        folder = os.path.realpath(Path(path).parent)
        return folder == "/dev" or folder.startswith("/proc/")
    return not stat.S_ISDIR(mode)


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: Literal["w", "wb"] = "w", prefix: Path | None = None
) -> Iterator[IO[Any]]:
    """Open a temporary file that is renamed to `path` when the block ends without an exception.

    A path for which `is_stream` is true is never replaced, but written to directly.

    Args:
        path: final name; its folder is created if absent.
        mode: "w" (UTF-8 text) or "wb".
        prefix: start of the temporary file's path, on the same file system as `path`; by default a hidden
            file in the same folder.

    Raises:
        DiskFull: no space is left.
        OSError: the folder or file cannot be written. No temporary file is left behind.
    """
    path = Path(path)
    encoding = None if "b" in mode else "utf-8"
    if is_stream(path):
        with _named(path), path.open(mode.replace("w", "a"), encoding=encoding) as stream:
            yield stream
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # choosing the name before creating the file means that an interrupt in between leaves no unknown file
    if prefix is None:
        temporary = temporary_path(path)
    else:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        temporary = prefix.with_name(f"{prefix.name}{secrets.token_hex(8)}.tmp")
    kind = {"w": "x", "wb": "xb"}[mode]
    try:
        with temporary.open(kind, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        written = temporary.stat().st_size if temporary.exists() else 0
        temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(error, path, written) from error
        error.filename = str(path)
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Set the file name of a system error to the path."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def remove_temporary_files(folder: Path, name: str = "", before: float = math.inf) -> None:
    """Remove the temporary files of a folder to which no other process writes.

    Where others may write, use `msa.io.temporary_names.remove_abandoned_files`.

    Args:
        folder: no other process may be writing files of these names there, unless `before` excludes them.
        name: start of the final names of the files; "" matches any file.
        before: remove only files that were last modified before this time, in seconds since 1970.
    """
    for path in folder.glob(f".{glob.escape(name)}*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime < before:
                path.unlink()
