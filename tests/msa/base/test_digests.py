"""Digests of files and values."""

from pathlib import Path

from msa.base.digests import file_sha256, json_sha256


def test_sha256_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    # the example of FIPS 180-2
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_sha256_of_a_value_does_not_depend_on_the_order_of_keys() -> None:
    # sha256sum of {"a": [2], "b": 1}
    expected = "41ff4104bc489a1b119b42f479459c997ebbabb27d88a685fab2a7a52089feb5"
    assert json_sha256({"b": 1, "a": [2]}) == json_sha256({"a": [2], "b": 1}) == expected
