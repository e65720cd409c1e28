"""Output folders that appear under their final name only when they are complete."""

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from msa.base.atomic import errors_name
from msa.base.errors import InputError
from msa.base.temporary_names import find_abandoned, temporary_path

_BUILDING, _OLD = ".building", ".old"
# constants of renameat2(2)
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


@contextlib.contextmanager
def temporary_folder(final: Path) -> Iterator[Path]:
    """Create a temporary folder next to `final` and remove it at the end, unless `publish` has renamed it.

    Folders left by killed builds of the same `final` are removed first.

    Raises:
        OSError: the folder cannot be created; the error names it.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # raised when a parent is a file
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
    for path in find_abandoned(final.parent, f"{final.name}.", _BUILDING):
        _remove(path)
    folder = temporary_path(final, _BUILDING)
    try:
        with errors_name(final):
            folder.mkdir(0o700)
        yield folder
    finally:
        _remove(folder)


def check_output(final: Path, overwrite: bool, is_output: Callable[[Path], bool], kind: str) -> None:
    """Check that a folder may be written, after cleaning up with `restore_replaced`.

    Args:
        final: must not exist or must be an empty folder, unless it may be overwritten.
        overwrite: whether an earlier output may be overwritten.
        is_output: returns whether an existing path is an earlier output.
        kind: name of the output for error messages, such as "target database".

    Raises:
        InputError: the path exists and may not be overwritten.
    """
    restore_replaced(final)
    if not os.path.lexists(final) or (final.is_dir() and not any(final.iterdir())):
        return
    if not overwrite:
        raise InputError("already exists; --overwrite replaces it", final)
    if not is_output(final):
        raise InputError(f"exists and is not a {kind}, so it is not overwritten", final)


def restore_replaced(final: Path) -> None:
    """Clean up after builds that were killed while they replaced `final`.

    On file systems that cannot exchange two folders, the existing folder is moved aside for a moment. It is
    moved back if there is no new one, and otherwise removed.
    """
    for path in find_abandoned(final.parent, f"{final.name}.", _OLD):
        if not os.path.lexists(final):
            with contextlib.suppress(OSError):
                path.rename(final)
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a folder, or a link to one, as far as possible."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def publish(folder: Path, final: Path, replace: bool) -> None:
    """Sync a temporary folder to disk and rename it to its final name.

    Args:
        folder: a folder created by `temporary_folder`.
        final: must not exist or must be an empty folder, unless `replace`.
        replace: replace an existing folder, which is moved to the temporary name. If the file system can
            exchange two folders, `final` exists at every moment.

    Raises:
        InputError: `final` exists and may not be replaced.
        OSError: the disk is full or the folder is not writable.
    """
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)
    # temporary folders are private; use the permissions that the user's umask gives
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
                raise created_meanwhile(final) from None
            raise
    _sync(final.parent)


def created_meanwhile(final: Path) -> InputError:
    """Return the error of a build whose output another one has created since it was checked."""
    return InputError("created by another build in the meantime", final)


def _swap(folder: Path, final: Path) -> None:
    """Exchange two folders, with three renames if the file system has no atomic exchange."""
    if _exchange(folder, final):
        return
    old = temporary_path(final, _OLD)
    final.rename(old)
    try:
        folder.rename(final)
    except BaseException:
        old.rename(final)
        raise
    old.rename(folder)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders atomically; return False where the system or the file system cannot.

    Raises:
        OSError: they cannot be renamed.
    """
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    if not rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(second))


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
