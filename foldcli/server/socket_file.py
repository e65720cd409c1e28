"""The unix socket that a server listens on: owned by one server at a time, private, removed at the end."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from foldcli.process_state import private_new_files
from msa.base.errors import InputError

# Linux allows 108 bytes for the path of a unix socket, including a final zero byte
MAX_PATH_BYTES = 107

_BACKLOG = 128


def check_socket_path(path: Path) -> None:
    """Check the length of a socket's path.

    Raises:
        InputError: the path is too long for a unix socket.
    """
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise InputError(
            f"too long for a unix socket: {length} bytes, and the limit is {MAX_PATH_BYTES}", path
        )


@contextlib.contextmanager
def claim_socket(path: Path) -> Iterator[None]:
    """Hold the exclusive right to listen on `path`, and remove a socket that a dead server left there.

    The right is a lock on PATH.lock, which the system releases however the process ends. If two servers start
    at once, only one of them therefore replaces a dead server's socket. Socket and lock file are removed at
    the end.

    Raises:
        InputError: the path is too long, belongs to a live server, or is not a socket; or PATH.lock is not a
            file of this user.
    """
    check_socket_path(path)
    lock_file = path.with_name(path.name + ".lock")
    descriptor = _lock(lock_file, path)
    try:
        _remove_stale_socket(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        # Unlink while the lock is held: a server that has already opened this file then notices, by its
        # inode, that it is no longer PATH.lock.
        lock_file.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(lock_file: Path, path: Path) -> int:
    """Create and lock a file, write this process's id into it, and return its descriptor."""
    while True:
        descriptor = _open_lock(lock_file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 20).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise _socket_in_use_error(path, f" (process {owner})" if owner else "") from None
        with contextlib.suppress(FileNotFoundError):
            if lock_file.stat().st_ino == os.fstat(descriptor).st_ino:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor
        os.close(descriptor)


def _open_lock(lock_file: Path) -> int:
    """Create or open a lock file, and return its descriptor."""
    try:
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError("is a symbolic link, so it is not used as a lock", lock_file) from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > 1:
        os.close(descriptor)
        raise InputError("is not a file of this user alone, so it is not used as a lock", lock_file)
    return descriptor


def _socket_in_use_error(path: Path, owner: str = "") -> InputError:
    return InputError(f"a server{owner} already uses this socket", path)


def _remove_stale_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise InputError("exists and is not a socket, so it is not replaced", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # connecting takes no time, except to a live server whose backlog is full
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass
    raise _socket_in_use_error(path)


def open_listener(path: Path) -> socket.socket:
    """Open a non-blocking socket that listens on a claimed path, and that only this user may connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with private_new_files():
            listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        error.filename = os.fspath(path)
        raise
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
