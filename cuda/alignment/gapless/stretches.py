"""Listed targets cut into stretches that groups of lanes take, so that a long target is the work of many.

A gapless alignment is no longer than the query, so a group that starts a query before its stretch sees every
alignment that ends in the stretch whole.
"""

from typing import Any

from numba import cuda

THREADS = 128
LEAST_STRETCH = 256
"""Residues of a target that a group takes at a time; as many as the query has if those are more."""


def list_stretches(listed: Any, lengths: Any, stretch: Any, stretches: Any, scores: Any) -> None:
    """Write down the stretches of listed targets, in no order.

    Args:
        listed: int32 [n + 1], how many, and which.
        lengths: int32 [n].
        stretch: int32, residues of a stretch, a multiple of 4.
        stretches: int32 [1 + 2 · room], how many there are, 0 before; then the place in the list and the
            first residue of each. Room for one for each target and for every `stretch` residues is enough.
        scores: int32 [n], by place in the list; set to 0.
    """
    for place in range(cuda.grid(1), listed[0], cuda.gridsize(1)):
        length = lengths[listed[1 + place]]
        scores[place] = 0
        count = (length + stretch - 1) // stretch
        first = cuda.atomic.add(stretches, 0, count)
        for k in range(count):
            stretches[1 + 2 * (first + k)] = place
            stretches[2 + 2 * (first + k)] = k * stretch
