"""Kernels that prepare the work of the row kernels: they sort the pairs and lay out the profiles.

Pairs are sorted by query, then by decreasing number of rows (residues of the target, or up to the end of a
path) with a counting sort. Each number of rows up to 127 has its own bucket; beyond, there are 64 buckets per
octave. The order within a bucket is arbitrary; no result depends on it.
"""

import numpy as np
from numba import cuda, int32

from cuda.alignment.smith_waterman.generator import ENTRY, LETTERS, ROWS
from cuda.alignment.smith_waterman.signatures import BUCKETS, LONG_BUCKET, QUERY, SUMMARY, TASK, THREADS


def clear(numbers):  # type: ignore[no-untyped-def]
    """Set int32 numbers to 0."""
    for k in range(cuda.grid(1), numbers.shape[0], cuda.gridsize(1)):
        numbers[k] = 0


def count_pairs(query, target, lengths, ends, traced, counts, buckets):  # type: ignore[no-untyped-def]
    """Count each query's pairs by their number of rows; one thread per pair.

    Args:
        query: int32 [n].
        target: int64 [n].
        lengths: int32 [targets].
        ends: int32 [ENTRY · (n + 1)], read if traced.
        traced: whether a pair's rows end where its alignment ends.
        counts: int32 [queries · BUCKETS], incremented.
        buckets: int32 [n], written: index in `counts` of each pair.
    """
    p = cuda.grid(1)
    if p < query.shape[0]:
        rows = ends[ENTRY * p + ENTRY + 2] + 1 if traced else lengths[target[p]]
        shift = max(25 - cuda.clz(np.int32(rows)), 0)
        bucket = query[p] * BUCKETS + min(64 * shift + (rows >> shift), BUCKETS - 1)
        buckets[p] = bucket
        cuda.atomic.add(counts, bucket, 1)


def scan_counts(counts, queries, scores, summary):  # type: ignore[no-untyped-def]
    """Turn the counts of a query into first positions, most rows first; one block per query.

    Args:
        counts: int32 [queries · BUCKETS]; becomes the first position of each bucket, from 0 for each query.
        queries: int32 [QUERY · queries].
        scores: int16 [query residues · 32], the concatenated profiles.
        summary: int32 [SUMMARY · queries], written.
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


def order_pairs(query, buckets, counts, table, order, ends, traced):  # type: ignore[no-untyped-def]
    """Write the sorted order of the pairs; one thread per pair.

    Args:
        query: int32 [n].
        buckets: result of `count_pairs`.
        counts: result of `scan_counts`; modified.
        table: int32, starts with the first position of each query's pairs.
        order: int32 [n], written; empty pairs are left out.
        ends: int32 [ENTRY · (n + 1)], initialised if not traced: score −1, or 0 for an empty pair.
        traced: whether the ends are known already.
    """
    p = cuda.grid(1)
    if p < query.shape[0]:
        non_empty = buckets[p] % BUCKETS > 0
        if non_empty:
            order[table[query[p]] + cuda.atomic.add(counts, buckets[p], 1)] = p
        if not traced:
            entry = ENTRY * (p + 1)
            ends[entry] = -1 if non_empty else 0
            ends[entry + 1] = -1
            ends[entry + 2] = -1
            if p == 0:
                ends[0] = 0


def arrange_profiles(scores, table, tasks, profiles):  # type: ignore[no-untyped-def]
    """Lay out profiles as the row kernels read them; one block per tile.

    A lane's scores for a letter are packed into words of four int8 or two int16. For each letter, the words k
    of all lanes are adjacent; the last letter is PAD.

    Args:
        scores: int16 [query residues · 32], the concatenated profiles.
        table: int32, see `Plan`.
        tasks: int64, index in `table` of the first tile's numbers.
        profiles: int32, written.
    """
    task = tasks + TASK * cuda.blockIdx.x
    output = table[task]
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
        profiles[output + k] = value
