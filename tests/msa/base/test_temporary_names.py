"""Temporary files of killed processes are found, those of running processes are not."""

import multiprocessing
import os
import signal
from pathlib import Path

from msa.base.atomic import atomic_write
from msa.base.temporary_names import OLD_SECONDS, find_abandoned, remove_abandoned_files, temporary_path


def _write_and_die(path: Path) -> None:
    with atomic_write(path) as stream:
        stream.write("half")
        stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def _make_older(path: Path, seconds: float) -> None:
    time = path.stat().st_mtime - seconds
    os.utime(path, (time, time))


def test_only_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    writer = multiprocessing.get_context("fork").Process(target=_write_and_die, args=(tmp_path / "a[1].m8",))
    writer.start()
    writer.join()
    (left,) = tmp_path.iterdir()
    with atomic_write(tmp_path / "a[1].m8") as stream:
        stream.write("whole")
        (ours,) = (path for path in tmp_path.iterdir() if path != left)
        _make_older(ours, 10 * OLD_SECONDS)
        assert find_abandoned(tmp_path) == [left]
        assert find_abandoned(tmp_path, "b") == []
        remove_abandoned_files(tmp_path, "a[1].m8.")
        assert os.listdir(tmp_path) == [ours.name]
    assert os.listdir(tmp_path) == ["a[1].m8"]
    assert find_abandoned(tmp_path / "absent") == []


def test_files_of_processes_that_cannot_be_checked_are_removed_after_days(tmp_path: Path) -> None:
    other = tmp_path / ".a.0123456789ab-1-2.xyz.tmp"
    legacy = tmp_path / ".a.0123456789abcdef.tmp"
    for path in (other, legacy):
        path.touch()
        _make_older(path, OLD_SECONDS - 600)
    assert find_abandoned(tmp_path, "a") == []
    for path in (other, legacy):
        _make_older(path, 1200)
    assert find_abandoned(tmp_path, "a") == [other, legacy]


def test_names_fit_into_the_limit_of_a_file_system(tmp_path: Path) -> None:
    path = tmp_path / ("Å" * 120 + ".cif")
    temporary = temporary_path(path, ".building")
    temporary.touch()
    assert len(os.fsencode(temporary.name)) <= 255
    _make_older(temporary, 2 * OLD_SECONDS)
    assert find_abandoned(tmp_path, f"{path.name}.", ".building") == [], "its process runs"
    with atomic_write(path) as stream:
        stream.write("x")
    assert path.read_text() == "x"
