"""Records of DeepMind's AlphaFold 3 parameters (`af3.bin`, `af3.bin.zst`): named arrays, one after the other.

A record is five little-endian int32 (lengths of scope, name and dtype, number of axes, bytes of the array),
then the three texts, the axes as int32, and the array.
"""

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import zstandard

from model.errors import ParametersError

_HEADER = struct.Struct("<5i")
_ZSTD = b"\x28\xb5\x2f\xfd"
# bytes of an element
ITEM_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int32": 4, "uint8": 1, "int8": 1}
_LONGEST_TEXT, _MOST_AXES, _LARGEST_ARRAY = 1024, 8, 2**31


class Record(NamedTuple):
    """One array: its scope and name, dtype by NumPy's name, axes and bytes."""

    scope: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    content: bytes


def is_record_file(path: Path) -> bool:
    """Return whether a file, compressed or not, starts as such records do; False if it cannot be read."""
    try:
        with _opened(path) as stream:
            return _lengths(stream.read(_HEADER.size)) is not None
    except (ParametersError, OSError):
        return False


def read_records(path: Path) -> Iterator[Record]:
    """Read all records of a file, compressed or not.

    Raises:
        ParametersError: the file is truncated or damaged, or holds something else.
    """
    with _opened(path) as stream:
        count = 0
        while header := stream.read(_HEADER.size):
            yield _read_record(stream, header, count, path)
            count += 1
    if not count:
        raise ParametersError("empty", path)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading its content, compressed by zstd or not."""
    with path.open("rb") as stream:
        is_compressed = stream.read(len(_ZSTD)) == _ZSTD
        stream.seek(0)
        if not is_compressed:
            yield stream
            return
        decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
        try:
            yield decompressor.stream_reader(stream, read_across_frames=True)
        except zstandard.ZstdError as error:
            raise ParametersError(f"damaged zstd file ({error})", path) from error


def _lengths(header: bytes) -> tuple[int, int, int, int, int] | None:
    """Return the lengths in a header; None if they make no sense."""
    if len(header) < _HEADER.size:
        return None
    scope, name, dtype, axes, size = _HEADER.unpack(header)
    texts = all(0 < length <= _LONGEST_TEXT for length in (scope, name, dtype))
    if not texts or not 0 <= axes <= _MOST_AXES or not 0 <= size < _LARGEST_ARRAY:
        return None
    return scope, name, dtype, axes, size


def _read_record(stream: IO[bytes], header: bytes, number: int, path: Path) -> Record:
    if len(header) < _HEADER.size:
        raise ParametersError(f"truncated after {number} arrays", path)
    if (lengths := _lengths(header)) is None:
        reason = f"damaged after {number} arrays" if number else "not DeepMind's AlphaFold 3 parameters"
        raise ParametersError(reason, path)
    texts, axes, size = lengths[:3], lengths[3], lengths[4]
    expected = sum(texts) + 4 * axes + size
    content = stream.read(expected)
    if len(content) < expected:
        raise ParametersError(f"truncated after {number} arrays", path)
    scope, name, dtype, numbers, values = struct.unpack(
        f"<{texts[0]}s{texts[1]}s{texts[2]}s{4 * axes}s{size}s", content
    )
    shape = struct.unpack(f"<{axes}i", numbers)
    kind = dtype.decode(errors="replace")
    if min(shape, default=0) < 0 or size != math.prod(shape) * ITEM_SIZES.get(kind, -1):
        raise ParametersError(f"damaged, or of another version, after {number} arrays", path)
    return Record(scope.decode(errors="replace"), name.decode(errors="replace"), kind, shape, values)
