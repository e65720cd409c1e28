"""Kernels that find the best targets by exact score, from upper bounds of the scores of all.

    count_bounds, list_bounds   over all targets: those whose bounds are the highest
    narrow, list_bounds         those too that may still belong to the best, by the exact scores of the first
    choose                      the best of all whose exact scores are known

A row holds what was found in some chunks of a database. With such a row, `list_bounds` alone lists what may
still belong to the best in another chunk, and `choose` makes a new row of both.

A list says how many and then which targets, in whatever order threads came to write them, and so does a row.
What is read from them depends on the set alone, so nothing else depends on the order of threads. Entries are
ranked by keys, no two of which are equal: the score above the place in the database counted from the last,
so that of equal scores the first target has the largest key.
"""

from typing import Any

import numpy as np
from numba import cuda, int32, types

THREADS = 1024
"""Most threads of a block."""

_DIGIT = 11
BINS = 2**_DIGIT
"""Of histograms; a multiple of the threads."""

LOWER, UPPER = range(2)
"""Places in `state` and in a row: bounds to be listed, LOWER ≤ bound < UPPER."""

FINISHED = 2
"""Place in `state`: how many blocks have finished."""

STATE = 3

FOUND, PLACES = 2, 3
"""Of a row: how many targets were found; from there on their places in the database, then, after room for as
many places as there can be, their scores. Before that, LOWER and UPPER of what may still belong to them."""

FIRST, FIRST_SCORES, SECOND, SECOND_SCORES = range(4)
"""Rows of `lists`: two lists, and by place in the list the exact scores, ≥ 0."""

LISTS = 4

_PACKED = 4  # bounds of a word
_ABOVE_ALL = 2**15
_UNBOUNDED = _ABOVE_ALL - 1

# inlined before types are inferred: to compile a function on its own, numba would ask for a GPU
_inlined = cuda.jit(device=True, inline="always")


@_inlined
def _sum_onwards(own: Any, sums: Any) -> None:
    """Make sums[t] the total of `own` over thread t and all after it, for the whole block."""
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
def _find_bin(histogram: Any, place: Any, sums: Any, found: Any) -> None:
    """Find the bin with the place-th from above, place ≥ 1, for the whole block.

    Leaves in found[0] the bin, −1 if there are not so many, and in found[1] how many are above it.
    """
    thread = cuda.threadIdx.x
    each = BINS // cuda.blockDim.x
    own = 0
    for k in range(each):
        own += histogram[thread * each + k]
    if thread == 0:
        found[0] = -1
    _sum_onwards(own, sums)
    above = sums[thread] - own
    if above < place and place <= above + own:
        for k in range(each - 1, -1, -1):
            inside = histogram[thread * each + k]
            if above < place and place <= above + inside:
                found[0] = thread * each + k
                found[1] = above
            above += inside
    cuda.syncthreads()


@_inlined
def _bound(word: Any, which: Any) -> Any:
    return (word >> 16 * which) & 0x7FFF


def count_bounds(bounds: Any, count: Any, low: Any, wanted: Any, histogram: Any, state: Any) -> None:
    """Find the highest bound that so many targets reach, to be listed from there on.

    Args:
        bounds: int64 [≥ count / 4], four int16 ≥ 0 in each.
        count: int64, targets.
        low: int64, 0 … BINS − 1, lowest bound that counts; bounds from BINS − 1 on are all one.
        wanted: int64 ≥ 1, how many targets; if there are fewer, all from `low` on are to be listed.
        histogram: int32 [BINS], zeros between calls.
        state: int32 [STATE], FINISHED 0 between calls.
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
        for which in range(_PACKED):
            bound = _bound(word, which)
            if bound >= low and _PACKED * w + which < count:
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
    # the last block has the counts of all
    for k in range(thread, BINS, threads):
        local[k] = histogram[k]
        histogram[k] = 0
    cuda.syncthreads()
    _find_bin(local, wanted, sums, found)
    if thread == 0:
        state[LOWER] = max(low, found[0])
        state[UPPER] = _ABOVE_ALL
        state[FINISHED] = 0


def list_bounds(bounds: Any, count: Any, state: Any, listed: Any) -> None:
    """List the targets with LOWER ≤ bound < UPPER.

    Args:
        bounds, count: as for `count_bounds`.
        state: int32, LOWER and UPPER in it.
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
        for which in range(_PACKED):
            bound = _bound(word, which)
            if lower <= bound and bound < upper and _PACKED * w + which < count:
                own += 1
    place = 1
    if own > 0:
        place += cuda.atomic.add(totals, 0, own)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0 and totals[0] > 0:
        totals[1] = cuda.atomic.add(listed, 0, totals[0])
    cuda.syncthreads()
    if own == 0:
        return
    place += totals[1]
    for w in range(cuda.grid(1), words, cuda.gridsize(1)):
        word = bounds[w]
        for which in range(_PACKED):
            bound = _bound(word, which)
            if lower <= bound and bound < upper and _PACKED * w + which < count:
                listed[place] = _PACKED * w + which
                place += 1


@_inlined
def _key(score: Any, place: Any, place_bits: Any) -> Any:
    last = (np.int64(1) << place_bits) - 1
    return (np.int64(score) << place_bits) + last - place


@_inlined
def _entry(lists: Any, first: Any, row: Any, k: Any) -> Any:
    """Place in the database and score of the k-th entry of both lists and of the row."""
    inside = lists[FIRST, 0]
    if k < inside:
        return first + lists[FIRST, 1 + k], lists[FIRST_SCORES, k]
    k -= inside
    inside = lists[SECOND, 0]
    if k < inside:
        return first + lists[SECOND, 1 + k], lists[SECOND_SCORES, k]
    k -= inside
    return np.int64(row[PLACES + k]), row[PLACES + ((row.size - PLACES) >> 1) + k]


@_inlined
def _least_key(
    lists: Any,
    first: Any,
    row: Any,
    smallest: Any,
    most: Any,
    place_bits: Any,
    least_shift: Any,
    histogram: Any,
    sums: Any,
    found: Any,
) -> Any:
    """The most-th largest key of all entries, or that of the smallest score if there are not so many.

    A digit of the key at a time, from the highest; done when no bits from `least_shift` on are left.
    """
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    total = lists[FIRST, 0] + lists[SECOND, 0] + row[FOUND]
    if thread == 0:
        found[0] = 0
    cuda.syncthreads()
    highest = np.int32(0)
    for k in range(thread, total, threads):
        _, score = _entry(lists, first, row, k)
        highest = max(highest, score)
    cuda.atomic.max(found, 0, highest)
    cuda.syncthreads()
    end = (np.int64(found[0]) + 1) << place_bits
    cuda.syncthreads()
    shift = 0
    while end >> shift > BINS:
        shift += _DIGIT
    prefix = np.int64(0)
    place = most
    while True:
        for k in range(thread, BINS, threads):
            histogram[k] = 0
        cuda.syncthreads()
        for k in range(thread, total, threads):
            target, score = _entry(lists, first, row, k)
            key = _key(score, target, place_bits)
            if score >= smallest and key >> (shift + _DIGIT) == prefix:
                cuda.atomic.add(histogram, (key >> shift) & (BINS - 1), 1)
        cuda.syncthreads()
        _find_bin(histogram, place, sums, found)
        if found[0] < 0:
            return np.int64(smallest) << place_bits
        prefix = (prefix << _DIGIT) + found[0]
        place -= found[1]
        if shift <= least_shift:
            return prefix << shift
        shift -= _DIGIT


def narrow(lists: Any, first: Any, row: Any, smallest: Any, most: Any, place_bits: Any, state: Any) -> None:
    """Turn to the targets not listed yet whose bound reaches the most-th best exact score; one block.

    Args:
        lists: int32 [LISTS, n].
        first: int64, place in the database of the chunk's first target.
        row: int32 [≥ PLACES], what is known from elsewhere.
        smallest: int64, 0 … 2³¹, score that is needed.
        most: int64 ≥ 1.
        place_bits: int64, 22 or 31, bits of places in the database; as a multiple of digits they make scores
            whole digits, too.
        state: int32 [STATE].
    """
    histogram = cuda.shared.array(BINS, int32)
    sums = cuda.shared.array(THREADS, int32)
    found = cuda.shared.array(2, int32)
    least = _least_key(lists, first, row, smallest, most, place_bits, place_bits, histogram, sums, found)
    if cuda.threadIdx.x == 0:
        state[UPPER] = state[LOWER]
        state[LOWER] = min(least >> place_bits, _ABOVE_ALL)


def choose(lists: Any, first: Any, row: Any, smallest: Any, most: Any, place_bits: Any, chosen: Any) -> None:
    """Write the best of both lists and a row to another row, and empty the lists; one block.

    Args:
        lists, first, row, smallest, most, place_bits: as for `narrow`.
        chosen: int32 [PLACES + 2 · most], to be filled. Of a target with an equal score nothing is assumed:
            it may come earlier in the database.
    """
    histogram = cuda.shared.array(BINS, int32)
    sums = cuda.shared.array(THREADS, int32)
    found = cuda.shared.array(2, int32)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    least = _least_key(lists, first, row, smallest, most, place_bits, 0, histogram, sums, found)
    total = lists[FIRST, 0] + lists[SECOND, 0] + row[FOUND]
    cuda.syncthreads()
    if thread == 0:
        found[0] = 0
    cuda.syncthreads()
    for k in range(thread, total, threads):
        target, score = _entry(lists, first, row, k)
        if _key(score, target, place_bits) >= least:
            place = PLACES + cuda.atomic.add(found, 0, 1)
            chosen[place] = target
            chosen[place + most] = score
    cuda.syncthreads()
    if thread == 0:
        chosen[FOUND] = found[0]
        # no bound is higher than that of which nothing is known
        chosen[LOWER] = min(least >> place_bits, _UNBOUNDED)
        chosen[UPPER] = _ABOVE_ALL
        lists[FIRST, 0] = 0
        lists[SECOND, 0] = 0


_NUMBER, _LIST, _LISTS, _WORDS = types.int64, types.int32[::1], types.int32[:, ::1], types.int64[::1]
_ENTRIES = _LISTS, _NUMBER, _LIST, _NUMBER, _NUMBER, _NUMBER
SIGNATURES = {
    count_bounds: types.void(_WORDS, _NUMBER, _NUMBER, _NUMBER, _LIST, _LIST),
    list_bounds: types.void(_WORDS, _NUMBER, _LIST, _LIST),
    narrow: types.void(*_ENTRIES, _LIST),
    choose: types.void(*_ENTRIES, _LIST),
}
"""Of the kernels, all for blocks of up to THREADS."""
