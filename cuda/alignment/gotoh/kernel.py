"""The Gotoh kernels: those spelled out per shape, the walk back along the path, and the packing of paths."""

import functools
import hashlib
from pathlib import Path
from typing import Any, Literal

from numba import cuda, types

from cuda.alignment.compiled import compiled_kernel, generated_function
from cuda.alignment.gotoh import arithmetic
from cuda.alignment.gotoh.sorting import QUERY
from cuda.alignment.gotoh.source import (
    ENTRY,
    LETTERS,
    NIBBLE,
    STARTS,
    Shape,
    packed_source,
    wide_source,
)

Kind = Literal["packed", "wide", "traced"]


def _array(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


_BYTES, _WORDS, _LONG_WORDS = _array(types.uint8), _array(types.int32), _array(types.int64)
# residues, offsets, lengths, target, order, profiles, table, blocks, opening, extending
_ROWS = (
    _BYTES, _LONG_WORDS, _WORDS, _LONG_WORDS, _WORDS, _WORDS, _WORDS, types.int64, types.int32, types.int32,
)  # fmt: skip
_WIDE = types.void(*_ROWS, _LONG_WORDS, _WORDS, _WORDS, _WORDS)
SIGNATURES: dict[Kind, Any] = {"packed": types.void(*_ROWS, _WORDS), "wide": _WIDE, "traced": _WIDE}
WALK_SIGNATURE = types.void(
    _BYTES, _LONG_WORDS, _LONG_WORDS, _WORDS, _WORDS, _array(types.int16), _BYTES, _WORDS, _LONG_WORDS,
    *[types.int64] * 3, _WORDS, _WORDS, _WORDS,
)  # fmt: skip
PACK_SIGNATURE = types.void(_LONG_WORDS, _WORDS, _WORDS, _WORDS)
WALK_THREADS = 32
PATH = 9
"""Numbers per pair in `paths`."""


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
    target,
    query,
    queries,
    scores,
    codes,
    directions,
    starts,
    unknown,
    gap_open,
    gap_extend,
    ends,
    runs,
    paths,
):
    """Follow the paths of a batch back from their ends, one thread each.

    Args:
        residues: uint8 [bytes], of the database.
        offsets: int64 [targets].
        target, query: int64 and int32 [batch].
        queries: int32 [QUERY · queries], as in `cuda.alignment.gotoh.sorting`.
        scores: int16 [query residues · 32], the profiles one after the other.
        codes: uint8 [query residues].
        directions: int32, path bits as the traced kernel leaves them.
        starts: int64 [STARTS · batch], of each pair's bits and of the room for its runs, among others.
        unknown: letter that never counts as identical.
        gap_open, gap_extend: half-bits.
        ends: int32 [ENTRY · (batch + 1)], scores ≥ 1.
        runs: int32, to be filled, last run first: length · 4 + operation.
        paths: int32 [PATH · batch + 1], to be filled: for each the row of `Alignments.found` and a number for
            `pack_runs`; then 0.
    """
    p = cuda.grid(1)
    if p == 0:
        paths[PATH * query.shape[0]] = 0
    if p >= query.shape[0]:
        return
    h = ends[ENTRY * p + ENTRY]
    i = ends[ENTRY * p + ENTRY + 1]
    j = ends[ENTRY * p + ENTRY + 2]
    start = offsets[target[p]]
    own = QUERY * query[p]
    profile = queries[own]
    lanes = queries[own + 2]
    columns = queries[own + 3]
    base = starts[STARTS * p + 1]
    room = starts[STARTS * p + 2]
    path = PATH * p
    steps = j + lanes
    words = columns // 8
    width = lanes * columns
    paths[path] = h
    paths[path + 2] = i
    paths[path + 4] = j
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
            h -= scores[32 * (profile + i) + letter]
            if letter == codes[profile + i] and letter != unknown:
                identical += 1
            paths[path + 1] = i
            paths[path + 3] = j
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
    paths[path + 5] = identical
    paths[path + 6] = total
    paths[path + 7] = count


def pack_runs(starts, runs, paths, packed):  # type: ignore[no-untyped-def]
    """Bring the runs of a batch together, each path's first run first, one thread each.

    Args:
        starts: int64 [STARTS · batch], of the room for each path's runs, among others.
        runs: int32, from `walk`.
        paths: int32 [PATH · batch + 1], from `walk`: the number of a path's runs is read, where they begin in
            `packed` is written, and at the end how many there are of all paths. Paths come in any order.
        packed: int32, to be filled.
    """
    p = cuda.grid(1)
    if p < starts.shape[0] // STARTS:
        count = paths[PATH * p + 7]
        to = cuda.atomic.add(paths, paths.shape[0] - 1, count)
        paths[PATH * p + 8] = to
        last = starts[STARTS * p + 2] + count - 1
        for k in range(count):
            packed[to + k] = runs[last - k]


def walk_kernel() -> Any:
    """`walk`, compiled for the current GPU."""
    return compiled_kernel(walk, WALK_SIGNATURE, (WALK_THREADS, 1))


def pack_runs_kernel() -> Any:
    """`pack_runs`, compiled for the current GPU."""
    return compiled_kernel(pack_runs, PACK_SIGNATURE, (WALK_THREADS, 1))
