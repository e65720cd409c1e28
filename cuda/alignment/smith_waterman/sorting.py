"""Kernels that prepare the row kernels' work on the GPU: pairs in order, profiles as they are read.

Pairs are sorted by query, then by rows (residues of the target, or those up to the end of a path), most
first, with a counting sort: rows fall into buckets of one number up to 127, from there on 64 buckets an
octave. Which of a bucket's pairs comes first is left to chance; no result depends on it.
"""

from typing import Any

import numpy as np
from numba import cuda, int32, types
from numba.core import config

from cuda.alignment.compiled import compiled_kernel
from cuda.alignment.smith_waterman.source import ENTRY, LETTERS, ROWS

BUCKETS = 1024
LONG = 8192
"""Rows from which on a pair counts as long."""
LONG_BUCKET = 512
"""Bucket of LONG."""
QUERY = 4
"""Numbers per query in `queries`: first row in the profiles, residues, lanes and columns when traced."""
SUMMARY = 3
"""Numbers per query in `summary`: long pairs, pairs that are not empty, whether a score exceeds ± 127."""
TASK = 6
"""Numbers per profile tile in the table of a plan: where it goes, its first row in the profiles, its rows,
lanes and columns of the kernel, bytes of a score."""
# every thread of the simulator is one of the host's
THREADS = 4 if config.ENABLE_CUDASIM else 128


def clear(numbers):  # type: ignore[no-untyped-def]
    """Set int32 numbers to 0."""
    for k in range(cuda.grid(1), numbers.shape[0], cuda.gridsize(1)):
        numbers[k] = 0


def count_pairs(query, target, lengths, found, traced, counts, buckets):  # type: ignore[no-untyped-def]
    """Count each query's pairs by their rows, one thread each.

    Args:
        query: int32 [n].
        target: int64 [n].
        lengths: int32 [targets].
        found: int32 [ENTRY · (n + 1)], the ends if traced.
        traced: whether rows end at the ends.
        counts: int32 [queries · BUCKETS], added to.
        buckets: int32 [n], to be filled: where each pair was counted.
    """
    p = cuda.grid(1)
    if p < query.shape[0]:
        rows = found[ENTRY * p + ENTRY + 2] + 1 if traced else lengths[target[p]]
        shift = max(25 - cuda.clz(np.int32(rows)), 0)
        place = query[p] * BUCKETS + min(64 * shift + (rows >> shift), BUCKETS - 1)
        buckets[p] = place
        cuda.atomic.add(counts, place, 1)


def scan_counts(counts, queries, scores, summary):  # type: ignore[no-untyped-def]
    """Turn the counts of a query into first places, most rows first; a block per query.

    Args:
        counts: int32 [queries · BUCKETS]; afterwards places from 0 for each query.
        queries: int32 [QUERY · queries].
        scores: int16 [query residues · 32], the profiles one after the other.
        summary: int32 [SUMMARY · queries], to be filled.
    """
    sums = cuda.shared.array(THREADS, int32)
    thread = cuda.threadIdx.x
    q = cuda.blockIdx.x
    last = BUCKETS * (q + 1) - 1
    each = BUCKETS // THREADS
    total = 0
    for k in range(thread * each, (thread + 1) * each):
        total += counts[last - k]
    sums[thread] = total
    outside = 0
    first = 32 * queries[QUERY * q]
    for k in range(first + thread, first + 32 * queries[QUERY * q + 1], THREADS):
        if scores[k] < -127 or scores[k] > 127:
            outside = 1
    outside = cuda.syncthreads_or(outside)
    before = 0
    for t in range(thread):
        before += sums[t]
    for k in range(thread * each, (thread + 1) * each):
        if k == BUCKETS - LONG_BUCKET:
            summary[SUMMARY * q] = before
        if k == BUCKETS - 1:
            summary[SUMMARY * q + 1] = before
            summary[SUMMARY * q + 2] = 1 if outside else 0
        count = counts[last - k]
        counts[last - k] = before
        before += count


def place_pairs(query, buckets, counts, table, order, found, traced):  # type: ignore[no-untyped-def]
    """Put the pairs in order, those of a query from its place in the table, one thread each.

    Args:
        query: int32 [n].
        buckets: from `count_pairs`.
        counts: from `scan_counts`; used up.
        table: int32, begins with each query's first place.
        order: int32 [n], to be filled; empty pairs are left out.
        found: int32 [ENTRY · (n + 1)]: if not traced, score −1 for not known yet, or all of an empty pair's.
        traced: whether the ends are known.
    """
    p = cuda.grid(1)
    if p < query.shape[0]:
        filled = buckets[p] % BUCKETS > 0
        if filled:
            order[table[query[p]] + cuda.atomic.add(counts, buckets[p], 1)] = p
        if not traced:
            place = ENTRY * (p + 1)
            found[place] = -1 if filled else 0
            found[place + 1] = -1
            found[place + 2] = -1
            if p == 0:
                found[0] = 0


def arrange_profiles(scores, table, tasks, profiles):  # type: ignore[no-untyped-def]
    """Lay out profiles as the row kernels read them; a block per tile.

    The scores of a lane's columns for a residue lie in words of four int8 or two int16, word k of all lanes
    side by side, then those of the next letter; letters end with PAD.

    Args:
        scores: int16 [query residues · 32], the profiles one after the other.
        table, tasks: int32, and where the tiles' numbers begin in it.
        profiles: int32, to be filled.
    """
    task = tasks + TASK * cuda.blockIdx.x
    to = table[task]
    first = table[task + 1]
    rows = table[task + 2]
    lanes = table[task + 3]
    columns = table[task + 4]
    size = table[task + 5]
    per_word = 4 // size
    words = (columns + per_word - 1) // per_word
    lowest = -(1 << (8 * size - 1))
    mask = (1 << 8 * size) - 1
    for k in range(cuda.threadIdx.x, ROWS * words * lanes, cuda.blockDim.x):
        lane = k % lanes
        word = k // lanes % words
        letter = k // (lanes * words)
        value = np.int64(0)
        for number in range(per_word):
            column = word * per_word + number
            row = lane * columns + column
            score = np.int64(lowest)
            if column < columns and row < rows and letter < LETTERS:
                score = np.int64(scores[32 * (first + row) + letter])
            value |= (score & mask) << (8 * size * number)
        if value >= 2**31:
            value -= 2**32
        profiles[to + k] = value


def _array(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


_WORDS = _array(types.int32)
SIGNATURES: dict[Any, Any] = {
    clear: types.void(_WORDS),
    count_pairs: types.void(_WORDS, _array(types.int64), _WORDS, _WORDS, types.boolean, _WORDS, _WORDS),
    scan_counts: types.void(_WORDS, _WORDS, _array(types.int16), _WORDS),
    place_pairs: types.void(*[_WORDS] * 6, types.boolean),
    arrange_profiles: types.void(_array(types.int16), _WORDS, types.int64, _WORDS),
}


def sorting_kernel(function: Any) -> Any:
    """One of the kernels here, compiled for the current GPU, for blocks of THREADS."""
    return compiled_kernel(function, SIGNATURES[function], (THREADS, 1))
