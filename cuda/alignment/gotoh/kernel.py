"""The Gotoh kernels: those spelled out per shape, the walk back along the path, and the packing of paths."""

import functools
import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numba import cuda, types

from cuda.alignment.compiled import compiled_kernel, generated_function
from cuda.alignment.gotoh import arithmetic
from cuda.alignment.gotoh.source import LETTERS, NIBBLE, Shape, packed_source, wide_source

Kind = Literal["packed", "wide", "traced"]


def _array(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C")


_TARGETS = _array(types.uint8), _array(types.int64), _array(types.int32)
_WORK = _array(types.int64), _array(types.int64), _array(types.int32, 2), _array(types.int32, 2)
_FOUND = _array(types.int32, 2)
_WIDE = types.void(
    *_TARGETS, *_WORK, types.int32, types.int32, _array(types.int32, 2), _array(types.int64),
    _array(types.int32), _array(types.int64), _FOUND,
)  # fmt: skip
SIGNATURES: dict[Kind, Any] = {
    "packed": types.void(*_TARGETS, *_WORK, types.int32, types.int32, _FOUND),
    "wide": _WIDE,
    "traced": _WIDE,
}
WALK_SIGNATURE = types.void(
    *_TARGETS[:2], _array(types.int64), _array(types.int64), _array(types.int32), _array(types.int16, 2),
    _array(types.uint8), _array(types.int64), _array(types.int32), _array(types.int64), *[types.int64] * 5,
    _FOUND, _array(types.int64), _array(types.int32), _FOUND,
)  # fmt: skip
PACK_SIGNATURE = types.void(
    _array(types.int64), _array(types.int64), _array(types.int32), _FOUND, _array(types.int64),
    _array(types.int32),
)  # fmt: skip
WALK_THREADS = 32


def source(kind: Kind, shape: Shape) -> str:
    """The text of the module with the kernel for a shape."""
    text = packed_source(shape) if kind == "packed" else wide_source(shape, traced=kind == "traced")
    # what is kept on disk is found by the text, and depends on this too
    digest = hashlib.sha256(Path(arithmetic.__file__).read_bytes()).hexdigest()
    return f'{text}\n\nARITHMETIC = "{digest}"\n'


def plain(kind: Kind, shape: Shape) -> Any:
    """The kernel for a shape as a Python function, not compiled yet."""
    names: dict[str, Any] = {"__name__": f"gotoh_{kind}_{shape.lanes}x{shape.columns}"}
    exec(compile(source(kind, shape), f"<{names['__name__']}>", "exec"), names)
    return names["kernel"]


@functools.cache
def row_kernel(kind: Kind, shape: Shape, folder: Path | None) -> Any:
    """The kernel for a shape, compiled for the current GPU or found in a folder of compiled kernels."""
    bounds = shape.threads, 1
    if folder is None:
        return cuda.jit(plain(kind, shape))
    function = generated_function(source(kind, shape), "kernel", folder, bounds)
    return compiled_kernel(function, SIGNATURES[kind], bounds)


def walk(  # type: ignore[no-untyped-def]
    residues,
    offsets,
    chosen,
    places,
    queries,
    scores,
    codes,
    query_starts,
    directions,
    direction_starts,
    lanes,
    columns,
    unknown,
    gap_open,
    gap_extend,
    ends,
    run_starts,
    runs,
    found,
):
    """Follow the paths of a batch back from their ends, one thread each.

    Args:
        residues: uint8 [bytes], of the database.
        offsets: int64 [targets].
        chosen, places: int64 [batch], target and row of `ends`, `queries` and `found` of each.
        queries: int32 [n], index in query_starts.
        scores: int16 [query residues, 32], the profiles one after the other.
        codes: uint8 [query residues].
        query_starts: int64 [queries].
        directions: int32, path bits as the traced kernel leaves them.
        direction_starts: int64 [batch].
        lanes, columns: shape of that kernel.
        unknown: letter that never counts as identical.
        gap_open, gap_extend: half-bits.
        ends: int32 [n, 3], score, last query and target position.
        run_starts: int64 [batch], room for each path in `runs`.
        runs: int32, to be filled, last run first: length · 4 + operation.
        found: int32 [n, 8], to be filled; see `Alignments`.
    """
    p = cuda.grid(1)
    if p >= chosen.shape[0]:
        return
    place = places[p]
    h = ends[place, 0]
    if h <= 0:
        return
    i = ends[place, 1]
    j = ends[place, 2]
    start = offsets[chosen[p]]
    profile = query_starts[queries[place]]
    base = direction_starts[p]
    steps = j + lanes
    words = columns // 8
    width = lanes * columns
    room = run_starts[p]
    found[place, 0] = h
    found[place, 2] = i
    found[place, 4] = j
    identical = 0
    total = 0
    count = 0
    last = -1
    while h > 0:
        operation = 0
        length = 0
        bits = 0
        # 4: follow an insertion to its first residue, 8: a deletion
        follow = 0
        while True:
            lane = i % width // columns
            c = i % columns
            word = ((i // width * steps + j + lane) * words + c // 8) * lanes + lane
            bits = directions[base + word] >> (c % 8 * NIBBLE)
            if follow == 0:
                if bits & 1:
                    break
                follow = 4 if bits & 2 else 8
            length += 1
            if follow == 4:
                i -= 1
            else:
                j -= 1
            if bits & follow:
                break
        if follow == 0:
            letter = min(residues[start + j] & 31, LETTERS - 1)
            h -= scores[profile + i, letter]
            if letter == codes[profile + i] and letter != unknown:
                identical += 1
            found[place, 1] = i
            found[place, 3] = j
            i -= 1
            j -= 1
            length = 1
        else:
            operation = 1 if follow == 4 else 2
            h += gap_open + (length - 1) * gap_extend
        total += length
        if operation == last:
            runs[room + count - 1] += 4 * length
        else:
            runs[room + count] = 4 * length + operation
            count += 1
            last = operation
    found[place, 5] = identical
    found[place, 6] = total
    found[place, 7] = count


def pack_runs(places, run_starts, runs, found, packed_starts, packed):  # type: ignore[no-untyped-def]
    """Put the paths of a batch one after the other, first run first, one thread each.

    Args:
        places: int64 [batch].
        run_starts: int64 [batch], where each path is in `runs`, last run first.
        runs: int32.
        found: int32 [n, 8], with the number of runs last.
        packed_starts: int64 [batch], where each goes in `packed`.
        packed: int32, to be filled.
    """
    p = cuda.grid(1)
    if p < places.shape[0]:
        count = found[places[p], 7]
        for k in range(count):
            packed[packed_starts[p] + k] = runs[run_starts[p] + count - 1 - k]


def walk_kernel() -> Any:
    """`walk`, compiled for the current GPU."""
    return compiled_kernel(walk, WALK_SIGNATURE, (WALK_THREADS, 1))


def pack_runs_kernel() -> Any:
    """`pack_runs`, compiled for the current GPU."""
    return compiled_kernel(pack_runs, PACK_SIGNATURE, (WALK_THREADS, 1))


def arranged_profile(profile: np.ndarray, kind: Kind, shape: Shape) -> np.ndarray:
    """A profile as the row kernels read it.

    Args:
        profile: int16 [query length ≥ 1, 32], half-bits.
        kind, shape: the kernel.

    Returns:
        int32 [tiles, letters and PAD · words per lane · lanes]: the scores of a lane's columns for a residue
        lie in words of four int8 (packed) or two int16, word k of all lanes side by side.
    """
    number = np.dtype(np.int8 if kind == "packed" else np.int16)
    per_word = 4 // number.itemsize
    words = -(-shape.columns // per_word)
    tiles = -(-len(profile) // shape.width)
    lowest = np.iinfo(number).min
    scores = np.full((tiles * shape.width, LETTERS + 1), lowest, number)
    scores[: len(profile), :LETTERS] = profile[:, :LETTERS]
    padded = np.full((tiles, shape.lanes, words * per_word, LETTERS + 1), lowest, number)
    padded[:, :, : shape.columns] = scores.reshape(tiles, shape.lanes, shape.columns, LETTERS + 1)
    split = padded.reshape(tiles, shape.lanes, words, per_word, LETTERS + 1)
    return np.ascontiguousarray(split.transpose(0, 4, 2, 1, 3)).view(np.int32).reshape(tiles, -1)
