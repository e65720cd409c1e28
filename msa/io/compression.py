"""Opening input: plain, gzip, bzip2, xz or zstd, told apart by the first bytes, never by the name."""

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

from msa.errors import InputError

SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
"""What the names of compressed files end with, where a name must tell what is behind it."""

# A piece is decompressed whole, so this bounds memory: the worst ratio (zstd, a block of one repeated byte)
# is near 2^15, which makes 128 MiB of a piece.
_PIECE = 4096


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()


_FORMATS: list[tuple[bytes, str, Callable[[], Any]]] = [
    (b"\x1f\x8b", "gzip", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMADecompressor),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd),
]
_LONGEST_MAGIC = max(len(magic) for magic, _, _ in _FORMATS)


class _Decompressed(io.RawIOBase):
    """The content of a compressed stream: one or more members, each of which must be complete."""

    def __init__(self, raw: BinaryIO, name: str, kind: str, make: Callable[[], Any]) -> None:
        self._raw, self._name, self._kind, self._make = raw, name, kind, make
        self._member = make()
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            piece = self._raw.read(_PIECE)
            if not piece:
                if not self._member.eof:
                    raise InputError(f"truncated {self._kind} file", self._name)
                return 0
            self._ready = memoryview(self._decompress(piece))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decompress(self, piece: bytes) -> bytes:
        made = []
        while piece:
            if self._member.eof:
                # tape blocks and some downloads end in NUL bytes, which are no member of any format
                piece = piece.lstrip(b"\0")
                if not piece:
                    break
                self._member = self._make()
            try:
                made.append(self._member.decompress(piece))
            except Exception as error:  # each library has its own class for damaged data
                raise InputError(f"damaged {self._kind} file ({error})", self._name) from error
            piece = self._member.unused_data if self._member.eof else b""
        return b"".join(made)


@contextlib.contextmanager
def open_input(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for reading its decompressed bytes.

    Args:
        path: the file; `-` is standard input.

    Yields:
        a buffered binary stream. Reading it raises InputError where a compressed file is truncated or
        damaged.

    Raises:
        OSError: the file cannot be opened or read; the error names it.
    """
    with open_counted(path) as (stream, _):
        yield stream


@contextlib.contextmanager
def open_counted(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, Callable[[], int]]]:
    """Like `open_input`, with a function that tells how many bytes of the file itself have been read."""
    name = os.fspath(path)
    with contextlib.ExitStack() as stack:
        raw = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
        tally = _Tally(raw, name)
        source = stack.enter_context(io.BufferedReader(tally, 1 << 20))
        start = source.peek(_LONGEST_MAGIC)
        for magic, kind, make in _FORMATS:
            if start.startswith(magic):
                content = _Decompressed(cast(BinaryIO, source), name, kind, make)
                yield cast(BinaryIO, stack.enter_context(io.BufferedReader(content, 1 << 20))), tally.total
                return
        yield cast(BinaryIO, source), tally.total


class _Tally(io.RawIOBase):
    """Counts what is read of a file and puts its name into the errors of reading it."""

    def __init__(self, raw: Any, name: str) -> None:
        self._raw, self._name, self._count = raw, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            got = self._raw.readinto(buffer)
        except OSError as error:
            error.filename = error.filename or self._name
            raise
        self._count += got or 0
        return int(got or 0)

    def total(self) -> int:
        return self._count


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The whole decompressed content of a file; `-` is standard input.

    Raises:
        InputError: a compressed file is truncated or damaged.
        OSError: the file cannot be read; the error names it.
    """
    with open_input(path) as stream:
        return stream.read()
