"""The unix socket that a server listens at: claimed by one server at a time, private, removed at the end."""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from foldcli.process_state import private_new_files
from msa.errors import InputError

MOST_PATH_BYTES = 107
"""Linux gives a unix socket's path 108 bytes, the last of which is 0."""

_BACKLOG = 128


def check_path(path: Path) -> None:
    """Refuse a path that no unix socket can have.

    Raises:
        InputError: it is too long.
    """
    length = len(os.fsencode(path))
    if length > MOST_PATH_BYTES:
        raise InputError(
            f"too long for a unix socket: {length} bytes, and {MOST_PATH_BYTES} are the most", path
        )


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold the right to listen at `path`; a socket that a dead server left there is removed.

    The right is a lock on PATH.lock, which the system gives back however the process ends, so that of two
    servers that start at once only one takes the place of a dead one. Socket and lock are removed at the end.

    Raises:
        InputError: the path is too long, taken by a live server, or by something that is no socket.
        OSError: its folder cannot be written.
    """
    check_path(path)
    lock = path.with_name(path.name + ".lock")
    handle = _locked(lock, path)
    try:
        _remove_stale(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        # while it is held: another server that has opened this file finds that it is not PATH.lock any more
        lock.unlink(missing_ok=True)
        os.close(handle)


def _locked(lock: Path, path: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 20).decode("ascii", "replace").strip()
            os.close(handle)
            raise _taken(path, f" (process {owner})" if owner else "") from None
        with contextlib.suppress(FileNotFoundError):
            if lock.stat().st_ino == os.fstat(handle).st_ino:
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()}\n".encode())
                return handle
        os.close(handle)


def _taken(path: Path, owner: str = "") -> InputError:
    return InputError(f"a server{owner} has this socket already", path)


def _remove_stale(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise InputError("exists and is no socket, so it is not replaced", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # it answers at once but when its backlog is full, and then it lives
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass
    raise _taken(path)


def listen(path: Path) -> socket.socket:
    """A socket that listens at a claimed path, which nobody but this user may connect to.

    Raises:
        OSError: it cannot be made.
    """
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
