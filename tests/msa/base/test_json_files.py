"""JSON files that have been damaged."""

import json
from pathlib import Path

import pytest

from msa.base.json_files import read_json, write_json


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "out of range"),
        ("[NaN]", "malformed: invalid character"),
        ('"\\uD800 and more"', "surrogate"),
        ("{", "truncated"),
        ("", "truncated"),
    ],
)
def test_damaged_json_is_a_value_error(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_json(tmp_path / "a.json")


def test_valid_json_is_read(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, "é😀", "\\ud800"]}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        (tmp_path / "a.json").write_text(text)
        assert read_json(tmp_path / "a.json") == value


def test_a_file_is_whole_or_as_before(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": [1, None]}, indent=1)
    with pytest.raises(TypeError):
        write_json(path, {"a": [2, path]})
    assert read_json(path) == {"a": [1, None]} and path.read_text().endswith("}\n")
    assert list(tmp_path.iterdir()) == [path]
