"""Kernels that choose the best scores: a histogram, the score at the last place, and what passes, in order.

Nothing depends on the order in which threads run: counts are sums, and each block keeps its place among the
scores, so the chosen ones come out by index.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, int32, types

from cuda.alignment.compiled import compiled_kernel

BINS = 4096
THREADS = 256
"""Most threads of a block."""
RUN = 4
"""Neighbouring scores that a thread looks at together."""


def count_scores(scores, low, shift, histogram):  # type: ignore[no-untyped-def]
    """Add scores ≥ low to the bin of (score − low) >> shift, those beyond the last bin to the last.

    Args:
        scores: int16 or int32 [n].
        low, shift: int64.
        histogram: int32 [bins ≤ BINS].
    """
    bins = histogram.shape[0]
    local = cuda.shared.array(BINS, int32)
    for k in range(cuda.threadIdx.x, bins, cuda.blockDim.x):
        local[k] = 0
    cuda.syncthreads()
    for k in range(cuda.grid(1), scores.shape[0], cuda.gridsize(1)):
        score = np.int64(scores[k])
        if score >= low:
            cuda.atomic.add(local, min((score - low) >> shift, bins - 1), 1)
    cuda.syncthreads()
    for k in range(cuda.threadIdx.x, bins, cuda.blockDim.x):
        if local[k] > 0:
            cuda.atomic.add(histogram, k, local[k])


def find_limit(histogram, low, most, state):  # type: ignore[no-untyped-def]
    """Find the score at the last place, for bins of one score each; one block. Clears the histogram.

    Args:
        histogram: int32 [bins], a multiple of the threads.
        low, most: int64.
        state: int64 [3], to be filled: the limit, below which nothing passes; how many above it pass; how
            many of those at it pass.
    """
    sums = cuda.shared.array(THREADS, int32)
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    each = histogram.shape[0] // threads
    own = 0
    for k in range(each):
        own += histogram[thread * each + k]
    sums[thread] = own
    cuda.syncthreads()
    # sums[t] becomes the number of scores in the bins of thread t and all after it
    step = 1
    while step < threads:
        value = sums[thread]
        if thread + step < threads:
            value += sums[thread + step]
        cuda.syncthreads()
        sums[thread] = value
        cuda.syncthreads()
        step *= 2
    if thread == 0 and sums[0] <= most:
        state[0] = low
        state[1] = sums[0] - histogram[0]
        state[2] = histogram[0]
    above = sums[thread] - own
    if sums[thread] > most and above <= most:
        for k in range(each - 1, -1, -1):
            inside = histogram[thread * each + k]
            if above <= most and above + inside > most:
                state[0] = low + thread * each + k
                state[1] = above
                state[2] = most - above
            above += inside
    cuda.syncthreads()
    for k in range(each):
        histogram[thread * each + k] = 0


def count_passing(scores, state, counts):  # type: ignore[no-untyped-def]
    """Count the scores above and at the limit in each block's part.

    Args:
        scores: [n].
        state: from `find_limit`.
        counts: int32 [blocks, 2], to be filled.
    """
    totals = cuda.shared.array(2, int32)
    if cuda.threadIdx.x < 2:
        totals[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    part = -(-scores.shape[0] // cuda.gridDim.x)
    first = part * cuda.blockIdx.x
    above = 0
    at = 0
    for k in range(first + cuda.threadIdx.x, min(first + part, scores.shape[0]), cuda.blockDim.x):
        if scores[k] > state[0]:
            above += 1
        elif scores[k] == state[0]:
            at += 1
    if above > 0:
        cuda.atomic.add(totals, 0, above)
    if at > 0:
        cuda.atomic.add(totals, 1, at)
    cuda.syncthreads()
    if cuda.threadIdx.x < 2:
        counts[cuda.blockIdx.x, cuda.threadIdx.x] = totals[cuda.threadIdx.x]


def write_passing(scores, state, counts, chosen):  # type: ignore[no-untyped-def]
    """Write index and score of what passes, by index; of those at the limit the first ones.

    Args:
        scores: [n].
        state, counts: from the kernels before, with as many blocks.
        chosen: int64 [most, 2], to be filled: index, score.
    """
    before = cuda.shared.array(2, int32)
    sums = cuda.shared.array((THREADS, 2), int32)
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    if thread < 2:
        before[thread] = 0
    cuda.syncthreads()
    for k in range(thread, cuda.blockIdx.x, threads):
        cuda.atomic.add(before, 0, counts[k, 0])
        cuda.atomic.add(before, 1, counts[k, 1])
    part = -(-scores.shape[0] // cuda.gridDim.x)
    first = part * cuda.blockIdx.x
    end = min(first + part, scores.shape[0])
    while first < end:
        above = 0
        at = 0
        for r in range(RUN):
            k = first + thread * RUN + r
            if k < end:
                if scores[k] > state[0]:
                    above += 1
                elif scores[k] == state[0]:
                    at += 1
        sums[thread, 0] = above
        sums[thread, 1] = at
        cuda.syncthreads()
        step = 1
        while step < threads:
            total_above = sums[thread, 0]
            total_at = sums[thread, 1]
            if thread >= step:
                total_above += sums[thread - step, 0]
                total_at += sums[thread - step, 1]
            cuda.syncthreads()
            sums[thread, 0] = total_above
            sums[thread, 1] = total_at
            cuda.syncthreads()
            step *= 2
        place_above = before[0] + sums[thread, 0] - above
        place_at = before[1] + sums[thread, 1] - at
        for r in range(RUN):
            k = first + thread * RUN + r
            if k < end and scores[k] >= state[0]:
                if scores[k] > state[0] or place_at < state[2]:
                    place = place_above + min(place_at, state[2])
                    # more would pass only where the histogram ends at the limit, and then all is done again
                    if place < chosen.shape[0]:
                        chosen[place, 0] = k
                        chosen[place, 1] = scores[k]
                if scores[k] > state[0]:
                    place_above += 1
                else:
                    place_at += 1
        cuda.syncthreads()
        if thread == threads - 1:
            before[0] += sums[thread, 0]
            before[1] += sums[thread, 1]
        cuda.syncthreads()
        first += threads * RUN


@dataclass(frozen=True)
class Kernels:
    """The kernels for one type of score, compiled for the current GPU."""

    count: Any
    limit: Any
    passing: Any
    write: Any


@cache
def kernels_for(scores: np.dtype[Any]) -> Kernels:
    """Compile the kernels, or find them in the cache beside this module.

    Args:
        scores: int16 or int32.
    """
    one, state = types.Array(getattr(types, scores.name), 1, "C"), types.Array(types.int64, 1, "C")
    counts, chosen = types.Array(types.int32, 2, "C"), types.Array(types.int64, 2, "C")
    histogram, bounds = types.Array(types.int32, 1, "C"), (THREADS, 1)
    return Kernels(
        compiled_kernel(count_scores, types.void(one, types.int64, types.int64, histogram), bounds),
        compiled_kernel(find_limit, types.void(histogram, types.int64, types.int64, state), bounds),
        compiled_kernel(count_passing, types.void(one, state, counts), bounds),
        compiled_kernel(write_passing, types.void(one, state, counts, chosen), bounds),
    )
