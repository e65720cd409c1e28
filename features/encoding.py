"""How the features of a target become two blocks of bytes, and come back exactly.

The alignment is a zstd frame of ranks (`features.ranks`). All else is one frame: the other tensors one after
another, the ranks that the alignment lists apart, and deletions as a list (`features.sparse`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import zstandard

# docs/features.md has the measurements behind these
_ALIGNMENT = {"strategy": zstandard.STRATEGY_LAZY2, "min_match": 7}
_ALIGNMENT_LEVEL, _REST_LEVEL, _LARGE_REST_LEVEL = 12, 16, 9
_LARGE = 1 << 20  # bytes

ALIGNMENT, REST = "alignment", "rest"
_APART = ("msa", "deletion_matrix")


def encode(features: Mapping[str, np.ndarray]) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The two blocks, and what is needed to read them: type and shape of tensors, how many ranks are listed.

    Args:
        features: `msa` (integers 0–21), `deletion_matrix` (unsigned), `hhblits_profile`, and any others.
    """
    # sparse and ranks come with a compiler, which listing a cache's entries has no need of
    from features.ranks import rank_residues
    from features.sparse import write_list

    pairs, ranks = rank_residues(features["msa"], features["hhblits_profile"])
    deletions = features["deletion_matrix"].reshape(-1)
    places = np.flatnonzero(deletions)
    # widest first, so that each lies where its type may
    others = sorted(features.keys() - _APART, key=lambda name: (-_width(features[name]), name))
    layout = {
        "tensors": {name: _described(features[name]) for name in (*_APART, *others)},
        "listed_ranks": len(ranks),
    }
    parts = [features[name].tobytes() for name in others]
    rest = b"".join([*parts, ranks.tobytes(), write_list(places, deletions[places])])
    blocks = {
        ALIGNMENT: _pack(pairs.data, _ALIGNMENT_LEVEL, **_ALIGNMENT),
        REST: _pack(rest, _REST_LEVEL if len(rest) < _LARGE else _LARGE_REST_LEVEL),
    }
    return blocks, layout


def decode(blocks: Mapping[str, memoryview], layout: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The features, in memory of their own.

    Raises:
        Exception: of any kind, where the blocks do not make tensors of this layout.
    """
    from features.ranks import unrank_residues
    from features.sparse import read_list

    tensors = dict(layout["tensors"])
    (_, (rows, columns)), (dtype, shape) = (tensors.pop(name) for name in _APART)
    unpacker = zstandard.ZstdDecompressor()
    rest = _unpack(unpacker, blocks[REST])
    features, end = {}, 0
    for name, (kind, axes) in tensors.items():
        # bytes from a file must not become pointers to objects
        if np.dtype(kind).kind not in "iufS":
            raise ValueError(f"a tensor has the type {kind}")
        features[name] = np.ndarray(axes, kind, rest, end)
        end += features[name].nbytes
    ranks, stream = np.split(rest[end:], [layout["listed_ranks"]])
    pairs = _unpack(unpacker, blocks[ALIGNMENT]).reshape(rows, (columns + 1) // 2)
    features["msa"] = unrank_residues(pairs, ranks, features["hhblits_profile"])
    if tuple(shape) != features["msa"].shape:
        raise ValueError("the deletions do not match the alignment")
    if np.dtype(dtype).kind != "u":
        raise ValueError(f"deletions have the type {dtype}")
    deletions = np.zeros(shape, dtype)
    places, counts = read_list(stream)
    deletions.reshape(-1)[places] = counts
    return features | {"deletion_matrix": deletions}


def _described(value: np.ndarray) -> list[Any]:
    return [value.dtype.str, list(value.shape)]


def _width(value: np.ndarray) -> int:
    """Bytes of a number; text has none that need a place of its own."""
    return 1 if value.dtype.kind == "S" else value.itemsize


def _pack(data: bytes | memoryview, level: int, **settings: int) -> bytes:
    size = memoryview(data).nbytes
    # a frame of small data needs small tables only, if it is known before
    parameters = zstandard.ZstdCompressionParameters.from_level(level, source_size=size, **settings)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def _unpack(unpacker: zstandard.ZstdDecompressor, frame: memoryview) -> np.ndarray:
    """A frame's bytes, uint8, without a copy on the way."""
    room = np.empty(zstandard.frame_content_size(frame), np.uint8)
    with unpacker.stream_reader(frame) as reader:
        if reader.readinto(room.data) != len(room):
            raise ValueError("a block is cut short")
    return room
