"""Files that are replaced as a whole."""

import resource
from pathlib import Path

import pytest

from msa.base.atomic import replaced_file


def test_file_is_replaced_at_the_end_of_the_block(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with replaced_file(file) as path:
        path.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_full_disk_names_the_file(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError) as caught, replaced_file(tmp_path / "file") as path:
            path.write_bytes(bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(tmp_path / "file") and not list(tmp_path.iterdir())


def test_failed_block_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), replaced_file(file) as path:
        path.write_text("half")
        _ = 1 / 0
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
