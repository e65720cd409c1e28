"""Tests of target locks: exclusion, release, and locks of processes that have ended."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as running_threads

import pytest

from foldcli.pipeline.targets.locks import LockOwner, TargetLocks

HOLD = (
    "import sys, threading, pathlib\n"
    "from foldcli.pipeline.targets.locks import TargetLocks\n"
    "locks = TargetLocks(threading.Event())\n"
    "print(locks.try_acquire(pathlib.Path(sys.argv[1])), flush=True)\n"
    "sys.stdin.read()\n"
)


def start_holder(path: Path) -> "subprocess.Popen[str]":
    """Start a process that holds a lock."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "True\n"
    return holder


def test_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "t" / ".lock"
    with TargetLocks(Event()) as first, TargetLocks(Event()) as second:
        assert first.try_acquire(path) and first.is_held(path)
        assert not second.try_acquire(path) and not second.is_held(path)
        first.release(path)
        assert not path.parent.exists(), "the empty folder is removed"
        assert second.try_acquire(path)
        (path.parent / "file").touch()
    assert [entry.name for entry in path.parent.iterdir()] == ["file"], "the end releases all locks"


def test_release_leaves_a_lock_that_another_run_has_taken(tmp_path: Path) -> None:
    path = tmp_path / "t" / ".lock"
    locks = TargetLocks(Event())
    assert locks.try_acquire(path)
    path.write_text(json.dumps(vars(LockOwner.this_process())))
    assert not locks.is_held(path)
    locks.release(path)
    assert path.is_file()


def test_lock_of_a_killed_process_is_taken_at_once(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    holder = start_holder(path)
    with TargetLocks(Event()) as locks:
        assert not locks.try_acquire(path)
        holder.kill()
        # not waited for: a killed process that is still in the process table has ended
        deadline = time.monotonic() + 120
        while not locks.try_acquire(path):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert locks.is_held(path)
    holder.wait()


def write_foreign_lock(path: Path) -> None:
    """Write the lock of a process on another machine."""
    path.write_text(json.dumps(vars(LockOwner("elsewhere", "another boot", 1, 2, "token"))))


def test_lock_of_another_machine_is_stale_only_when_it_does_not_change(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    write_foreign_lock(path)
    locks = TargetLocks(Event(), stale_seconds=0.4)
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        # its owner renews it
        os.utime(path)
        assert not locks.try_acquire(path)
        time.sleep(0.05)
    deadline = time.monotonic() + 120
    while not locks.try_acquire(path):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_held_locks_are_renewed(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with TargetLocks(Event(), stale_seconds=0.2) as locks:
        assert locks.try_acquire(path)
        before = path.stat().st_mtime_ns
        deadline = time.monotonic() + 120
        while path.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_locks_released_meanwhile_do_not_end_their_renewal(tmp_path: Path) -> None:
    with TargetLocks(Event(), stale_seconds=1e-3) as locks:
        for path in [tmp_path / str(number) / ".lock" for number in range(300)] * 10:
            assert locks.try_acquire(path)
            locks.release(path)
        assert any(thread.name == "lock heartbeat" for thread in running_threads())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_damaged_lock_counts_as_held_until_it_is_stale(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".lock"
    path.write_text(content)
    locks = TargetLocks(Event(), stale_seconds=0.1)
    assert not locks.try_acquire(path)
    time.sleep(0.2)
    assert locks.try_acquire(path)


class LateLocks(TargetLocks):
    """Locks of a process that finds a lock stale just before another one replaces it."""

    def _is_stale(self, path: Path, owner: LockOwner | None) -> bool:
        path.write_text(json.dumps(vars(LockOwner.this_process())))
        return True


def test_lock_that_replaced_a_stale_one_is_restored_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / ".lock"
    write_foreign_lock(path)
    old = LockOwner.read(path)
    assert not LateLocks(Event()).try_acquire(path)
    assert LockOwner.read(path) not in (None, old)
    assert list(tmp_path.iterdir()) == [path]


def test_waiting_ends_when_the_run_stops(tmp_path: Path) -> None:
    path, stop = tmp_path / ".lock", Event()
    write_foreign_lock(path)
    results: list[bool] = []
    thread = Thread(target=lambda: results.append(TargetLocks(stop).acquire(path, "t")))
    thread.start()
    stop.set()
    thread.join(20)
    assert results == [False]


def test_nothing_is_locked_after_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t" / ".lock"
    with TargetLocks(Event()) as locks:
        pass
    # by a thread of a run that has ended, whose process goes on without renewing locks
    assert not locks.try_acquire(path) and not locks.acquire(path, "t")
    assert not path.exists()
