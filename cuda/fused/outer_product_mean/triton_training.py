"""The gradient of the outer product mean's output weights in Triton."""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors, program_count
from cuda.fused.row_sums import sum_rows

# terms of a step of the sum; outer products and pair channels of a program; its warps and pipeline stages
LAUNCH = {"TERMS": 64, "ROWS": 128, "COLUMNS": 128, "STAGES": 3, "num_warps": 8}
# programs that run on a multiprocessor at the same time
RESIDENT = 2


@triton.jit
def sum_over_pairs(
    outer, gradient, partial_sums, slices, part_slices, length, DEPTH: tl.constexpr,
    CHANNELS: tl.constexpr, ACCUMULATE: tl.constexpr, TERMS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write or add sums over slices of outer [slices, DEPTH, L] times gradient [slices, L, CHANNELS].

    The grid is (blocks of outer products, blocks of channels, parts); each part of part_slices slices has
    sums of its own, partial_sums [parts, DEPTH, CHANNELS] float32.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(2)
    rows, columns = row < DEPTH, column < CHANNELS
    blocks = tl.cdiv(length, TERMS)
    last = tl.minimum((part + 1) * part_slices, slices)
    target = partial_sums + (part * DEPTH + row)[:, None] * CHANNELS + column[None, :]
    stored = rows[:, None] & columns[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    if ACCUMULATE:
        total = tl.load(target, mask=stored, other=0.0)
    # one loop over slices and positions, so that loads are pipelined from one slice to the next
    for step in tl.range(part * part_slices * blocks, last * blocks, num_stages=STAGES):
        start = (step // blocks).to(tl.int64) * length
        position = step % blocks * TERMS + tl.arange(0, TERMS)
        real = position < length
        left = outer + start * DEPTH + (row[:, None] * length + position[None, :])
        right = gradient + start * CHANNELS + (position[:, None] * CHANNELS + column[None, :])
        total = tl.dot(
            tl.load(left, mask=rows[:, None] & real[None, :], other=0.0),
            tl.load(right, mask=real[:, None] & columns[None, :], other=0.0),
            total,
            input_precision="ieee",
        )
    tl.store(target, total, mask=stored)


class OutputGradient:
    """A sum of products of outer products and gradients, added to in chunks of rows of pairs.

    Args:
        depth: number of outer products of a pair.
        channels: number of pair channels.
        slices: number of rows of pairs of the largest chunk, which comes first.
        like: a tensor on the device and of the dtype of the outer products, which has 16 bits.

    Raises:
        ValueError: the kernel does not support the dtype or device.
    """

    def __init__(self, depth: int, channels: int, slices: int, like: torch.Tensor) -> None:
        check_tensors("outer_product_mean", like)
        self.blocks = triton.cdiv(depth, LAUNCH["ROWS"]), triton.cdiv(channels, LAUNCH["COLUMNS"])
        tiles = self.blocks[0] * self.blocks[1]
        parts = max(1, program_count(like, tiles * slices, RESIDENT) // tiles)
        self.part_slices = triton.cdiv(slices, parts)
        parts = triton.cdiv(slices, self.part_slices)
        self.partial_sums = like.new_empty(parts, depth, channels, dtype=torch.float32)
        self.first = True

    def add(self, outer: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add a chunk.

        Args:
            outer: [M, E*E, N], contiguous, M rows of pairs.
            gradient: [M, N, Z], contiguous.
        """
        slices, depth, length = outer.shape
        sum_over_pairs[(*self.blocks, len(self.partial_sums))](
            outer, gradient, self.partial_sums, slices, self.part_slices, length, DEPTH=depth,
            CHANNELS=gradient.shape[2], ACCUMULATE=not self.first, **LAUNCH,
        )  # fmt: skip
        self.first = False

    def total(self) -> torch.Tensor:
        """Return the sum of all chunks, [E*E, Z] float32."""
        return sum_rows(self.partial_sums)
