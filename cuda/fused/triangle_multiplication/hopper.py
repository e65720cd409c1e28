"""Launches of the triangle multiplication's kernels for Hopper."""

from typing import NamedTuple

import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cuda.fused.blocks import check_tensors, programs
from cuda.fused.hopper import can_be_copied
from cuda.fused.hopper_tiles import tiled
from cuda.fused.packing import remembered
from cuda.fused.triangle_multiplication.folding import folded
from cuda.fused.triangle_multiplication.hopper_finish import finish_kernel
from cuda.fused.triangle_multiplication.hopper_operands import operands_kernel
from cuda.fused.triangle_multiplication.hopper_tiles import CHUNK, GROUPS, POSITIONS
from cuda.fused.triangle_multiplication.product import multiplied, padded
from cuda.fused.triangle_multiplication.reference import TriangleMultiplicationWeights


def suits(pair: torch.Tensor, channels: int, width: int) -> bool:
    """Whether the kernels take a pair representation [N, N, C] and weights of C and M channels.

    All weights have to fit in shared memory.
    """
    return (
        pair.dtype == torch.bfloat16
        and pair.shape[-1] == channels == width
        and width in (64, 128)
        and pair.numel() > 0
        and can_be_copied(pair)
    )


class Prepared(NamedTuple):
    """One layer's weights as `Folded` has them, its matrices as descriptors of their tiles."""

    operands: TensorDescriptor
    operands_bias: torch.Tensor
    finish: TensorDescriptor
    finish_bias: torch.Tensor


def write_update(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None,
    outgoing: bool,
    result: torch.Tensor,
    add: bool,
) -> torch.Tensor:
    """Write the update of pair [N, N, C] under mask [N, N] to result, which may be pair, and return that.

    With `add`, pair is added.

    Raises:
        ValueError: weights and pair differ in device or dtype.
    """
    # the other weights are checked when they are prepared: to look at each costs as much as a launch
    check_tensors("triangle_multiplication", pair, weights[0])
    ready, x = prepared(weights), positions_of(pair)
    factors = operands(x, ready, mask)
    width = factors.shape[0] // 2
    product, _ = multiplied(factors[:width], factors[width:], outgoing)
    del factors
    finish(product, ready, x, result, add)
    return result


def prepared(weights: TriangleMultiplicationWeights) -> Prepared:
    """One layer's weights for the kernels, remembered until one of them changes."""
    return remembered("Hopper", weights, lambda: _prepare(weights))


def positions_of(pair: torch.Tensor) -> TensorDescriptor:
    """A pair representation [N, N, C] in tiles of positions with all their channels."""
    return tiled(pair, 1, POSITIONS.value, pair.shape[-1])


def operands(x: TensorDescriptor, weights: Prepared, mask: torch.Tensor | None) -> torch.Tensor:
    """Left and right factor [2*M, padded, padded] of tiles of a pair representation, zero past its end."""
    length = x.shape[0]
    side = padded(length)
    width = weights.operands.shape[0] // 4
    out = x.base.new_empty(2 * width, side, side)
    operands_kernel[(_programs(x.base, side, side),)](
        x,
        weights.operands,
        weights.operands_bias,
        mask,
        (0, 0) if mask is None else mask.stride(),
        tiled(out, CHUNK.value, 1, POSITIONS.value),
        length,
        side,
        WIDTH=width,
        MASKED=mask is not None or side != length,
        num_warps=4,
    )
    return out


def finish(
    product: torch.Tensor, weights: Prepared, x: TensorDescriptor, result: torch.Tensor, add: bool
) -> None:
    """Write the update by the product [C, padded, padded], with tiles of the pair representation added."""
    length, _, channels = x.shape
    finish_kernel[(_programs(x.base, length, length),)](
        tiled(product, channels, 1, POSITIONS.value),
        x,
        weights.finish,
        weights.finish_bias,
        tiled(result, 1, POSITIONS.value, CHUNK.value),
        length,
        ADD=add,
        num_warps=4,
    )


def _programs(x: torch.Tensor, rows: int, columns: int) -> int:
    tiles = rows * -(-columns // POSITIONS.value)
    return programs(x, -(-tiles // GROUPS.value), 1)


def _prepare(weights: TriangleMultiplicationWeights) -> Prepared:
    check_tensors("triangle_multiplication", *weights)
    both = folded(weights)
    channels = both.operands.shape[1]
    return Prepared(
        tiled(both.operands, 2 * CHUNK.value, channels),
        both.operands_bias,
        tiled(both.finish, CHUNK.value, channels),
        both.finish_bias,
    )
