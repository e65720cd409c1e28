"""The triangle multiplication on Hopper GPUs: folded weights and launches of the kernels."""

from typing import NamedTuple

import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cuda.fused.hopper_tiles import tile_descriptor
from cuda.fused.launch import check_tensors, program_count, tma_aligned
from cuda.fused.triangle_multiplication import triton
from cuda.fused.triangle_multiplication.hopper_kernels import (
    CHUNK,
    GROUPS,
    POSITIONS,
    finish_kernel,
    operands_kernel,
)
from cuda.fused.triangle_multiplication.reference import TriangleMultiplicationWeights
from cuda.fused.weights import cached_weights, fold_layer_norm


def triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    add: bool = False,
) -> torch.Tensor:
    """Compute the update of every pair.

    Same arguments, result and errors as `cuda.fused.triangle_multiplication.triton.triangle_multiplication`,
    which handles other dtypes and sizes.
    """
    if not supports(pair, weights):
        return triton.triangle_multiplication(pair, weights, mask, outgoing=outgoing, add=add)
    # checking every weight takes as long as a launch: the others are checked when they are prepared
    check_tensors("triangle_multiplication", pair, weights[0])
    prepared, x = prepare_weights(weights), position_tiles(pair)
    factors = project_factors(x, prepared, mask)
    product, _ = triton.scaled_product(*factors.chunk(2), outgoing)
    del factors
    result = pair if add else torch.empty_like(pair)
    finish(product, prepared, x, result, add)
    return result


def project_rows(
    pair: torch.Tensor, weights: TriangleMultiplicationWeights, mask: torch.Tensor | None
) -> torch.Tensor:
    """Compute rows of the left and then the right factor.

    Same arguments, result and errors as `cuda.fused.triangle_multiplication.triton.project_rows`.
    """
    if not supports(pair, weights):
        return triton.project_rows(pair, weights, mask)
    check_tensors("triangle_multiplication", pair, weights[0])
    return project_factors(position_tiles(pair), prepare_weights(weights), mask, len(pair))


def add_product(
    pair: torch.Tensor, product: torch.Tensor, weights: TriangleMultiplicationWeights
) -> torch.Tensor:
    """Add the update to rows of pair [n, N, C] in place, given those of the product [M, n, P]."""
    if not (supports(pair, weights) and tma_aligned(product)):
        return triton.add_product(pair, product, weights)
    check_tensors("triangle_multiplication", pair, product, weights[0])
    finish(product, prepare_weights(weights), position_tiles(pair), pair, add=True)
    return pair


def supports(pair: torch.Tensor, weights: TriangleMultiplicationWeights) -> bool:
    """Return whether the kernels support rows of a pair representation [n, N, C] and weights.

    All weights have to fit in shared memory.
    """
    channels, width = weights.left.shape
    return (
        pair.dtype == torch.bfloat16
        and pair.shape[-1] == channels == width
        and width in (64, 128)
        and pair.numel() > 0
        and tma_aligned(pair)
    )


class FoldedWeights(NamedTuple):
    """Weights of one layer with LayerNorm folded in: C pair channels, M = C channels of the product.

    Matrices are bfloat16 and have output channels as rows, CHUNK of values and CHUNK of gates alternating.
    Biases are float32. All are half of the layer's, because of how the kernels compute gates. Prepared for a
    launch, matrices are descriptors of their tiles.

    Args:
        operands: [4*M, C], for the left factor, then the right.
        operands_bias: [4*M].
        finish: [2*C, M], for the output and its gate.
        finish_bias: [2*C].
    """

    operands: torch.Tensor | TensorDescriptor
    operands_bias: torch.Tensor
    finish: torch.Tensor | TensorDescriptor
    finish_bias: torch.Tensor


def fold_weights(w: TriangleMultiplicationWeights) -> FoldedWeights:
    """Fold the LayerNorms of one layer into its projections."""
    norm, center = (w.norm_scale, w.norm_offset), (w.center_scale, w.center_offset)
    values = torch.cat([w.left, w.right], 1), torch.cat([w.left_bias, w.right_bias])
    gates = torch.cat([w.left_gate, w.right_gate], 1), torch.cat([w.left_gate_bias, w.right_gate_bias])
    return FoldedWeights(
        *alternate_chunks(fold_half(*norm, *values), fold_half(*norm, *gates), torch.bfloat16),
        *alternate_chunks(
            fold_half(*center, w.output, w.output_bias),
            fold_half(*norm, w.gating, w.gating_bias),
            torch.bfloat16,
        ),
    )


def fold_half(
    scale: torch.Tensor, offset: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [M, C] and bias [M] in float32 for half of a projection of LN(x) by weights [C, M]."""
    matrix, bias_of_offset = fold_layer_norm(scale, offset, 0.5 * weights.float())
    return matrix, bias_of_offset + 0.5 * bias.float()


def alternate_chunks(
    values: tuple[torch.Tensor, torch.Tensor], gates: tuple[torch.Tensor, torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights [2*M, C] in a dtype and bias [2*M], with chunks of values and of gates alternating."""
    weights, bias = (
        torch.stack([x.unflatten(0, (-1, CHUNK.value)), y.unflatten(0, (-1, CHUNK.value))], 1).flatten(0, 2)
        for x, y in zip(values, gates, strict=True)
    )
    return weights.to(dtype), bias.flatten()


def prepare_weights(weights: TriangleMultiplicationWeights) -> FoldedWeights:
    """Return one layer's weights as the kernels read them (cached).

    Raises:
        ValueError: the weights differ in device or dtype.
    """
    return cached_weights("Hopper", weights, lambda: _prepare(weights))


def _prepare(weights: TriangleMultiplicationWeights) -> FoldedWeights:
    check_tensors("triangle_multiplication", *weights)
    folded = fold_weights(weights)
    channels = folded.operands.shape[1]
    return folded._replace(
        operands=tile_descriptor(folded.operands, 2 * CHUNK.value, channels),
        finish=tile_descriptor(folded.finish, CHUNK.value, channels),
    )


def position_tiles(pair: torch.Tensor) -> TensorDescriptor:
    """Return rows of a pair representation [n, N, C] in tiles of positions with all their channels."""
    return tile_descriptor(pair, 1, POSITIONS.value, pair.shape[-1])


def project_factors(
    x: TensorDescriptor, weights: FoldedWeights, mask: torch.Tensor | None, padded_rows: int | None = None
) -> torch.Tensor:
    """Compute the left and right factor [2*M, R, P] of rows x [n, N, C], zero past the last residue.

    Args:
        x: tiles of positions.
        weights: the layer's parameters.
        mask: [n, N], or None.
        padded_rows: R, by default n rounded up as N is to P.
    """
    rows, length, _ = x.shape
    padded = triton.padded_length(length)
    padded_rows = triton.padded_length(rows) if padded_rows is None else padded_rows
    width = weights.operands.shape[0] // 4
    out = x.base.new_empty(2 * width, padded_rows, padded)
    operands_kernel[(_program_count(x.base, padded_rows, padded),)](
        x,
        weights.operands,
        weights.operands_bias,
        mask,
        (0, 0) if mask is None else mask.stride(),
        tile_descriptor(out, CHUNK.value, 1, POSITIONS.value),
        rows,
        length,
        padded_rows,
        padded,
        WIDTH=width,
        MASKED=mask is not None or (padded_rows, padded) != (rows, length),
        num_warps=4,
    )
    return out


def finish(
    product: torch.Tensor, weights: FoldedWeights, x: TensorDescriptor, result: torch.Tensor, add: bool
) -> None:
    """Write the update to the result, or the sum of x and the update if `add`, from the product [C, R, P]."""
    rows, length, channels = x.shape
    finish_kernel[(_program_count(x.base, rows, length),)](
        tile_descriptor(product, channels, 1, POSITIONS.value),
        x,
        weights.finish,
        weights.finish_bias,
        tile_descriptor(result, 1, POSITIONS.value, CHUNK.value),
        rows,
        length,
        ADD=add,
        num_warps=4,
    )


def _program_count(x: torch.Tensor, rows: int, columns: int) -> int:
    tiles = rows * -(-columns // POSITIONS.value)
    return program_count(x, -(-tiles // GROUPS.value), 1)
