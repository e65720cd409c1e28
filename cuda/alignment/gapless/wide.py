"""The gapless filter in 32 bits: for targets whose score 16 bits do not hold, and for any query at all.

A thread walks a whole diagonal by itself: slower per cell than the packed kernel, but there is no limit.
"""

from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gapless.layout import X

THREADS = 128


def gapless_wide(
    profile: Any,
    query_length: Any,
    residues: Any,
    offsets: Any,
    lengths: Any,
    every: Any,
    by_list: Any,
    listed: Any,
    work: Any,
    flagged: Any,
    scores: Any,
) -> None:
    """Score targets; one block for each, taking turns.

    Args:
        profile: int32 [32 · query_length], letter by letter.
        query_length: int32.
        residues: uint8 [bytes].
        offsets: int64 [n].
        lengths: int32 [n].
        every: int32, 1 to score all places, 0 to score those flagged.
        by_list: int32, 1 if places are those of a list, 0 if they are targets.
        listed: int32 [n + 1], how many targets are listed, and which.
        work: int32 [2], zeros between calls.
        flagged: int32 [n + 1], how many places are flagged, and which; none is on return.
        scores: int32 [n], by place.
    """
    count = flagged[0]
    if every:
        count = listed[0] if by_list else lengths.size
    for k in range(cuda.blockIdx.x, count, cuda.gridDim.x):
        place = k if every else flagged[1 + k]
        target = listed[1 + place] if by_list else place
        length = lengths[target]
        start = offsets[target]
        if cuda.threadIdx.x == 0:
            scores[place] = 0
        cuda.syncthreads()
        best = np.int32(0)
        for diagonal in range(cuda.threadIdx.x, length + query_length - 1, cuda.blockDim.x):
            shift = diagonal - (length - 1)  # query position − target position
            first = max(0, -shift)
            end = min(length, query_length - shift)
            score = np.int32(0)
            for j in range(first, end):
                code = residues[start + j]
                letter = X if code & 32 else code & 31
                score = np.int32(max(score + profile[letter * query_length + j + shift], 0))
                best = max(best, score)
        cuda.atomic.max(scores, place, best)
    cuda.syncthreads()
    # all blocks have read the number by the time the last one gets here
    if cuda.threadIdx.x == 0 and cuda.atomic.add(work, 1, 1) == cuda.gridDim.x - 1:
        work[1] = 0
        flagged[0] = 0
