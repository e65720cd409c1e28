"""Compressed input files: recognised by content, decompressed, and rejected if incomplete or damaged."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from msa.base.errors import InputError
from msa.io.compression import list_folder, open_counted, open_input, read_bytes

COMPRESSORS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
# random bytes do not compress, so cutting the compressed file cuts its data; CR without LF is refused first
CONTENT = os.urandom(200_000).replace(b"\r", b"") + b">a\nMKV\n" * 1000


@pytest.fixture(params=COMPRESSORS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_plain_files_are_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "misleading.gz"
    for content in (b"", b"\x1f", b">a\nMKV\n", CONTENT):
        path.write_bytes(content)
        assert read_bytes(path) == content


def test_compression_is_recognised_by_content(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "plain.fasta"
    path.write_bytes(COMPRESSORS[kind](CONTENT))
    assert read_bytes(path) == CONTENT
    with open_input(path) as stream:
        assert stream.read(10) + stream.readline() + stream.read() == CONTENT


def test_several_members_are_concatenated(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    compress = COMPRESSORS[kind]
    path.write_bytes(compress(CONTENT) + compress(b"") + compress(b"more"))
    assert read_bytes(path) == CONTENT + b"more"


def test_trailing_nul_bytes_are_ignored(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[kind](CONTENT) + bytes(10_000))
    assert read_bytes(path) == CONTENT


@pytest.mark.parametrize("end", [7, 100, 150_000, -4, -1])
def test_truncated_file_is_an_error(tmp_path: Path, kind: str, end: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[kind](CONTENT)[:end])
    with pytest.raises(InputError, match=f"truncated {kind} file") as caught:
        read_bytes(path)
    assert caught.value.path == str(path)


def test_damaged_file_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    data = bytearray(COMPRESSORS[kind](CONTENT))
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"damaged {kind} file"):
        read_bytes(path)


def test_trailing_garbage_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[kind](CONTENT) + b"garbage" * 10)
    with pytest.raises(InputError, match=kind):
        read_bytes(path)


def test_open_counted_counts_compressed_bytes(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[kind](bytes(10**6)))
    with open_counted(path) as (stream, count):
        assert len(stream.read()) == 10**6
        assert count() == path.stat().st_size < 10**5


def test_standard_input_is_decompressed(kind: str) -> None:
    code = "import sys; from msa.io.compression import read_bytes; sys.stdout.buffer.write(read_bytes('-'))"
    for data in (CONTENT, COMPRESSORS[kind](CONTENT)):
        result = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
        assert result.stdout == CONTENT


def test_open_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        read_bytes(tmp_path / "absent")
    assert missing.value.filename == str(tmp_path / "absent")
    with pytest.raises(IsADirectoryError) as folder:
        read_bytes(tmp_path)
    assert folder.value.filename == str(tmp_path)


def test_stream_is_a_buffered_reader(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    text = "".join(f"line {number}\n" for number in range(5000))
    path.write_bytes(COMPRESSORS[kind](text.encode()))
    with open_input(path) as stream:
        assert isinstance(stream, io.BufferedReader)
        assert [line.decode() for line in stream] == text.splitlines(keepends=True)


def test_byte_order_mark_is_dropped(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[kind](b"\xef\xbb\xbf" + CONTENT))
    assert read_bytes(path) == CONTENT
    path.write_bytes(b"\xef\xbb\xbf" + CONTENT)
    assert read_bytes(path) == CONTENT


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_refused_by_name(tmp_path: Path, kind: str, encoding: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESSORS[kind]("\ufeff>a\nMKV\n".encode(encoding)))
    with pytest.raises(InputError, match="text in UTF-16"):
        read_bytes(path)


def test_hidden_files_are_not_listed(tmp_path: Path, kind: str) -> None:
    for name in ("b.fasta", "._b.fasta", ".git", "a"):
        (tmp_path / name).touch()
    assert [path.name for path in list_folder(tmp_path)] == ["a", "b.fasta"]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_lines_that_end_with_cr_alone_are_named(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    (tmp_path / "mac").write_bytes(compress(b">a\rMK\r"))
    with pytest.raises(InputError, match=r"mac: its lines end with CR alone: convert them"):
        read_bytes(tmp_path / "mac")
    for content in (b">a\r\nMK\r\n", b">a\r", b"\0\r\1"):
        (tmp_path / "other").write_bytes(content)
        assert read_bytes(tmp_path / "other") == content


def test_tar_archives_are_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.tar"
    for tar_format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tar_format) as tar:
            tar.addfile(tarfile.TarInfo("q.fasta"), io.BytesIO())
        path.write_bytes(COMPRESSORS[kind](archive.getvalue()))
        with pytest.raises(InputError, match="a tar archive: unpack it"):
            read_bytes(path)
    text = b">" + b"a" * 254 + b" mustard\nMK\n"
    path.write_bytes(COMPRESSORS[kind](text))
    assert text[257:262] == b"ustar" and read_bytes(path) == text


def test_files_that_are_compressed_twice_are_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.fasta.gz"
    path.write_bytes(gzip.compress(COMPRESSORS[kind](CONTENT)))
    with pytest.raises(InputError, match=f"compressed twice: decompress it once, as it is {kind} inside"):
        read_bytes(path)
