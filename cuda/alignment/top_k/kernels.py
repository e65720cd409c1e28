"""Kernels that select the k best targets by exact score, starting from upper bounds of all scores.

    count_bounds, list_bounds   list the targets with the highest bounds
    narrow, list_bounds         list the other targets that may still be among the k best, judging by the
                                exact scores of the first list
    choose                      select the k best of all listed targets, whose exact scores are now known

A row holds the targets selected from some chunks of a database. For a further chunk, `list_bounds` alone
lists the targets that may still be among the k best, and `choose` merges them with the row into a new row.

A list holds its length and then target indices. Threads write lists and rows in arbitrary order; results
depend only on the set of entries. Entries are ranked by unique keys: the score, then the database index
counted from the end, so that among equal scores the first target has the largest key.
"""

from typing import Any

import numpy as np
from numba import cuda, int32

from cuda.alignment.top_k.layout import (
    BINS,
    DIGIT,
    FINISHED,
    FIRST,
    FIRST_SCORES,
    LOWER,
    ROW_COUNT,
    ROW_TARGETS,
    SECOND,
    SECOND_SCORES,
    THREADS,
    UPPER,
)

_PACKED = 4  # bounds per word
_ABOVE_ALL = 2**15
_UNBOUNDED = _ABOVE_ALL - 1

# inlined before type inference: numba needs a GPU to compile a device function separately
_inlined = cuda.jit(device=True, inline="always")


@_inlined
def _suffix_sums(own: Any, sums: Any) -> None:
    """Set sums[t] to the sum of `own` over thread t and all later threads of the block."""
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    sums[thread] = own
    cuda.syncthreads()
    step = 1
    while step < threads:
        value = sums[thread]
        if thread + step < threads:
            value += sums[thread + step]
        cuda.syncthreads()
        sums[thread] = value
        cuda.syncthreads()
        step *= 2


@_inlined
def _find_bin(histogram: Any, rank: Any, sums: Any, found: Any) -> None:
    """Find the bin that contains the entry with a given rank, counted from 1 at the highest bin.

    Sets found[0] to the bin, −1 if there are fewer entries, and found[1] to the number of entries above it.
    """
    thread = cuda.threadIdx.x
    each = BINS // cuda.blockDim.x
    own = 0
    for k in range(each):
        own += histogram[thread * each + k]
    if thread == 0:
        found[0] = -1
    _suffix_sums(own, sums)
    above = sums[thread] - own
    if above < rank and rank <= above + own:
        for k in range(each - 1, -1, -1):
            inside = histogram[thread * each + k]
            if above < rank and rank <= above + inside:
                found[0] = thread * each + k
                found[1] = above
            above += inside
    cuda.syncthreads()


@_inlined
def _bound(word: Any, part: Any) -> Any:
    return (word >> 16 * part) & 0x7FFF


def count_bounds(bounds: Any, count: Any, low: Any, min_targets: Any, histogram: Any, state: Any) -> None:
    """Find the highest bound that at least `min_targets` targets reach, and store it in LOWER.

    Args:
        bounds: int64 [≥ count / 4], four int16 ≥ 0 in each.
        count: int64, number of targets.
        low: int64, 0 … BINS − 1, lowest bound to consider; all bounds from BINS − 1 on count as equal.
        min_targets: int64 ≥ 1; if fewer targets reach `low`, LOWER becomes `low`.
        histogram: int32 [BINS], zero between calls.
        state: int32 [STATE_SIZE], FINISHED is 0 between calls.
    """
    local = cuda.shared.array(BINS, int32)
    sums = cuda.shared.array(THREADS, int32)
    found = cuda.shared.array(2, int32)
    finished = cuda.shared.array(1, int32)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    for k in range(thread, BINS, threads):
        local[k] = 0
    cuda.syncthreads()
    for w in range(cuda.grid(1), (count + _PACKED - 1) // _PACKED, cuda.gridsize(1)):
        word = bounds[w]
        for part in range(_PACKED):
            bound = _bound(word, part)
            if bound >= low and _PACKED * w + part < count:
                cuda.atomic.add(local, min(bound, BINS - 1), 1)
    cuda.syncthreads()
    for k in range(thread, BINS, threads):
        if local[k] > 0:
            cuda.atomic.add(histogram, k, local[k])
    cuda.threadfence()
    cuda.syncthreads()
    if thread == 0:
        finished[0] = cuda.atomic.add(state, FINISHED, 1)
    cuda.syncthreads()
    if finished[0] < cuda.gridDim.x - 1:
        return
    # the last block to finish sees the counts of all blocks
    for k in range(thread, BINS, threads):
        local[k] = histogram[k]
        histogram[k] = 0
    cuda.syncthreads()
    _find_bin(local, min_targets, sums, found)
    if thread == 0:
        state[LOWER] = max(low, found[0])
        state[UPPER] = _ABOVE_ALL
        state[FINISHED] = 0


def list_bounds(bounds: Any, count: Any, state: Any, listed: Any) -> None:
    """List the targets with LOWER ≤ bound < UPPER.

    Args:
        bounds: see `count_bounds`.
        count: see `count_bounds`.
        state: int32, contains LOWER and UPPER.
        listed: int32 [≥ 1 + count], an empty list.
    """
    totals = cuda.shared.array(2, int32)
    lower = state[LOWER]
    upper = state[UPPER]
    if lower >= upper:
        return
    if cuda.threadIdx.x == 0:
        totals[0] = 0
    cuda.syncthreads()
    words = (count + _PACKED - 1) // _PACKED
    own = 0
    for w in range(cuda.grid(1), words, cuda.gridsize(1)):
        word = bounds[w]
        for part in range(_PACKED):
            bound = _bound(word, part)
            if lower <= bound and bound < upper and _PACKED * w + part < count:
                own += 1
    slot = 1
    if own > 0:
        slot += cuda.atomic.add(totals, 0, own)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0 and totals[0] > 0:
        totals[1] = cuda.atomic.add(listed, 0, totals[0])
    cuda.syncthreads()
    if own == 0:
        return
    slot += totals[1]
    for w in range(cuda.grid(1), words, cuda.gridsize(1)):
        word = bounds[w]
        for part in range(_PACKED):
            bound = _bound(word, part)
            if lower <= bound and bound < upper and _PACKED * w + part < count:
                listed[slot] = _PACKED * w + part
                slot += 1


@_inlined
def _key(score: Any, target: Any, target_bits: Any) -> Any:
    last = (np.int64(1) << target_bits) - 1
    return (np.int64(score) << target_bits) + last - target


@_inlined
def _entry(lists: Any, first: Any, row: Any, k: Any) -> Any:
    """Return the database index and score of the k-th entry of both lists and the row."""
    size = lists[FIRST, 0]
    if k < size:
        return first + lists[FIRST, 1 + k], lists[FIRST_SCORES, k]
    k -= size
    size = lists[SECOND, 0]
    if k < size:
        return first + lists[SECOND, 1 + k], lists[SECOND_SCORES, k]
    k -= size
    return np.int64(row[ROW_TARGETS + k]), row[ROW_TARGETS + ((row.size - ROW_TARGETS) >> 1) + k]


@_inlined
def _least_key(
    lists: Any,
    first: Any,
    row: Any,
    min_score: Any,
    top_k: Any,
    target_bits: Any,
    low_bit: Any,
    histogram: Any,
    sums: Any,
    found: Any,
) -> Any:
    """Return the k-th largest key of all entries, or the lowest key of score `min_score` if there are fewer.

    A radix select: determines the digits of the key one by one, from the highest down to bit `low_bit`.
    """
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    total = lists[FIRST, 0] + lists[SECOND, 0] + row[ROW_COUNT]
    if thread == 0:
        found[0] = 0
    cuda.syncthreads()
    highest = np.int32(0)
    for k in range(thread, total, threads):
        _, score = _entry(lists, first, row, k)
        highest = max(highest, score)
    cuda.atomic.max(found, 0, highest)
    cuda.syncthreads()
    end = (np.int64(found[0]) + 1) << target_bits
    cuda.syncthreads()
    shift = 0
    while end >> shift > BINS:
        shift += DIGIT
    prefix = np.int64(0)
    rank = top_k
    while True:
        for k in range(thread, BINS, threads):
            histogram[k] = 0
        cuda.syncthreads()
        for k in range(thread, total, threads):
            target, score = _entry(lists, first, row, k)
            key = _key(score, target, target_bits)
            if score >= min_score and key >> (shift + DIGIT) == prefix:
                cuda.atomic.add(histogram, (key >> shift) & (BINS - 1), 1)
        cuda.syncthreads()
        _find_bin(histogram, rank, sums, found)
        if found[0] < 0:
            return np.int64(min_score) << target_bits
        prefix = (prefix << DIGIT) + found[0]
        rank -= found[1]
        if shift <= low_bit:
            return prefix << shift
        shift -= DIGIT


def narrow(
    lists: Any, first: Any, row: Any, min_score: Any, top_k: Any, target_bits: Any, state: Any
) -> None:
    """Set LOWER and UPPER to select the unlisted targets whose bound reaches the k-th best exact score.

    Launched with one block.

    Args:
        lists: int32 [LIST_ROWS, n].
        first: int64, database index of the chunk's first target.
        row: int32 [≥ ROW_TARGETS], targets selected from other chunks.
        min_score: int64, 0 … 2³¹, minimum score of a selected target.
        top_k: int64 ≥ 1, number of targets to select (k).
        target_bits: int64, 22 or 31, bits of a database index in a key; 22 is a multiple of the digit size,
            so that scores start at a digit boundary.
        state: int32 [STATE_SIZE].
    """
    histogram = cuda.shared.array(BINS, int32)
    sums = cuda.shared.array(THREADS, int32)
    found = cuda.shared.array(2, int32)
    least = _least_key(lists, first, row, min_score, top_k, target_bits, target_bits, histogram, sums, found)
    if cuda.threadIdx.x == 0:
        state[UPPER] = state[LOWER]
        state[LOWER] = min(least >> target_bits, _ABOVE_ALL)


def choose(
    lists: Any, first: Any, row: Any, min_score: Any, top_k: Any, target_bits: Any, output_row: Any
) -> None:
    """Write the k best entries of both lists and a row to another row, and empty the lists; one block.

    Args:
        lists: see `narrow`.
        first: see `narrow`.
        row: see `narrow`.
        min_score: see `narrow`.
        top_k: see `narrow`.
        target_bits: see `narrow`.
        output_row: int32 [ROW_TARGETS + 2 · top_k], written. Its LOWER includes unlisted targets with the
            k-th best score itself, as they may come earlier in the database.
    """
    histogram = cuda.shared.array(BINS, int32)
    sums = cuda.shared.array(THREADS, int32)
    found = cuda.shared.array(2, int32)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    least = _least_key(lists, first, row, min_score, top_k, target_bits, 0, histogram, sums, found)
    total = lists[FIRST, 0] + lists[SECOND, 0] + row[ROW_COUNT]
    cuda.syncthreads()
    if thread == 0:
        found[0] = 0
    cuda.syncthreads()
    for k in range(thread, total, threads):
        target, score = _entry(lists, first, row, k)
        if _key(score, target, target_bits) >= least:
            slot = ROW_TARGETS + cuda.atomic.add(found, 0, 1)
            output_row[slot] = target
            output_row[slot + top_k] = score
    cuda.syncthreads()
    if thread == 0:
        output_row[ROW_COUNT] = found[0]
        # UNBOUNDED is the highest bound; it must stay within LOWER … UPPER
        output_row[LOWER] = min(least >> target_bits, _UNBOUNDED)
        output_row[UPPER] = _ABOVE_ALL
        lists[FIRST, 0] = 0
        lists[SECOND, 0] = 0
