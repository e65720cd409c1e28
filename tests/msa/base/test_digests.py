"""Digests of files."""

from pathlib import Path

from msa.base.digests import file_sha256


def test_sha256_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    # the example of FIPS 180-2
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
