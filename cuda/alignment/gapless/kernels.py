"""The hand-written gapless kernels; signatures.py has their signatures."""

from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gapless.generator import UNBOUNDED
from cuda.alignment.gapless.layout import X


def gapless_wide(
    profile: Any,
    query_length: Any,
    residues: Any,
    offsets: Any,
    lengths: Any,
    score_all: Any,
    by_list: Any,
    listed: Any,
    work: Any,
    flagged: Any,
    scores: Any,
) -> None:
    """Score targets in 32 bits, without limits on scores or query length; one block per target at a time.

    Each thread computes whole diagonals, which takes longer per cell than the packed kernels.

    Args:
        profile: int32 [32 · query_length], letter by letter.
        query_length: int32.
        residues: uint8 [bytes].
        offsets: int64 [n].
        lengths: int32 [n].
        score_all: int32, 1 to score all entries, 0 to score the flagged ones.
        by_list: int32, 1 if entries are positions in `listed`, 0 if they are target indices.
        listed: int32 [n + 1], the number of listed targets, then their indices.
        work: int32 [2], zero between calls.
        flagged: int32 [n + 1], the number of flagged entries, then the entries; emptied on return.
        scores: int32 [n], by entry.
    """
    count = flagged[0]
    if score_all:
        count = listed[0] if by_list else lengths.size
    for k in range(cuda.blockIdx.x, count, cuda.gridDim.x):
        entry = k if score_all else flagged[1 + k]
        target = listed[1 + entry] if by_list else entry
        length = lengths[target]
        start = offsets[target]
        if cuda.threadIdx.x == 0:
            scores[entry] = 0
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
        cuda.atomic.max(scores, entry, best)
    cuda.syncthreads()
    # when the last block gets here, all blocks have read the number of flagged entries
    if cuda.threadIdx.x == 0 and cuda.atomic.add(work, 1, 1) == cuda.gridDim.x - 1:
        work[1] = 0
        flagged[0] = 0


def list_stretches(listed: Any, lengths: Any, stretch: Any, stretches: Any, scores: Any) -> None:
    """Cut listed targets into stretches, so that many groups of lanes share a long target.

    An ungapped alignment is no longer than the query. A group that starts one query length before its stretch
    therefore sees every alignment that ends in the stretch completely.

    Args:
        listed: int32 [n + 1], the number of listed targets, then their indices.
        lengths: int32 [n].
        stretch: int32, residues per stretch, a multiple of 4.
        stretches: int32 [1 + 2 · capacity], their number (0 before the call), then position in the list and
            first residue of each, in no particular order. The capacity must be at least one per target plus
            one per `stretch` residues.
        scores: int32 [n], by position in the list; set to 0.
    """
    for position in range(cuda.grid(1), listed[0], cuda.gridsize(1)):
        length = lengths[listed[1 + position]]
        scores[position] = 0
        count = (length + stretch - 1) // stretch
        first = cuda.atomic.add(stretches, 0, count)
        for k in range(count):
            stretches[1 + 2 * (first + k)] = position
            stretches[2 + 2 * (first + k)] = k * stretch


def fill_unbounded(bounds: Any) -> None:
    """Set all bounds, int16 [n], to UNBOUNDED."""
    for target in range(cuda.grid(1), bounds.size, cuda.gridsize(1)):
        bounds[target] = UNBOUNDED
