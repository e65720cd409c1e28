"""Source of the gapless kernel: fully unrolled, with a register per pair of columns.

A lane's cells are a tuple, which the compiler takes apart into registers; a loop over a local array would
spill. An intrinsic computes a row, from the last pair to the first, so that each takes up its diagonal
neighbour before that is overwritten and nothing is copied.
"""

from dataclasses import dataclass

from cuda.alignment.gapless.layout import RESET, Arithmetic, Layout

_ROWS_PER_WORD = 4
# chains of running maxima: one would wait for itself
_CHAINS = 4


@dataclass(frozen=True)
class Variant:
    """A kernel to be generated.

    Args:
        layout: lanes and columns.
        arithmetic: what is packed.
        packed_integer_maximum: the GPU has max.s16x2 (sm_90), which takes two numbers per instruction;
            non-negative halves order as integers do.
    """

    layout: Layout
    arithmetic: Arithmetic
    packed_integer_maximum: bool

    @property
    def name(self) -> str:
        """Of the kernel's function and module."""
        maximum = "integer" if self.packed_integer_maximum else "half"
        return f"gapless_{self.arithmetic.name}_{self.layout.lanes}x{self.layout.columns}_{maximum}"

    @property
    def advance(self) -> str:
        """The intrinsic that computes a row."""
        plural = {"half": "halves", "short": "shorts"}[self.arithmetic.name]
        return f"advance_{plural}" + ("_sm90" if self.packed_integer_maximum else "")


def source(variant: Variant) -> str:
    """Python source of a module with one function, `variant.name`, to be compiled with numba.cuda.

    Its arguments are the table, int32 [table_bytes / 4]; residues, int32 [bytes / 4], four letter codes a
    word; offsets, int64 [n], bytes; lengths, int32 [n]; work, int32 [2], zeros between calls; flagged, int32
    [n + 1], number and indices of targets whose score reached the limit; scores, int32 [n]. It wants
    table_bytes of dynamic shared memory and blocks of whole warps.
    """
    layout, arithmetic = variant.layout, variant.arithmetic
    lanes, groups, pairs = layout.lanes, layout.groups, layout.columns // 2
    greater = "greater_shorts" if variant.packed_integer_maximum else "greater_halves"
    largest = f"largest_{arithmetic.name}"
    reset_word = RESET * 0x01010101
    chains = min(_CHAINS, pairs // 2)
    row_lines = []
    for which in range(_ROWS_PER_WORD):
        row_lines.append(f"border = permute(shuffle_up(cells[{pairs - 1}]), cells[{pairs - 1}], selector)")
        row_lines.append(f"place = row(base, word, {which}, {layout.row_bytes})")
        row_lines.append(
            f"cells, best = {variant.advance}(shared, place, {layout.chunk_bytes}, border, cells, best)"
        )
    reduce_lines = ["most = best[0]"]
    reduce_lines += [f"most = {greater}(most, best[{k}])" for k in range(1, chains)]
    reduce_lines.append(f"score = {largest}(most)")
    distance = 1
    while distance < lanes:
        reduce_lines.append(f"score = max(score, shuffle_xor(score, {distance}))")
        distance *= 2
    body = "\n".join(" " * 12 + line for line in row_lines)
    reduce_body = "\n".join(" " * 8 + line for line in reduce_lines)
    names = sorted({
        variant.advance, greater, largest, "cut", "permute", "row", "shared_address", "shuffle_first",
        "shuffle_up", "shuffle_xor", "unmask", "zeros",
    })  # fmt: skip
    return f'''"""Generated; see cuda/alignment/gapless/generator.py."""

import numpy as np
from numba import cuda, types

from cuda.alignment.intrinsics import {", ".join(names)}

no_cells, no_best = zeros({pairs}), zeros({chains})

def {variant.name}(table, residues, offsets, lengths, work, flagged, scores):
    shared = cuda.shared.array(0, types.int32)
    for k in range(cuda.threadIdx.x, table.size, cuda.blockDim.x):
        shared[k] = table[k]
    cuda.syncthreads()
    lane = cuda.threadIdx.x % 32
    group = lane // {lanes}
    base = np.int32(shared_address(shared) + lane % {layout.slots} * 16)
    # the left neighbour's last column beside one's own column in the middle. The group's first lane has no
    # neighbour: it takes the sign of a number that has none, which is 0
    selector = np.int32(0x54BB if lane % {lanes} == 0 else 0x5432)
    zero = np.int32(0)
    while True:
        taken = zero
        if lane == 0:
            taken = cuda.atomic.add(work, 0, 1)
        taken = shuffle_first(taken)
        # longest first, so that no warp is left with much work at the end
        last = lengths.size - 1 - taken * {groups}
        if last < 0:
            break
        target = last - group
        length = 0
        start = 0
        if target >= 0:
            length = lengths[target]
            start = offsets[target] // 4
        longest = 0
        for k in range({groups}):
            if last >= k:
                longest = max(longest, lengths[last - k])
        left = length
        following = np.int32({reset_word})
        if left > 0:
            following = residues[start]
        cells = no_cells()
        best = no_best()
        for step in range((longest + 3) // 4):
            word = unmask(following)
            if left < 4:
                word = cut(word, left, {reset_word})
            left -= 4
            if left > 0:
                following = residues[start + step + 1]
{body}
{reduce_body}
        if target >= 0 and lane % {lanes} == 0:
            scores[target] = score
            if score >= {arithmetic.limit}:
                flagged[1 + cuda.atomic.add(flagged, 0, 1)] = target
    # the last warp to find nothing leaves the counters as it found them
    if lane == 0:
        warps = cuda.gridDim.x * cuda.blockDim.x // 32
        if cuda.atomic.add(work, 1, 1) == warps - 1:
            work[0] = 0
            work[1] = 0
'''
