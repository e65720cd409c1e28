"""Lossless compression of a target's features into two blocks of bytes.

The alignment block is a zstd frame of residue ranks: each residue is replaced by the rank of its code in the
column, 0 for the most common code, and two ranks share a byte. Ranks compress better than codes, because half
of the residues in a deep alignment are the most common one of their column. The few ranks of 15 and more are
escaped and stored separately.

The other block is one zstd frame of all other tensors, the escaped ranks, and the deletions as a sparse list.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import zstandard

from msa.base.residues import NUM_CODES

# chosen for size and speed of real alignments (benchmarks/feature_cache.py)
_ALIGNMENT_SETTINGS = {"strategy": zstandard.STRATEGY_LAZY2, "min_match": 7}
_ALIGNMENT_LEVEL, _REST_LEVEL, _LARGE_REST_LEVEL = 12, 16, 9
_LARGE_REST_BYTES = 1 << 20

ALIGNMENT, REST = "alignment", "rest"
# features that are not stored as plain bytes
_ENCODED = ("msa", "deletion_matrix")

# stored instead of this rank and all higher ones
_ESCAPE_RANK = 15
# marks an escaped rank while codes are decoded
_ESCAPE_CODE = 0x80
# number of residues ranked at a time
_BLOCK = 1 << 16
# byte in a sparse list that adds 255 and continues the number in the next byte
_CONTINUED = 255


def encode(features: Mapping[str, np.ndarray]) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Compress features.

    Args:
        features: `msa` (integers 0 to 21), `deletion_matrix` (unsigned), `hhblits_profile`, and any others.

    Returns:
        The two blocks, and the layout that `decode` needs: type and shape of each tensor, and the number of
        escaped ranks.
    """
    packed_ranks, escaped_ranks = rank_residues(features["msa"], features["hhblits_profile"])
    deletions = features["deletion_matrix"].reshape(-1)
    positions = np.flatnonzero(deletions)
    # widest types first, so that all tensors are aligned
    others = sorted(features.keys() - _ENCODED, key=lambda name: (-_alignment(features[name]), name))
    layout = {
        "tensors": {name: _type_and_shape(features[name]) for name in (*_ENCODED, *others)},
        "listed_ranks": len(escaped_ranks),
    }
    tensors = [features[name].tobytes() for name in others]
    rest = b"".join([*tensors, escaped_ranks.tobytes(), encode_sparse(positions, deletions[positions])])
    blocks = {
        ALIGNMENT: _compress(packed_ranks.data, _ALIGNMENT_LEVEL, **_ALIGNMENT_SETTINGS),
        REST: _compress(rest, _REST_LEVEL if len(rest) < _LARGE_REST_BYTES else _LARGE_REST_LEVEL),
    }
    return blocks, layout


def decode(blocks: Mapping[str, memoryview], layout: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Decompress features; the arrays are writable and own their memory.

    Raises:
        Exception: of any type, if the blocks do not match the layout.
    """
    tensors = dict(layout["tensors"])
    (_, (rows, columns)), (dtype, shape) = (tensors.pop(name) for name in _ENCODED)
    decompressor = zstandard.ZstdDecompressor()
    rest = _decompress(decompressor, blocks[REST])
    features, end = {}, 0
    for name, (tensor_dtype, tensor_shape) in tensors.items():
        # an object dtype would turn bytes from the file into pointers
        if np.dtype(tensor_dtype).kind not in "iufS":
            raise ValueError(f"a tensor has the type {tensor_dtype}")
        features[name] = np.ndarray(tensor_shape, tensor_dtype, rest, end)
        end += features[name].nbytes
    escaped_ranks, deletion_list = np.split(rest[end:], [layout["listed_ranks"]])
    packed_ranks = _decompress(decompressor, blocks[ALIGNMENT]).reshape(rows, (columns + 1) // 2)
    features["msa"] = unrank_residues(packed_ranks, escaped_ranks, features["hhblits_profile"])
    if tuple(shape) != features["msa"].shape:
        raise ValueError("the deletions do not match the alignment")
    if np.dtype(dtype).kind != "u":
        raise ValueError(f"deletions have the type {dtype}")
    deletions = np.zeros(shape, dtype)
    positions, counts = decode_sparse(deletion_list)
    deletions.reshape(-1)[positions] = counts
    return features | {"deletion_matrix": deletions}


def _type_and_shape(value: np.ndarray) -> list[Any]:
    return [value.dtype.str, list(value.shape)]


def _alignment(value: np.ndarray) -> int:
    """Return the alignment of a tensor's elements in bytes."""
    return 1 if value.dtype.kind == "S" else value.itemsize


def _compress(data: bytes | memoryview, level: int, **settings: int) -> bytes:
    # with the size known, zstd uses smaller tables for small data
    size = memoryview(data).nbytes
    parameters = zstandard.ZstdCompressionParameters.from_level(level, source_size=size, **settings)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def _decompress(decompressor: zstandard.ZstdDecompressor, frame: memoryview) -> np.ndarray:
    """Return a frame's bytes as uint8, decompressed straight into the array."""
    content = np.empty(zstandard.frame_content_size(frame), np.uint8)
    with decompressor.stream_reader(frame) as reader:
        if reader.readinto(content.data) != len(content):
            raise ValueError("a block is truncated")
    return content


def rank_residues(msa: np.ndarray, profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace an alignment's residues by the ranks of their codes.

    Args:
        msa: integers [M, R], 0 to 21.
        profile: float32 [R, 22]; in each column larger values give lower ranks. Any profile is correct; the
            alignment's own profile compresses best.

    Returns:
        Two ranks per byte, the first in the low half, with 15 for all ranks of 15 and more: uint8
        [M, ⌈R/2⌉]; and the ranks of 15 and more in order: uint8 [N].
    """
    rows, columns = msa.shape
    ranks = np.empty((columns, NUM_CODES), np.uint8)
    np.put_along_axis(ranks, _codes_by_rank(profile), np.arange(NUM_CODES, dtype=np.uint8)[None], axis=1)
    packed_ranks = np.empty((rows, (columns + 1) // 2), np.uint8)
    escaped_ranks = [np.empty(0, np.uint8)]
    step = max(1, _BLOCK // columns)
    for start in range(0, rows, step):
        block = ranks[np.arange(columns), msa[start : start + step]]
        escaped_ranks.append(block[block >= _ESCAPE_RANK])
        block = np.minimum(block, _ESCAPE_RANK)
        packed_ranks[start : start + step] = block[:, 0::2]
        packed_ranks[start : start + step, : columns // 2] |= block[:, 1::2] << 4
    return packed_ranks, np.concatenate(escaped_ranks)


def unrank_residues(packed_ranks: np.ndarray, escaped_ranks: np.ndarray, profile: np.ndarray) -> np.ndarray:
    """Return the alignment, int8 [M, R], given the results of `rank_residues` and the same profile.

    Raises:
        ValueError: the arguments are not of the same alignment.
    """
    if profile.shape != (len(profile), NUM_CODES) or packed_ranks.shape[1] != (len(profile) + 1) // 2:
        raise ValueError("the alignment does not match its profile")
    codes = _codes_by_rank(profile)
    pairs = _codes_of_rank_pairs(codes)
    entries = packed_ranks + 256 * np.arange(len(pairs))
    msa = np.ascontiguousarray(pairs.take(entries).view(np.int8)[:, : len(profile)])
    positions = np.flatnonzero(msa.reshape(-1) < 0)
    if len(positions) != len(escaped_ranks) or (len(escaped_ranks) and escaped_ranks.max() >= NUM_CODES):
        raise ValueError("the list of high ranks does not match the alignment")
    msa.reshape(-1)[positions] = codes[positions % len(codes), escaped_ranks]
    return msa


def _codes_by_rank(profile: np.ndarray) -> np.ndarray:
    """Return the codes of each column, the most common one first: int8 [R, 22]."""
    return np.argsort(-profile, axis=1, kind="stable").astype(np.int8)


def _codes_of_rank_pairs(codes: np.ndarray) -> np.ndarray:
    """Return the two codes of each byte of two ranks, the first in the low byte: uint16 [⌈R/2⌉, 256]."""
    columns = len(codes)
    padded = np.zeros((columns + columns % 2, 16), np.uint16)
    padded[:columns] = codes[:, :16]
    padded[:columns, _ESCAPE_RANK] = _ESCAPE_CODE
    return (padded[0::2, None, :] | padded[1::2, :, None] << 8).reshape(-1, 256)


def encode_sparse(positions: np.ndarray, values: np.ndarray) -> bytes:
    """Encode the non-zero elements of a vector.

    Stores the distances between positions, then the values. Numbers below 255 take one byte, larger ones
    more.

    Args:
        positions: integers [N], ascending, ≥ 0.
        values: integers [N], ≥ 1.
    """
    numbers = np.concatenate([np.diff(positions, prepend=0), values]).astype(np.int64)
    ends = np.cumsum(numbers // _CONTINUED + 1)
    stream = np.full(int(ends[-1]) if len(ends) else 0, _CONTINUED, np.uint8)
    stream[ends - 1] = numbers % _CONTINUED
    return stream.tobytes()


def decode_sparse(stream: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and values, int64 [N] each, given the bytes (uint8) of `encode_sparse`.

    Raises:
        ValueError: the list is truncated.
    """
    ends = np.flatnonzero(stream != _CONTINUED)
    if len(ends) % 2 or (len(stream) and stream[-1] == _CONTINUED):
        raise ValueError("a sparse list is truncated")
    sums = np.cumsum(stream, dtype=np.int64)[ends]
    count = len(ends) // 2
    # the sums of the distances are the positions
    return sums[:count], np.diff(sums[max(count - 1, 0) :])
