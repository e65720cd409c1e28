"""Input files, plain or compressed with gzip, bzip2, xz or zstd, recognised by their first bytes.

The byte-order mark that some editors put in front of a text is dropped here, for all formats.
"""

import bz2
import contextlib
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from msa.base.errors import InputError

SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
"""Suffixes of compressed files, for code that knows only the name of a file."""

# Compressed bytes per step. Each step is decompressed whole, so this bounds memory: the highest ratio (zstd,
# a block of one repeated byte) is near 2^15, which gives 128 MiB.
_STEP_BYTES = 4096


def _zstd() -> Any:
    # deferred: few files need it, and benchmarks run on machines without it
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()


_FORMATS: list[tuple[bytes, str, Callable[[], Any]]] = [
    (b"\x1f\x8b", "gzip", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMADecompressor),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd),
]
_LONGEST_MAGIC = max(len(magic) for magic, _, _ in _FORMATS)
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# of POSIX and of GNU
_TAR_MAGICS, _TAR_OFFSET = (b"ustar\0", b"ustar  \0"), 257


class _Decompressor(io.RawIOBase):
    """The decompressed content of a stream of one or more members, each of which must be complete."""

    def __init__(self, raw: BinaryIO, name: str, kind: str, new_member: Callable[[], Any]) -> None:
        self._raw, self._name, self._kind, self._new_member = raw, name, kind, new_member
        self._member = new_member()
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._raw.read(_STEP_BYTES)
            if not data:
                if not self._member.eof:
                    raise InputError(f"truncated {self._kind} file", self._name)
                return 0
            self._ready = memoryview(self._decompress(data))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decompress(self, data: bytes) -> bytes:
        parts = []
        while data:
            if self._member.eof:
                # tape blocks and some downloads are padded with NUL bytes, and no member starts with one
                data = data.lstrip(b"\0")
                if not data:
                    break
                self._member = self._new_member()
            try:
                parts.append(self._member.decompress(data))
            except Exception as error:  # each library raises its own class for damaged data
                raise InputError(f"damaged {self._kind} file ({error})", self._name) from error
            data = self._member.unused_data if self._member.eof else b""
        return b"".join(parts)


@contextlib.contextmanager
def open_input(path: str | os.PathLike[str], is_tar: bool = False) -> Iterator[BinaryIO]:
    """Open a file, or standard input (`-`), for reading its decompressed bytes without a byte-order mark.

    Args:
        path: the file.
        is_tar: whether a tar archive is expected.

    Yields:
        a buffered binary stream. Reading from it raises InputError if a compressed file is truncated or
        damaged.

    Raises:
        InputError: the file is text in UTF-16, an unexpected tar archive or compressed twice, or its lines
            end with CR alone.
        OSError: the file cannot be opened or read; the error names it.
    """
    with open_counted(path, is_tar) as (stream, _):
        yield stream


@contextlib.contextmanager
def open_counted(
    path: str | os.PathLike[str], is_tar: bool = False
) -> Iterator[tuple[BinaryIO, Callable[[], int]]]:
    """Open a file like `open_input`; also yield a function that returns the number of bytes read from it."""
    name = os.fspath(path)
    with contextlib.ExitStack() as stack:
        raw = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
        counter = _CountingReader(raw, name)
        stream: Any = stack.enter_context(io.BufferedReader(counter, 1 << 20))
        start = stream.peek(_LONGEST_MAGIC)
        for magic, kind, new_member in _FORMATS:
            if start.startswith(magic):
                content = _Decompressor(stream, name, kind, new_member)
                stream = stack.enter_context(io.BufferedReader(cast(Any, content), 1 << 20))
                break
        _check_start(stream, name, is_tar)
        yield stream, counter.total


def _check_start(stream: Any, name: str, is_tar: bool) -> None:
    """Check the start of a decompressed stream, and skip a byte-order mark.

    Raises:
        InputError: see `open_input`.
    """
    start = stream.peek(_TAR_OFFSET + len(_TAR_MAGICS[1]))
    if not is_tar and start.startswith(_TAR_MAGICS, _TAR_OFFSET):
        raise InputError("a tar archive: unpack it, and give its files", name)
    for magic, kind, _ in _FORMATS:
        if start.startswith(magic):
            raise InputError(f"compressed twice: decompress it once, as it is {kind} inside", name)
    if start.startswith(_UTF16_MARKS):
        raise InputError("text in UTF-16: save the file as UTF-8", name)
    # a pipe's first bytes may end between CR and LF
    if b"\r" in start[:-1] and b"\n" not in start and b"\0" not in start:
        raise InputError("its lines end with CR alone: convert them, as with tr '\\r' '\\n'", name)
    if start.startswith(_UTF8_MARK):
        stream.read(len(_UTF8_MARK))


def list_folder(folder: Path) -> list[Path]:
    """Return the files and folders in a folder of inputs, sorted.

    Hidden ones are left out, such as the `._NAME` files that macOS writes to other file systems.
    """
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


class _CountingReader(io.RawIOBase):
    """A reader that counts bytes and adds the file's name to read errors."""

    def __init__(self, raw: Any, name: str) -> None:
        self._raw, self._name, self._count = raw, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = self._raw.readinto(buffer)
        except OSError as error:
            error.filename = error.filename or self._name
            raise
        self._count += count or 0
        return int(count or 0)

    def total(self) -> int:
        return self._count


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the whole decompressed content of a file; `-` is standard input.

    Raises:
        InputError: a compressed file is truncated or damaged, or the file is text in UTF-16.
        OSError: the file cannot be read; the error names it.
    """
    with open_input(path) as stream:
        return stream.read()
