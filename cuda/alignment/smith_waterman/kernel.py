"""The Gotoh kernels: those spelled out per shape, the walk back along the path, and the packing of paths."""

import functools
import hashlib
from pathlib import Path
from typing import Any, Literal

from numba import cuda, int32, types
from numba.core import config

from cuda.alignment.compiled import compiled_kernel, generated_function
from cuda.alignment.smith_waterman import arithmetic
from cuda.alignment.smith_waterman.sorting import QUERY
from cuda.alignment.smith_waterman.source import (
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
# every thread of the simulator is one of the host's
WALK_THREADS = 4 if config.ENABLE_CUDASIM else 32
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


def row_kernel(kind: Kind, shape: Shape, folder: Path | None) -> Any:
    """The kernel for a shape, compiled for the current GPU or found in a folder of compiled kernels."""
    return _row_kernel(kind, shape, folder, tuple(cuda.get_current_device().compute_capability))


@functools.cache
def _row_kernel(kind: Kind, shape: Shape, folder: Path | None, capability: tuple[int, int]) -> Any:
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
    """Follow the paths of a batch back from their ends, a block each.

    What lies ahead, on the diagonal or along a gap, is fetched by all threads at once: one after the other,
    each cell would cost a trip to memory. The first thread then goes as far as it can.

    Args:
        residues: uint8 [bytes], of the database.
        offsets: int64 [targets].
        target, query: int64 and int32 [batch].
        queries: int32 [QUERY · queries], as in `cuda.alignment.smith_waterman.sorting`.
        scores: int16 [query residues · 32], the profiles one after the other.
        codes: uint8 [query residues].
        directions: int32, path bits as the traced kernel leaves them.
        starts: int64 [STARTS · batch], as that took them.
        unknown: letter that never counts as identical.
        gap_open, gap_extend: half-bits.
        ends: int32 [ENTRY · (batch + 1)], scores ≥ 1.
        runs: int32, to be filled, last run first: length · 4 + operation.
        paths: int32 [PATH · batch + 1], to be filled: for each the row of `Alignments.found`, target
            positions from the first residue looked at, and a number for `pack_runs`; then 0.
    """
    cells = cuda.shared.array(WALK_THREADS, int32)
    gains = cuda.shared.array(WALK_THREADS, int32)
    # query and target position, and what is followed there: 0 pairs, 4 an insertion, 8 a deletion
    state = cuda.shared.array(3, int32)
    thread = cuda.threadIdx.x
    p = cuda.blockIdx.x
    start = offsets[target[p]] + starts[STARTS * p + 3]
    own = QUERY * query[p]
    profile = queries[own]
    lanes = queries[own + 2]
    columns = queries[own + 3]
    base = starts[STARTS * p + 1]
    room = starts[STARTS * p + 2]
    path = PATH * p
    h = ends[ENTRY * p + ENTRY]
    last_i = ends[ENTRY * p + ENTRY + 1]
    last_j = ends[ENTRY * p + ENTRY + 2]
    steps = last_j + lanes
    words = columns // 8
    width = lanes * columns
    identical = 0
    total = 0
    count = 0
    last = -1
    if thread == 0:
        state[0] = last_i
        state[1] = last_j
        state[2] = 0
    while True:
        cuda.syncthreads()
        i = state[0]
        j = state[1]
        follow = state[2]
        if i < 0:
            break
        ahead_i = i if follow == 8 else i - thread
        ahead_j = j if follow == 4 else j - thread
        if ahead_i >= 0 and ahead_j >= 0:
            lane = ahead_i % width // columns
            c = ahead_i % columns
            word = ((ahead_i // width * steps + ahead_j + lane) * words + c // 8) * lanes + lane
            bits = directions[base + word] >> (c % 8 * NIBBLE) & 15
            letter = min(residues[start + ahead_j] & 31, LETTERS - 1)
            if letter == codes[profile + ahead_i] and letter != unknown:
                bits |= 16
            cells[thread] = bits
            gains[thread] = scores[32 * (profile + ahead_i) + letter]
        cuda.syncthreads()
        if thread == 0:
            length = 0
            operation = follow // 4
            if follow == 0:
                while length < WALK_THREADS and h > 0 and cells[length] & 1:
                    h -= gains[length]
                    identical += cells[length] >> 4
                    length += 1
                i -= length
                j -= length
                if length < WALK_THREADS:
                    state[2] = 4 if cells[length] & 2 else 8
            else:
                ending = 0
                while length < WALK_THREADS and ending == 0:
                    ending = cells[length] & follow
                    length += 1
                h += length * gap_extend
                if follow == 4:
                    i -= length
                else:
                    j -= length
                if ending:
                    h += gap_open - gap_extend
                    state[2] = 0
            total += length
            if length > 0:
                if operation == last:
                    runs[room + count - 1] += 4 * length
                else:
                    runs[room + count] = 4 * length + operation
                    count += 1
                    last = operation
            # the position only ends a walk from an end that is none
            if h <= 0 or i < 0 or j < 0:
                paths[path] = ends[ENTRY * p + ENTRY]
                paths[path + 1] = i + 1
                paths[path + 2] = last_i
                paths[path + 3] = j + 1
                paths[path + 4] = last_j
                paths[path + 5] = identical
                paths[path + 6] = total
                paths[path + 7] = count
                i = -1
            state[0] = i
            state[1] = j
    if thread == 0 and p == 0:
        paths[PATH * query.shape[0]] = 0


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
