"""Launches of the contest's form of the triangle multiplication on Hopper."""

from typing import NamedTuple

import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cuda.fused.blocks import programs
from cuda.fused.hopper_tiles import tiled
from cuda.fused.launching import launch
from cuda.fused.layer_norm.reference import EPSILON
from cuda.fused.packing import remembered
from cuda.fused.triangle_multiplication.folding import folded_gate_first
from cuda.fused.triangle_multiplication.hopper_gate_first_finish import gate_first_finish_kernel
from cuda.fused.triangle_multiplication.hopper_gate_first_operands import (
    BLOCK,
    SLICE,
    gate_first_operands_kernel,
)
from cuda.fused.triangle_multiplication.hopper_tiles import CHUNK, GROUPS, POSITIONS
from cuda.fused.triangle_multiplication.product import multiplied, padded
from cuda.fused.triangle_multiplication.reference import GateFirstWeights

WIDTH = 128
# by channels: positions normalised at once, how many tiles of weights there is room for, registers
LAUNCHES = {
    128: {"BATCH": 32, "STAGES": 10, "MULTIPLYING": 184, "NORMALISING": 120},
    384: {"BATCH": 8, "STAGES": 4, "MULTIPLYING": 208, "NORMALISING": 72},
}


def suits(x: torch.Tensor, width: int, operands: torch.dtype) -> bool:
    """Whether the kernels take x [B, N, N, C] and M inner channels with such operands."""
    return (
        x.dtype == torch.float32
        and operands == torch.float16
        and x.shape[-1] in LAUNCHES
        and width == WIDTH
        and x.numel() > 0
        and x.is_contiguous()
        and x.data_ptr() % 16 == 0
    )


class Prepared(NamedTuple):
    """One layer's weights as `FoldedGateFirst` has them, its matrices as descriptors of their tiles."""

    operands: TensorDescriptor
    operands_bias: torch.Tensor
    center_scale: torch.Tensor
    center_offset: torch.Tensor
    finish: TensorDescriptor


def prepared(weights: GateFirstWeights) -> Prepared:
    """One layer's weights for the kernels, remembered until one of them changes."""
    return remembered("gate first on Hopper", weights, lambda: _prepare(weights))


def _prepare(weights: GateFirstWeights) -> Prepared:
    both = folded_gate_first(weights)
    return Prepared(
        tiled(both.operands, BLOCK.value, SLICE.value),
        both.operands_bias,
        both.center_scale,
        both.center_offset,
        tiled(both.finish, CHUNK.value, WIDTH),
    )


def update(
    x: torch.Tensor, weights: GateFirstWeights, mask: torch.Tensor | None, outgoing: bool
) -> torch.Tensor:
    """The update of x [B, N, N, C] under mask [B, N, N]."""
    ready = prepared(weights)
    factors = operands(x, ready, mask)
    product, scale = product_of(factors, x.shape[0], outgoing)
    return finish(product, scale, factors, ready, x)


def operands(x: torch.Tensor, weights: Prepared, mask: torch.Tensor | None) -> torch.Tensor:
    """Left and right factor and the output's gate, [3*M, B*padded, padded]; factors are 0 past the end."""
    batch, length, _, channels = x.shape
    side = padded(length)
    out = torch.empty(3 * WIDTH, batch * side, side, dtype=weights.operands.base.dtype, device=x.device)
    pairs = -(-batch * side * -(-side // POSITIONS.value) // 2)
    launch(
        gate_first_operands_kernel,
        programs(x, pairs, 1),
        (x.device, *((None, 0) if mask is None else (mask.dtype, mask.data_ptr() % 16))),
        (
            x,
            weights.operands,
            weights.operands_bias,
            mask,
            *((0, 0, 0) if mask is None else mask.stride()),
            tiled(out, CHUNK.value, 1, POSITIONS.value),
            batch,
            length,
            side,
            pairs,
        ),
        CHANNELS=channels,
        WIDTH=WIDTH,
        MASKED=mask is not None or side != length,
        **LAUNCHES[channels],
    )
    return out


def product_of(factors: torch.Tensor, batch: int, outgoing: bool) -> tuple[torch.Tensor, float]:
    """The product [M, B*padded, padded] of the factors of so many pair representations, and its scale."""
    left, right = factors[: 2 * WIDTH].view(2, WIDTH * batch, *[factors.shape[-1]] * 2).unbind()
    product, scale = multiplied(left, right, outgoing)
    return product.view(WIDTH, -1, factors.shape[-1]), scale


def finish(
    product: torch.Tensor, scale: float, factors: torch.Tensor, weights: Prepared, x: torch.Tensor
) -> torch.Tensor:
    """The update by the scaled product, with the gates that follow the factors; of x's shape."""
    batch, length, _, channels = x.shape
    result = torch.empty_like(x)
    tiles = batch * length * -(-length // POSITIONS.value)
    launch(
        gate_first_finish_kernel,
        programs(x, -(-tiles // GROUPS.value), 1),
        (x.device,),
        (
            tiled(product, WIDTH, 1, POSITIONS.value),
            tiled(factors, WIDTH, 1, POSITIONS.value),
            weights.finish,
            weights.center_scale,
            weights.center_offset,
            EPSILON * scale**2,
            result,
            length,
            product.shape[-1],
            tiles,
        ),
        CHANNELS=channels,
    )
    return result
