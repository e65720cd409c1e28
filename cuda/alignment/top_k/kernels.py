"""Kernels that select the k best targets of each query of a batch by exact score, starting from upper bounds.

    count_bounds, list_bounds   list the targets with the highest bounds
    narrow, list_bounds         list the other targets that may still be among the k best, judging by the
                                exact scores of the first ones
    choose                      select the k best of all listed targets, whose exact scores are now known

The queries of a batch are processed by one launch, each by its own blocks. Their lists are described in
gapless/lists.py. Each query has a table `longest` with the length of the longest target that may be selected,
by score: targets whose bounds are too low for their lengths are not listed, and those whose exact scores are
too low get the score _TOO_LONG.

A row holds the targets selected from some chunks of a database. For a further chunk, `list_bounds` alone
lists the targets that may still be among the k best, and `choose` merges them with the row into a new row.

Threads write lists and rows in arbitrary order; results depend only on the set of entries. Entries are ranked
by unique keys: the score, then the database index counted from the end, so that among equal scores the first
target has the largest key.
"""

from typing import Any

import numpy as np
from numba import cuda, int32

from cuda.alignment.gapless.lists import FINISHED, LISTED, LOWER, SCORED, STRETCHES, UPPER
from cuda.alignment.top_k.layout import BINS, DIGIT, ROW_COUNT, ROW_TARGETS, THREADS

_PACKED = 4  # bounds per word
_ABOVE_ALL = 2**15
_UNBOUNDED = _ABOVE_ALL - 1
_TOO_LONG = -1

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


@_inlined
def _is_short(score: Any, length: Any, longest: Any, query: Any) -> Any:
    """Return whether a target of a score, ≥ 0, is not too long to be selected."""
    return length <= longest[query, min(score, longest.shape[1] - 1)]


@_inlined
def _is_listed(
    bound: Any, lower: Any, upper: Any, target: Any, count: Any, lengths: Any, longest: Any, query: Any
) -> Any:
    within = lower <= bound and bound < upper and target < count
    return within and _is_short(bound, lengths[target], longest, query)


@_inlined
def _drop_long(targets: Any, scores: Any, listed: Any, lengths: Any, longest: Any, query: Any) -> None:
    """Set the scores of targets that are too long for them to _TOO_LONG; called by all threads of a block."""
    for k in range(cuda.threadIdx.x, listed, cuda.blockDim.x):
        score = scores[query, k]
        if score >= 0 and not _is_short(score, lengths[targets[query, k]], longest, query):
            scores[query, k] = _TOO_LONG
    cuda.syncthreads()


@_inlined
def _is_last_block(state: Any, query: Any, blocks: Any, shared: Any) -> Any:
    """Return whether this is the last of a query's blocks to get here; it then sees what the others wrote."""
    cuda.threadfence()
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        shared[0] = cuda.atomic.add(state, (query, FINISHED), 1)
        if shared[0] == blocks - 1:
            state[query, FINISHED] = 0
    cuda.syncthreads()
    cuda.threadfence()
    return shared[0] == blocks - 1


def count_bounds(
    bounds: Any, count: Any, low: Any, min_targets: Any, histogram: Any, state: Any, blocks: Any
) -> None:
    """Find the highest bound that at least `min_targets` targets reach, and store it in LOWER.

    Args:
        bounds: int64 [queries, ≥ count / 4], four int16 ≥ 0 in each.
        count: int64, number of targets.
        low: int64, 0 … BINS − 1, lowest bound to consider; all bounds from BINS − 1 on count as equal.
        min_targets: int64 ≥ 1; if fewer targets reach `low`, LOWER becomes `low`.
        histogram: int32 [queries, BINS], zero between calls.
        state: see TargetLists.
        blocks: int64, blocks per query.
    """
    local = cuda.shared.array(BINS, int32)
    sums = cuda.shared.array(THREADS, int32)
    found = cuda.shared.array(2, int32)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    query = cuda.blockIdx.x // blocks
    block = cuda.blockIdx.x - query * blocks
    for k in range(thread, BINS, threads):
        local[k] = 0
    cuda.syncthreads()
    for w in range(block * threads + thread, (count + _PACKED - 1) // _PACKED, blocks * threads):
        word = bounds[query, w]
        for part in range(_PACKED):
            bound = _bound(word, part)
            if bound >= low and _PACKED * w + part < count:
                cuda.atomic.add(local, min(bound, BINS - 1), 1)
    cuda.syncthreads()
    for k in range(thread, BINS, threads):
        if local[k] > 0:
            cuda.atomic.add(histogram, (query, k), local[k])
    if not _is_last_block(state, query, blocks, found):
        return
    for k in range(thread, BINS, threads):
        local[k] = histogram[query, k]
        histogram[query, k] = 0
    cuda.syncthreads()
    _find_bin(local, min_targets, sums, found)
    if thread == 0:
        state[query, LOWER] = max(low, found[0])
        state[query, UPPER] = _ABOVE_ALL


def list_bounds(
    bounds: Any,
    count: Any,
    limits: Any,
    first_row: Any,
    lengths: Any,
    longest: Any,
    stretch: Any,
    targets: Any,
    scores: Any,
    ends: Any,
    state: Any,
    blocks: Any,
) -> None:
    """Append the targets with LOWER ≤ bound < UPPER that are not too long, and cut them into stretches.

    Args:
        bounds: see `count_bounds`.
        count: see `count_bounds`.
        limits: int32 [≥ first_row + queries, ≥ 2], contains LOWER and UPPER of each query.
        first_row: int64, row of the first query in `limits`.
        lengths: int32 [count], residues of the targets.
        longest: int32 [queries, ≥ 1], see above; the last length is that of all higher bounds, too.
        stretch: int64, residues per stretch.
        targets: see TargetLists.
        scores: see TargetLists.
        ends: see TargetLists.
        state: see TargetLists; all listed targets have been scored.
        blocks: int64, blocks per query.
    """
    totals = cuda.shared.array(2, int32)
    sums = cuda.shared.array(THREADS, int32)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    query = cuda.blockIdx.x // blocks
    block = cuda.blockIdx.x - query * blocks
    lower = limits[first_row + query, LOWER]
    upper = limits[first_row + query, UPPER]
    if lower >= upper:
        return
    if thread == 0:
        totals[0] = 0
    cuda.syncthreads()
    words = (count + _PACKED - 1) // _PACKED
    own = 0
    for w in range(block * threads + thread, words, blocks * threads):
        word = bounds[query, w]
        for part in range(_PACKED):
            target = _PACKED * w + part
            if _is_listed(_bound(word, part), lower, upper, target, count, lengths, longest, query):
                own += 1
    slot = 0
    if own > 0:
        slot = cuda.atomic.add(totals, 0, own)
    cuda.syncthreads()
    if thread == 0 and totals[0] > 0:
        totals[1] = cuda.atomic.add(state, (query, LISTED), totals[0])
    cuda.syncthreads()
    if own > 0:
        slot += totals[1]
        for w in range(block * threads + thread, words, blocks * threads):
            word = bounds[query, w]
            for part in range(_PACKED):
                target = _PACKED * w + part
                if _is_listed(_bound(word, part), lower, upper, target, count, lengths, longest, query):
                    targets[query, slot] = target
                    slot += 1
    if not _is_last_block(state, query, blocks, totals):
        return
    # each thread cuts consecutive targets
    begin, end = state[query, SCORED], state[query, LISTED]
    each = (end - begin + threads - 1) // threads
    first = min(begin + thread * each, end)
    last = min(first + each, end)
    own = 0
    for k in range(first, last):
        own += (lengths[targets[query, k]] + stretch - 1) // stretch
    _suffix_sums(own, sums)
    reached = sums[0] - sums[thread]
    for k in range(first, last):
        reached += (lengths[targets[query, k]] + stretch - 1) // stretch
        ends[query, k] = reached
        scores[query, k] = 0
    if thread == 0:
        state[query, STRETCHES] = sums[0]


@_inlined
def _key(score: Any, target: Any, target_bits: Any) -> Any:
    last = (np.int64(1) << target_bits) - 1
    return (np.int64(score) << target_bits) + last - target


@_inlined
def _entry(
    targets: Any, scores: Any, listed: Any, query: Any, first: Any, rows: Any, row: Any, k: Any
) -> Any:
    """Return the database index and score of the k-th entry of a list and a row."""
    if k < listed:
        return first + targets[query, k], scores[query, k]
    k -= listed
    slots = (rows.shape[1] - ROW_TARGETS) >> 1
    return np.int64(rows[row, ROW_TARGETS + k]), rows[row, ROW_TARGETS + slots + k]


@_inlined
def _least_key(
    targets: Any,
    scores: Any,
    listed: Any,
    query: Any,
    first: Any,
    rows: Any,
    row: Any,
    min_score: Any,
    top_k: Any,
    target_bits: Any,
    low_bit: Any,
) -> Any:
    """Return the k-th largest key of all entries, or the lowest key of score `min_score` if there are fewer.

    A radix select: determines the digits of the key one by one, from the highest down to bit `low_bit`.
    """
    histogram = cuda.shared.array(BINS, int32)
    sums = cuda.shared.array(THREADS, int32)
    found = cuda.shared.array(2, int32)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    total = listed + rows[row, ROW_COUNT]
    if thread == 0:
        found[0] = 0
    cuda.syncthreads()
    highest = np.int32(0)
    for k in range(thread, total, threads):
        _, score = _entry(targets, scores, listed, query, first, rows, row, k)
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
            target, score = _entry(targets, scores, listed, query, first, rows, row, k)
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
    targets: Any,
    scores: Any,
    lengths: Any,
    longest: Any,
    first: Any,
    rows: Any,
    first_row: Any,
    min_score: Any,
    top_k: Any,
    target_bits: Any,
    state: Any,
) -> None:
    """Set LOWER and UPPER to select the unlisted targets whose bound reaches the k-th best exact score.

    Launched with one block per query.

    Args:
        targets: see TargetLists.
        scores: see TargetLists; all are known, or _TOO_LONG. Those of targets that are too long are changed.
        lengths: see `list_bounds`.
        longest: see `list_bounds`.
        first: int64, database index of the chunk's first target.
        rows: int32 [≥ first_row + queries, ≥ ROW_TARGETS], targets selected from other chunks, or a single
            empty row.
        first_row: int64, row of the first query.
        min_score: int64, 0 … 2³¹, minimum score of a selected target.
        top_k: int64 ≥ 1, number of targets to select (k).
        target_bits: int64, 22 or 31, bits of a database index in a key; 22 is a multiple of the digit size,
            so that scores start at a digit boundary.
        state: see TargetLists.
    """
    query = cuda.blockIdx.x
    row = min(first_row + query, rows.shape[0] - 1)
    listed = state[query, LISTED]
    _drop_long(targets, scores, listed, lengths, longest, query)
    least = _least_key(
        targets, scores, listed, query, first, rows, row, min_score, top_k, target_bits, target_bits
    )
    if cuda.threadIdx.x == 0:
        state[query, UPPER] = state[query, LOWER]
        state[query, LOWER] = min(least >> target_bits, _ABOVE_ALL)
        state[query, SCORED] = listed
        state[query, STRETCHES] = 0


def choose(
    targets: Any,
    scores: Any,
    lengths: Any,
    longest: Any,
    first: Any,
    rows: Any,
    first_row: Any,
    min_score: Any,
    top_k: Any,
    target_bits: Any,
    state: Any,
    output_rows: Any,
) -> None:
    """Write the k best entries of each list and row to another row, and empty the lists; one block per query.

    `output_rows`, int32 [≥ first_row + queries, ROW_TARGETS + 2 · top_k], is written. LOWER includes unlisted
    targets with the k-th best score itself, as they may come earlier in the database. The other arguments are
    those of `narrow`.
    """
    chosen = cuda.shared.array(1, int32)
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    query = cuda.blockIdx.x
    row = min(first_row + query, rows.shape[0] - 1)
    output = first_row + query
    listed = state[query, LISTED]
    _drop_long(targets, scores, listed, lengths, longest, query)
    least = _least_key(targets, scores, listed, query, first, rows, row, min_score, top_k, target_bits, 0)
    total = listed + rows[row, ROW_COUNT]
    if thread == 0:
        chosen[0] = 0
    cuda.syncthreads()
    for k in range(thread, total, threads):
        target, score = _entry(targets, scores, listed, query, first, rows, row, k)
        if _key(score, target, target_bits) >= least:
            slot = ROW_TARGETS + cuda.atomic.add(chosen, 0, 1)
            output_rows[output, slot] = target
            output_rows[output, slot + top_k] = score
    cuda.syncthreads()
    if thread == 0:
        output_rows[output, ROW_COUNT] = chosen[0]
        # UNBOUNDED is the highest bound; it must stay within LOWER … UPPER
        output_rows[output, LOWER] = min(least >> target_bits, _UNBOUNDED)
        output_rows[output, UPPER] = _ABOVE_ALL
        state[query, LISTED] = 0
        state[query, SCORED] = 0
        state[query, STRETCHES] = 0
