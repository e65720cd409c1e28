"""A folder that takes its name only when it is complete."""

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
def staged_folder(final: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `final`, removed with all it holds unless `publish` has renamed it.

    What a killed build to the same `final` left there is removed first: the owner of a folder holds a lock
    on a file inside, which the kernel drops when its process ends, however it ends.

    Raises:
        OSError: the folder cannot be made; the error names it.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # mkdir says so of a file in the way
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    prefix = f".{final.name}."
    for left in final.parent.glob(f"{_escaped(prefix)}*{_SUFFIX}"):
        _remove_if_abandoned(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=final.parent))
    try:
        with (folder / _UNLOCKED).open("wb") as lock:
            # a lock goes by its name once it is held: before that, another build would take it for abandoned.
            # Some network file systems have no locks; there nothing ever gets the name and is removed.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (folder / _UNLOCKED).rename(folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _escaped(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        with (folder / _LOCK).open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return


def publish(folder: Path, final: Path, replace: bool) -> None:
    """Give a staged folder its final name, with its content safely on the disk.

    Args:
        folder: from `staged_folder`.
        final: must not exist, or be an empty folder, unless `replace`.
        replace: move what has the name out of the way first, and remove it afterwards.

    Raises:
        OSError: FileExistsError where the name is taken; others if the disk is full or the folder not
        writable.
    """
    for lock in (_UNLOCKED, _LOCK):
        (folder / lock).unlink(missing_ok=True)
    for path in folder.iterdir():
        _sync(path)
    _sync(folder)
    # mkdtemp makes folders private; give the result what the user's umask would have given
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
    """Replace `final`, putting it back if the new folder cannot take its place."""
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
        # a folder cannot be synced on every file system; a file's data must be
        if path.is_dir() and error.errno in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            return
        error.filename = str(path)
        raise
    finally:
        os.close(handle)
