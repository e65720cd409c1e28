"""The hand-written gapless kernels; signatures.py has their signatures."""

from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.gapless.generator import UNBOUNDED
from cuda.alignment.gapless.layout import X
from cuda.alignment.gapless.lists import LISTED, MEMBER_SIZE, SCORED

# inlined before type inference: numba needs a GPU to compile a device function separately
_inlined = cuda.jit(device=True, inline="always")


@_inlined
def _best_of_diagonals(
    profile: Any, first: Any, query_length: Any, residues: Any, start: Any, length: Any
) -> Any:
    """Return the best score of the diagonals of one thread of a block, which together cover all diagonals."""
    best = np.int32(0)
    for diagonal in range(cuda.threadIdx.x, length + query_length - 1, cuda.blockDim.x):
        shift = diagonal - (length - 1)  # query position − target position
        score = np.int32(0)
        for j in range(max(0, -shift), min(length, query_length - shift)):
            code = residues[start + j]
            letter = X if code & 32 else code & 31
            score = np.int32(max(score + profile[first + letter * query_length + j + shift], 0))
            best = max(best, score)
    return best


def rescore_listed(
    profiles: Any,
    residues: Any,
    offsets: Any,
    lengths: Any,
    targets: Any,
    scores: Any,
    state: Any,
    blocks: Any,
) -> None:
    """Score unscored targets of lists in 32 bits, if their 16-bit scores reach a limit.

    Each thread computes whole diagonals, which takes longer per cell than the packed kernels.

    Args:
        profiles: int32, MEMBER_SIZE numbers for each query that this applies to: its row in the lists, the
            index of its profile in this array, its length, and the limit; then the profiles, int32
            [LETTERS · length] each, letter by letter.
        residues: uint8 [bytes].
        offsets: int64 [n].
        lengths: int32 [n].
        targets: see TargetLists.
        scores: see TargetLists; those that reach the limit are replaced.
        state: see TargetLists.
        blocks: int32, blocks per query.
    """
    member = cuda.blockIdx.x // blocks
    query = profiles[MEMBER_SIZE * member]
    first = profiles[MEMBER_SIZE * member + 1]
    query_length = profiles[MEMBER_SIZE * member + 2]
    limit = profiles[MEMBER_SIZE * member + 3]
    begin = state[query, SCORED] + cuda.blockIdx.x - member * blocks
    for k in range(begin, state[query, LISTED], blocks):
        score = scores[query, k]
        # all threads have read it
        cuda.syncthreads()
        if score >= limit:
            if cuda.threadIdx.x == 0:
                scores[query, k] = 0
            cuda.syncthreads()
            target = targets[query, k]
            start, length = offsets[target], lengths[target]
            best = _best_of_diagonals(profiles, first, query_length, residues, start, length)
            cuda.atomic.max(scores, (query, k), best)


def fill_unbounded(bounds: Any) -> None:
    """Set all bounds, int16 [n], to UNBOUNDED."""
    for target in range(cuda.grid(1), bounds.size, cuda.gridsize(1)):
        bounds[target] = UNBOUNDED
