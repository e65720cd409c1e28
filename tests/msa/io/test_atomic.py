"""Atomic writing: a file appears under its final name only when it is complete."""

import os
from pathlib import Path

import pytest

from msa.io.atomic import atomic_write


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
    with pytest.raises(OSError) as caught, atomic_write(tmp_path / "file") as stream:
        # every write to /dev/full fails with ENOSPC
        os.dup2(os.open("/dev/full", os.O_WRONLY), stream.fileno())
        stream.write("x")
    assert caught.value.filename == str(tmp_path / "file")
    assert os.listdir(tmp_path) == []
