"""Files that are replaced as a whole."""

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


def test_failed_block_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), replaced_file(file) as path:
        path.write_text("half")
        _ = 1 / 0
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
