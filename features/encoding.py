"""How a cached feature becomes bytes and comes back exactly.

Three ways: `raw`, its own type and shape, for any safetensors reader; `zstd`, a frame of its bytes; `sparse`,
for deletion counts, a frame of what is not zero: how far apart and how much.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import zstandard

# docs/features.md has the measurements behind these four
_ZSTD_LEVEL = 16
_ZSTD_LEVEL_LARGE = 9
_LARGE = 4 << 20  # bytes
_ZSTD_FROM = 1024  # bytes
_ZSTD_WORTH = 0.9  # of the raw size

# in a stream of numbers, the byte that says: 255, and the number goes on
_MORE = 255


def encode(value: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """What is stored of a feature, and how: its dtype, shape, and the way it is written."""
    value = np.asarray(value, order="C")
    how: dict[str, Any] = {"dtype": value.dtype.str, "shape": list(value.shape), "as": "raw"}
    raw = value.tobytes()
    if value.dtype.kind == "u":
        how["as"] = "sparse"
        return _packed(_sparse(value)), how
    if len(raw) >= _ZSTD_FROM:
        packed = _packed(raw)
        if packed.nbytes < _ZSTD_WORTH * len(raw):
            how["as"] = "zstd"
            return packed, how
    return np.frombuffer(raw, np.uint8) if value.dtype.kind == "S" else value, how


def decode(stored: np.ndarray, how: Mapping[str, Any]) -> np.ndarray:
    """The feature, in memory of its own.

    Raises:
        ValueError: what is stored does not make a feature of this shape, or is written in an unknown way.
    """
    value = np.zeros(how["shape"], how["dtype"])
    flat = value.reshape(-1)
    if how["as"] == "zstd":
        _unpack_into(flat.view(np.uint8), stored)
    elif how["as"] == "sparse":
        places, counts = _unsparse(zstandard.ZstdDecompressor().decompress(stored.data))
        flat[places] = counts
    elif how["as"] == "raw":
        if stored.nbytes != value.nbytes:
            raise ValueError("a tensor's size does not match its shape")
        flat.view(np.uint8)[:] = stored.reshape(-1).view(np.uint8)
    else:
        raise ValueError(f"a tensor is stored as {how['as']!r}")
    return value


def _packed(raw: bytes) -> np.ndarray:
    """A zstd frame, uint8."""
    level = _ZSTD_LEVEL if len(raw) < _LARGE else _ZSTD_LEVEL_LARGE
    return np.frombuffer(zstandard.ZstdCompressor(level=level).compress(raw), np.uint8)


def _unpack_into(flat: np.ndarray, frame: np.ndarray) -> None:
    """Unpack a frame of exactly as many bytes as there is room for, without a copy on the way."""
    if zstandard.frame_content_size(frame.data) != len(flat):
        raise ValueError("a tensor's size does not match its shape")
    with zstandard.ZstdDecompressor().stream_reader(frame.data) as reader:
        if reader.readinto(flat.data) != len(flat):
            raise ValueError("a tensor is cut short")


def _sparse(value: np.ndarray) -> bytes:
    """Distances from one non-zero count to the next, then the counts, a byte for each that is below 255."""
    flat = value.reshape(-1)
    places = np.flatnonzero(flat)
    numbers = np.concatenate([np.diff(places, prepend=0), flat[places].astype(np.int64)])
    ends = np.cumsum(numbers // _MORE + 1)
    stream = np.full(int(ends[-1]) if len(ends) else 0, _MORE, np.uint8)
    stream[ends - 1] = numbers % _MORE
    return stream.tobytes()


def _unsparse(stream: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Places and counts of what `_sparse` wrote."""
    units = np.frombuffer(stream, np.uint8)
    numbers = np.diff(np.cumsum(units, dtype=np.int64)[units != _MORE], prepend=0)
    gaps, counts = numbers.reshape(2, -1)
    return np.cumsum(gaps), counts
