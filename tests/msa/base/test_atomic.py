"""Atomic writing: a file appears under its final name only when it is complete."""

import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from msa.base.atomic import DiskFull, atomic_write, is_stream


def test_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with atomic_write(path) as stream:
        stream.write("Å")
        assert not path.exists()
    assert path.read_text(encoding="utf-8") == "Å"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
def test_failure_keeps_the_old_file_and_leaves_no_temporary_file(tmp_path: Path, error: type) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as stream:
        stream.write("half")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "file") as stream:
            stream.write("x")
    finally:
        os.umask(old)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_full_disk_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(DiskFull) as caught, atomic_write(tmp_path / "file") as stream:
        # every write to /dev/full fails with ENOSPC
        os.dup2(os.open("/dev/full", os.O_WRONLY), stream.fileno())
        stream.write("x")
    assert caught.value.filename == str(tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    null = tmp_path / "null"
    try:
        os.mknod(null, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        null = Path("/dev/null")
    assert is_stream(null)
    with atomic_write(null, "wb") as stream:
        stream.write(b"x")
    assert stat.S_ISCHR(null.stat().st_mode)
    with pytest.raises(OSError, match="/dev/full"), atomic_write("/dev/full") as stream:
        stream.write("x")


def test_pipe_gets_the_content(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    with atomic_write(pipe) as stream:
        stream.write("content")
    reader.join()
    assert received == ["content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode) and os.listdir(tmp_path) == ["pipe"]


def test_open_file_is_appended_to(tmp_path: Path) -> None:
    """A shell's `>> file` and `-o /dev/stdout` keep what the file has."""
    path = tmp_path / "file"
    path.write_text("before\n")
    with path.open("a") as opened:
        name = f"/proc/self/fd/{opened.fileno()}"
        assert is_stream(name) and not is_stream(path) and not is_stream(tmp_path)
        with atomic_write(name) as stream:
            stream.write("after\n")
    assert path.read_text() == "before\nafter\n"
    assert os.listdir(tmp_path) == ["file"]
