"""Files that other processes never see half-written."""

import contextlib
import errno
import glob
import io
import math
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from msa.base.errors import UnwritableFolder
from msa.base.temporary_names import temporary_path

_UNWRITABLE = (
    errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ELOOP,
    errno.ENAMETOOLONG,
)  # fmt: skip


class DiskFull(OSError):
    """A file that could not be written because the disk, or the user's share of it, is full.

    Args:
        number: errno of the system's error.
        reason: its description.
        path: final name of the file.
        written: bytes written before the error.
        needed: smallest size of the complete file in bytes, as far as it is known.
    """

    def __init__(
        self, number: int | None, reason: str | None, path: str, written: int = 0, needed: int = 0
    ) -> None:
        super().__init__(number, reason, path)
        self.written, self.needed = written, needed

    def __str__(self) -> str:
        size = f"; the file needs at least {self.needed:,} bytes" if self.needed else ""
        return f"no space left on the disk while writing {self.filename}{size}; no partial file was kept"


def is_disk_full(error: BaseException) -> bool:
    """Return True for the system's errors that no space is left, for anyone or for the user."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class _SizedFile(io.FileIO):
    """A new file that knows how large it would be with everything that was to be written.

    Attributes:
        needed: this size in bytes, once a write has failed.
    """

    needed = 0

    def write(self, data: Any) -> int:
        """Write bytes, as many as the disk takes."""
        try:
            return super().write(data)
        except OSError:
            self.needed = max(self.needed, self.tell() + memoryview(data).nbytes)
            raise


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
        with errors_name(path), path.open(mode.replace("w", "a"), encoding=encoding) as stream:
            yield stream
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # choosing the name before creating the file means that an interrupt in between leaves no unknown file
    if prefix is None:
        temporary = temporary_path(path)
    else:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        temporary = prefix.with_name(f"{prefix.name}{secrets.token_hex(8)}.tmp")
    raw: _SizedFile | None = None
    try:
        raw = _SizedFile(temporary, "x")
        buffered = io.BufferedWriter(raw)
        with buffered if "b" in mode else io.TextIOWrapper(buffered, encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        written = temporary.stat().st_size if temporary.exists() else 0
        _remove(temporary)
        if is_disk_full(error):
            needed = 0 if raw is None else raw.needed
            raise DiskFull(error.errno, error.strerror, str(path), written, needed) from error
        error.filename = str(path)
        raise
    except BaseException:
        _remove(temporary)
        raise


def _remove(path: Path) -> None:
    """Remove a file if possible; on a read-only file system, that is an error even if there is none."""
    with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a hidden path in the same folder; what the block writes there replaces the file at the end.

    The content is on the disk before the file is replaced. If the block fails, the file stays as it was.

    Raises:
        OSError: the file cannot be written; names it.
    """
    temporary = path.with_name(f".{path.name}")
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        _remove(temporary)


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Set the file name of a system error in the block to the path."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


@contextlib.contextmanager
def writing_cache(folder: Path) -> Iterator[None]:
    """Translate errors of writing files below a folder of the cache.

    Raises:
        UnwritableFolder: the folder is on a read-only file system, belongs to others, or cannot be created.
    """
    try:
        yield
    except OSError as error:
        # a missing input of what is written keeps its own error, and so does a file that others removed
        removed = error.errno == errno.ENOENT and folder.exists()
        if error.errno not in _UNWRITABLE or removed or not _is_of(error, folder):
            raise
        raise UnwritableFolder(
            f"{folder}: cannot be written to: {os.strerror(error.errno).lower()}",
            "set FOLDCLI_CACHE, or --cache where a command has it, to a folder that you can write to",
        ) from error


def _is_of(error: OSError, folder: Path) -> bool:
    """Return True if an error names a path in the folder, or one of the folders that contain it."""
    if error.filename is None:
        return False
    path = Path(os.fsdecode(error.filename)).absolute()
    folder = folder.absolute()
    return path.is_relative_to(folder) or folder.is_relative_to(path)


def remove_temporary_files(folder: Path, name: str = "", before: float = math.inf) -> None:
    """Remove the temporary files of a folder to which no other process writes.

    Where others may write, use `msa.base.temporary_names.remove_abandoned_files`.

    Args:
        folder: no other process may be writing files of these names there, unless `before` excludes them.
        name: start of the final names of the files; "" matches any file.
        before: remove only files that were last modified before this time, in seconds since 1970.
    """
    for path in folder.glob(f".{glob.escape(name)}*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime < before:
                path.unlink()
