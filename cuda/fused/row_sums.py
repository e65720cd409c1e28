"""Sums of many rows, such as those that the programs of a kernel have written.

PyTorch clears a semaphore before such a sum, and few of its programs would run at the same time without one.
"""

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 128, 32


@triton.jit
def sum_blocks(x, result, count, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write the sums of each ROWS of the rows x [count, columns] to result [blocks, columns], float32."""
    block = tl.program_id(1)
    row = block * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    pointers = x + row.to(tl.int64)[:, None] * columns + column[None, :]
    values = tl.load(pointers, mask=(row < count)[:, None] & inside[None, :], other=0.0)
    tl.store(result + block.to(tl.int64) * columns + column, tl.sum(values, 0), mask=inside)


def sum_rows(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the sum over the first axis of x [R, ...], float32 and contiguous, in `out` or a new tensor."""
    sizes = x.shape[1:]
    x = x.flatten(1) if x.dim() > 1 else x[:, None]
    while True:
        blocks = max(1, triton.cdiv(x.shape[0], ROWS))
        result = x.new_empty(blocks, x.shape[1]) if out is None or blocks > 1 else out
        grid = (triton.cdiv(x.shape[1], COLUMNS), blocks)
        sum_blocks[grid](x, result, *x.shape, ROWS=ROWS, COLUMNS=COLUMNS)
        if blocks == 1:
            return result.view(sizes)
        x = result
