"""Launches of the contest's kernels for Hopper GPUs."""

from typing import Any, NamedTuple

import torch
from triton.compiler import CompiledKernel
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from benchmarks.contest.hopper_finish import finish_kernel
from benchmarks.contest.hopper_operands import BLOCK, SLICE, operands_kernel
from benchmarks.contest.reference import GateFirstWeights
from cuda.fused.hopper_tiles import tile_descriptor
from cuda.fused.launch import program_count
from cuda.fused.layer_norm.reference import EPSILON
from cuda.fused.triangle_multiplication.hopper import alternate_chunks, fold_half
from cuda.fused.triangle_multiplication.hopper_kernels import CHUNK, GROUPS, POSITIONS
from cuda.fused.triangle_multiplication.triton import padded_length, scaled_product
from cuda.fused.weights import cached_weights

WIDTH = 128
# by channels: positions normalised at once, tiles of weights in shared memory, registers per thread
LAUNCHES = {
    128: {"BATCH": 32, "STAGES": 10, "MULTIPLYING": 184, "NORMALISING": 120},
    384: {"BATCH": 8, "STAGES": 4, "MULTIPLYING": 208, "NORMALISING": 72},
}

_compiled: dict[tuple[Any, ...], CompiledKernel] = {}


def supports(x: torch.Tensor, width: int, operands: torch.dtype) -> bool:
    """Return whether the kernels support x [B, N, N, C], M inner channels and a dtype of operands."""
    return (
        x.dtype == torch.float32
        and operands == torch.float16
        and x.shape[-1] in LAUNCHES
        and width == WIDTH
        and x.numel() > 0
        and x.is_contiguous()
        and x.data_ptr() % 16 == 0
    )


class FoldedWeights(NamedTuple):
    """Weights of one layer with LayerNorm folded in: float16 matrices, float32 vectors, C and M channels.

    Args:
        operands: [5*M, C], of the left factor, then of the right, with chunks of values and of gates
            alternating, then of the output's gate.
        operands_bias: [5*M].
        center_scale: [M], not folded, since the output's gate comes between.
        center_offset: [M], not folded either.
        finish: [C, M], of the output, its channels in the order of `reorder_for_stores`.
    """

    operands: torch.Tensor
    operands_bias: torch.Tensor
    center_scale: torch.Tensor
    center_offset: torch.Tensor
    finish: torch.Tensor


def fold_weights(w: GateFirstWeights) -> FoldedWeights:
    """Fold the LayerNorm of the input into one layer's projections."""
    norm, no_bias = (w.norm_scale, w.norm_offset), torch.zeros_like(w.center_offset)
    both = torch.cat([no_bias, no_bias])
    factors, factors_bias = alternate_chunks(
        fold_half(*norm, torch.cat([w.left, w.right], 1), both),
        fold_half(*norm, torch.cat([w.left_gate, w.right_gate], 1), both),
        torch.float16,
    )
    gate, gate_bias = fold_half(*norm, w.output_gate, no_bias)
    return FoldedWeights(
        torch.cat([factors, gate.half()]),
        torch.cat([factors_bias, gate_bias]),
        w.center_scale.to(torch.float32, copy=True),
        w.center_offset.to(torch.float32, copy=True),
        reorder_for_stores(w.output.T).half().contiguous(),
    )


def reorder_for_stores(x: torch.Tensor) -> torch.Tensor:
    """Reorder channels [C, M] so that each thread stores four consecutive ones.

    In a product, a thread has columns 2t, 2t + 1, 2t + 8 and 2t + 9 of sixteen; they become channels 4t to
    4t + 3.
    """
    return x.unflatten(0, (-1, 4, 2, 2)).transpose(1, 2).flatten(0, 3)


class PreparedWeights(NamedTuple):
    """`FoldedWeights` whose matrices are descriptors of their tiles."""

    operands: TensorDescriptor
    operands_bias: torch.Tensor
    center_scale: torch.Tensor
    center_offset: torch.Tensor
    finish: TensorDescriptor


def prepare_weights(weights: GateFirstWeights) -> PreparedWeights:
    """Return one layer's weights as the kernels read them (cached)."""
    return cached_weights("contest on Hopper", weights, lambda: _prepare(weights))


def _prepare(weights: GateFirstWeights) -> PreparedWeights:
    folded = fold_weights(weights)
    return PreparedWeights(
        tile_descriptor(folded.operands, BLOCK.value, SLICE.value),
        folded.operands_bias,
        folded.center_scale,
        folded.center_offset,
        tile_descriptor(folded.finish, CHUNK.value, WIDTH),
    )


def update(
    x: torch.Tensor, weights: GateFirstWeights, mask: torch.Tensor | None, outgoing: bool
) -> torch.Tensor:
    """Compute the operator for x [B, N, N, C] and mask [B, N, N]."""
    prepared = prepare_weights(weights)
    factors = project_factors(x, prepared, mask)
    product, scale = multiply_factors(factors, x.shape[0], outgoing)
    return finish(product, scale, factors, prepared, x)


def project_factors(x: torch.Tensor, weights: PreparedWeights, mask: torch.Tensor | None) -> torch.Tensor:
    """Compute both factors, zero past the last residue, and the output's gate: [3*M, B*P, P]."""
    batch, length, _, channels = x.shape
    padded = padded_length(length)
    out = torch.empty(3 * WIDTH, batch * padded, padded, dtype=weights.operands.base.dtype, device=x.device)
    pairs = -(-batch * padded * -(-padded // POSITIONS.value) // 2)
    launch(
        operands_kernel,
        program_count(x, pairs, 1),
        (x.device, *((None, 0) if mask is None else (mask.dtype, mask.data_ptr() % 16))),
        (
            x,
            weights.operands,
            weights.operands_bias,
            mask,
            *((0, 0, 0) if mask is None else mask.stride()),
            tile_descriptor(out, CHUNK.value, 1, POSITIONS.value),
            batch,
            length,
            padded,
            pairs,
        ),
        CHANNELS=channels,
        WIDTH=WIDTH,
        MASKED=mask is not None or padded != length,
        **LAUNCHES[channels],
    )
    return out


def multiply_factors(factors: torch.Tensor, batch: int, outgoing: bool) -> tuple[torch.Tensor, float]:
    """Return the scaled product [M, B*P, P] of the factors of B pair representations, and the scale."""
    left, right = factors[: 2 * WIDTH].view(2, WIDTH * batch, *[factors.shape[-1]] * 2).unbind()
    product, scale = scaled_product(left, right, outgoing)
    return product.view(WIDTH, -1, factors.shape[-1]), scale


def finish(
    product: torch.Tensor, scale: float, factors: torch.Tensor, weights: PreparedWeights, x: torch.Tensor
) -> torch.Tensor:
    """Return the result, of x's shape, from the scaled product and the gates that follow the factors."""
    batch, length, _, channels = x.shape
    result = torch.empty_like(x)
    tiles = batch * length * -(-length // POSITIONS.value)
    launch(
        finish_kernel,
        program_count(x, -(-tiles // GROUPS.value), 1),
        (x.device,),
        (
            tile_descriptor(product, WIDTH, 1, POSITIONS.value),
            tile_descriptor(factors, WIDTH, 1, POSITIONS.value),
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


def launch(
    kernel: Any, count: int, key: tuple[Any, ...], arguments: tuple[Any, ...], **constants: Any
) -> None:
    """Launch programs of four warps, faster than Triton's launcher, which inspects each argument.

    Args:
        kernel: takes the arguments, then the constants.
        count: number of programs.
        key: what determines the compiled kernel apart from the constants, and differs between launches: the
            device, and of an argument its type, whether it is None, and, if the kernel is specialised in
            that, whether it is 1 or a multiple of 16. Launches with the same key share a compiled kernel.
        arguments: tensors begin at multiples of 16 bytes, unless the key says otherwise.
        constants: `constexpr` parameters.
    """
    key = (kernel, *key, *constants.values())
    if (compiled := _compiled.get(key)) is not None:
        compiled[count, 1, 1](*arguments, *constants.values())
    elif (compiled := kernel[(count,)](*arguments, **constants, num_warps=4)) is not None:
        _compiled[key] = compiled
