"""Locks on targets, with which several runs share one folder of results.

A lock is a file that only one process can create (O_EXCL, which NFS supports too). It names its owner, which
renews the file's modification time. A lock is stale, and may be removed by others, if its owner has ended, as
seen on the same host, or if the file has not changed for STALE_SECONDS. That time is measured by the process
that waits: clocks of different hosts are never compared.
"""

import contextlib
import json
import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from foldcli.logs import logger
from msa.base.json_files import read_json
from msa.base.temporary_names import is_running, process_table, start_time

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class LockOwner:
    """The process that holds a lock, as written in the file.

    Args:
        machine: the process table in which `pid` is valid; see `msa.base.temporary_names`.
        started: start time of the process in clock ticks, because ids are reused.
    """

    host: str
    machine: str
    pid: int
    started: int
    token: str

    @classmethod
    def this_process(cls) -> "LockOwner":
        """Return an owner with a new token."""
        pid = os.getpid()
        return cls(socket.gethostname(), process_table(), pid, start_time(pid) or 0, secrets.token_hex(8))

    @classmethod
    def read(cls, path: Path) -> "LockOwner | None":
        """Read the owner of a lock; None if it is not readable, or not yet written.

        Raises:
            FileNotFoundError: there is no lock.
        """
        try:
            return read_json(path, cls)
        except FileNotFoundError:
            raise
        except (OSError, ValueError):
            return None

    def has_ended(self) -> bool:
        """Return True if the process is known to have ended."""
        return self.machine == process_table() and not is_running(self.pid, self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class TargetLocks:
    """The locks that this process holds; a thread renews them.

    Args:
        stop: set to end waiting for locks.
        stale_seconds: a lock that has not changed for this time is stale.
    """

    def __init__(self, stop: Event, stale_seconds: float = STALE_SECONDS) -> None:
        self._stop = stop
        self._stale_seconds = stale_seconds
        self._owners: dict[Path, LockOwner] = {}
        # path → inode and modification time of the file, and the time at which they were first seen
        self._seen: dict[Path, tuple[tuple[int, int], float]] = {}
        self._mutex = Lock()
        self._ended = Event()

    def __enter__(self) -> "TargetLocks":
        Thread(target=self._renew, name="lock heartbeat", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Release all locks."""
        self._ended.set()
        for path in list(self._owners):
            self.release(path)

    def try_acquire(self, path: Path) -> bool:
        """Acquire a lock, unless another process holds it; none is acquired after the end of the context.

        Args:
            path: the lock's file; its folder is created if absent.
        """
        while not self._ended.is_set():
            path.parent.mkdir(parents=True, exist_ok=True)
            owner = LockOwner.this_process()
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                if not self._remove_stale(path):
                    return False
                continue
            except FileNotFoundError:
                # another process released its lock, and removed the empty folder
                continue
            with os.fdopen(descriptor, "w") as stream:
                json.dump(vars(owner), stream)
            with self._mutex:
                self._owners[path] = owner
            if not self._ended.is_set():
                return True
            self.release(path)
        return False

    def acquire(self, path: Path, name: str) -> bool:
        """Acquire a lock, waiting for the process that holds it.

        Returns:
            False if `stop` was set before, or the context has ended.
        """
        announced = False
        while not self.try_acquire(path):
            if not announced:
                with contextlib.suppress(FileNotFoundError):
                    holder = LockOwner.read(path) or "another process"
                    logger.info("%s: waiting, because %s works on it", name, holder)
                    announced = True
            if self._ended.is_set() or self._stop.wait(_POLL_SECONDS):
                return False
        return True

    def is_held(self, path: Path) -> bool:
        """Return True if this process still holds the lock, and no other has taken it over as stale."""
        # another thread may release it meanwhile
        owner = self._owners.get(path)
        try:
            return owner is not None and LockOwner.read(path) == owner
        except FileNotFoundError:
            return False

    def release(self, path: Path) -> None:
        """Release a lock, and remove its folder if nothing else is in it."""
        if self.is_held(path):
            with contextlib.suppress(OSError):
                path.unlink()
                path.parent.rmdir()
        with self._mutex:
            self._owners.pop(path, None)

    def _renew(self) -> None:
        while not self._ended.wait(min(HEARTBEAT_SECONDS, self._stale_seconds / 4)):
            with self._mutex:
                held = list(self._owners)
            for path in held:
                with contextlib.suppress(OSError):
                    if self.is_held(path):
                        os.utime(path)

    def _remove_stale(self, path: Path) -> bool:
        """Remove a lock if it is stale; return True if there is no lock any more."""
        try:
            owner = LockOwner.read(path)
            if not self._is_stale(path, owner):
                return False
            renamed = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
            path.rename(renamed)
            # another process may have replaced the stale lock by its own since it was read; if so, restore it
            is_other = LockOwner.read(renamed) != owner
            if is_other:
                with contextlib.suppress(FileExistsError):
                    _restore(renamed, path)
            renamed.unlink()
        except FileNotFoundError:
            return True
        if not is_other:
            logger.debug("removed the lock of %s, which has ended: %s", owner or "a process", path)
        return not is_other

    def _is_stale(self, path: Path, owner: LockOwner | None) -> bool:
        if owner is not None and owner.has_ended():
            return True
        status = path.stat()
        state = (status.st_ino, status.st_mtime_ns)
        last_state, since = self._seen.get(path, (None, 0.0))
        if state != last_state:
            self._seen[path] = state, time.monotonic()
            return False
        return time.monotonic() - since > self._stale_seconds


def _restore(renamed: Path, path: Path) -> None:
    """Copy a lock to its path, unless another is there; at once if the file system has hard links."""
    try:
        path.hardlink_to(renamed)
    except FileExistsError:
        raise
    except OSError:
        with path.open("xb") as stream:
            stream.write(renamed.read_bytes())
