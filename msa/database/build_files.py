"""Output folders that appear under their final name only when they are complete."""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK, _UNLOCKED = ".lock", ".unlocked"
_SUFFIX = ".building"


@contextlib.contextmanager
def temporary_folder(final: Path) -> Iterator[Path]:
    """Create a temporary folder next to `final` and remove it at the end, unless `publish` has renamed it.

    Folders left by killed builds of the same `final` are removed first. The owner of a folder holds a lock on
    a file inside, which the kernel releases when the process ends for any reason.

    Raises:
        OSError: the folder cannot be created; the error names it.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # raised when a parent is a file
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    prefix = f".{final.name}."
    for folder in final.parent.glob(f"{_escape_glob(prefix)}*{_SUFFIX}"):
        _remove_if_abandoned(folder)
    folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=final.parent))
    try:
        with (folder / _UNLOCKED).open("wb") as lock:
            # The file is renamed to .lock only after it has been locked, because another build removes a
            # folder whose .lock it can lock. On network file systems without locks the file keeps its first
            # name, and no build removes the folder.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (folder / _UNLOCKED).rename(folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _escape_glob(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        with (folder / _LOCK).open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return


def publish(folder: Path, final: Path, replace: bool) -> None:
    """Sync a temporary folder to disk and rename it to its final name.

    Args:
        folder: from `temporary_folder`.
        final: must not exist or must be an empty folder, unless `replace`.
        replace: replace an existing folder: move it aside first, and remove it at the end.

    Raises:
        FileExistsError: `final` exists and may not be replaced.
        OSError: the disk is full or the folder is not writable.
    """
    for lock in (_UNLOCKED, _LOCK):
        (folder / lock).unlink(missing_ok=True)
    for path in folder.iterdir():
        _sync(path)
    _sync(folder)
    # mkdtemp makes folders private; use the permissions that the user's umask gives
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)
    if replace and final.exists():
        _swap(folder, final)
    else:
        try:
            folder.rename(final)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from None
            raise
    _sync(final.parent)


def _swap(folder: Path, final: Path) -> None:
    """Replace `final` by `folder`; if the second rename fails, restore `final`."""
    with tempfile.TemporaryDirectory(prefix=f".{final.name}.", suffix=".old", dir=final.parent) as aside:
        old = Path(aside) / "old"
        final.rename(old)
        try:
            folder.rename(final)
        except BaseException:
            old.rename(final)
            raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # some file systems cannot sync folders; the data of files must be synced
        if path.is_dir() and error.errno in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            return
        error.filename = str(path)
        raise
    finally:
        os.close(handle)
