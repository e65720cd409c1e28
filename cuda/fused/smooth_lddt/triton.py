"""The smooth lDDT as one Triton kernel, which computes the gradient along with the scores."""

from typing import Any

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors
from cuda.fused.rows import sigmoid
from cuda.fused.smooth_lddt import reference

ROWS, COLUMNS = 32, 64
EPSILON = tl.constexpr(reference.EPSILON)


@triton.jit
def _load_points(points, index, inside):
    """Load the coordinates of points [3 each]."""
    start = points + index * 3
    x = tl.load(start, mask=inside, other=0.0)
    return x, tl.load(start + 1, mask=inside, other=0.0), tl.load(start + 2, mask=inside, other=0.0)


@triton.jit
def _offsets(first, second):
    """Return the offsets from second to first points, and their lengths."""
    x = first[0][:, None] - second[0][None, :]
    y = first[1][:, None] - second[1][None, :]
    z = first[2][:, None] - second[2][None, :]
    return x, y, z, tl.sqrt(EPSILON + x * x + y * y + z * z)


@triton.jit(do_not_specialize=["atoms"])
def _smooth_lddt(
    denoised, positions, radius, gradient, sums, atoms, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write the gradient of ROWS atoms of a copy, and to sums [2, S, blocks] scores and number of pairs."""
    block, blocks = tl.program_id(0), tl.num_programs(0)
    copy, copies = tl.program_id(1), tl.num_programs(1)
    row = block * ROWS + tl.arange(0, ROWS)
    denoised += copy.to(tl.int64) * atoms * 3
    here, true_here = _load_points(denoised, row, row < atoms), _load_points(positions, row, row < atoms)
    reach = tl.load(radius + row, mask=row < atoms, other=0.0)
    scores = tl.zeros([ROWS], tl.float32)
    pairs = tl.zeros([ROWS], tl.float32)
    x_sum = tl.zeros([ROWS], tl.float32)
    y_sum = tl.zeros([ROWS], tl.float32)
    z_sum = tl.zeros([ROWS], tl.float32)
    for start in range(0, atoms, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = column < atoms
        _, _, _, true = _offsets(true_here, _load_points(positions, column, inside))
        other = tl.load(radius + column, mask=inside, other=0.0)
        known = (reach > 0)[:, None] & (other > 0)[None, :] & (row[:, None] != column[None, :])
        ahead = (known & (true < reach[:, None])).to(tl.float32)
        back = (known & (true < other[None, :])).to(tl.float32)
        x, y, z, length = _offsets(here, _load_points(denoised, column, inside))
        error = tl.abs(length - true)
        first, second, third, fourth = (
            sigmoid(0.5 - error),
            sigmoid(1.0 - error),
            sigmoid(2.0 - error),
            sigmoid(4.0 - error),
        )
        scores += tl.sum(ahead * (first + second + third + fourth), 1)
        pairs += tl.sum(ahead, 1)
        slope = first * (1 - first) + second * (1 - second) + third * (1 - third) + fourth * (1 - fourth)
        sign = tl.where(length > true, 1.0, tl.where(length < true, -1.0, 0.0))
        factor = -(ahead + back) * slope * sign / length
        x_sum += tl.sum(factor * x, 1)
        y_sum += tl.sum(factor * y, 1)
        z_sum += tl.sum(factor * z, 1)
    gradient += copy.to(tl.int64) * atoms * 3 + row * 3
    tl.store(gradient, 0.25 * x_sum, mask=row < atoms)
    tl.store(gradient + 1, 0.25 * y_sum, mask=row < atoms)
    tl.store(gradient + 2, 0.25 * z_sum, mask=row < atoms)
    sums += copy * blocks + block
    tl.store(sums, 0.25 * tl.sum(scores, 0))
    tl.store(sums + copies * blocks, tl.sum(pairs, 0))


class _SmoothLddt(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, denoised: torch.Tensor, positions: torch.Tensor, radius: torch.Tensor
    ) -> torch.Tensor:
        copies, atoms, _ = denoised.shape
        blocks = triton.cdiv(atoms, ROWS)
        gradient, sums = torch.empty_like(denoised), denoised.new_empty(2, copies, blocks)
        _smooth_lddt[(blocks, copies)](
            denoised, positions, radius, gradient, sums, atoms, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4
        )
        scores, pairs = sums.sum(dim=-1)
        count = pairs + reference.smallest_count(radius)
        ctx.save_for_backward(gradient / count[:, None, None])
        return scores / count

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        (of_scores,) = ctx.saved_tensors
        return gradient[:, None, None] * of_scores, None, None


def smooth_lddt(denoised: torch.Tensor, positions: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
    """Compute the mean scores; see `cuda.fused.smooth_lddt.smooth_lddt`."""
    check_tensors("smooth_lddt", denoised, positions, radius)
    if denoised.dtype != torch.float32:
        raise ValueError(f"fused smooth_lddt does not support {denoised.dtype}")
    result: torch.Tensor = _SmoothLddt.apply(
        denoised.contiguous(), positions.contiguous(), radius.contiguous()
    )
    return result
