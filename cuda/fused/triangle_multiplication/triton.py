"""The triangle multiplication on any CUDA GPU: operands, matrix product, finish.

The first kernel normalises the pair representation, projects, gates and masks it, and writes the two factors
channel by channel, so that the product is a plain batch of matrix products, left to the GPU's own library.
The second kernel normalises the product over its channels, projects and gates it. No other intermediate of
the pair representation's size is stored.

Kernels work on rows [n, N, C] of the pair representation. Factors and product are [M, n, P], with N and, for
all rows, n padded to P.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from cuda.fused import LAYER_NORM_EPSILON
from cuda.fused.launch import check_tensors, choose_launch, matrix_tiles, padded_channels
from cuda.fused.rows import normalise, sigmoid
from cuda.fused.triangle_multiplication.reference import TriangleMultiplicationWeights
from cuda.fused.triangle_multiplication.triton_tiles import (
    load_channels,
    load_chunk,
    load_normalised_chunks,
    position_offsets,
    project_columns,
    store_chunk,
)
from cuda.fused.weights import cast_weights, interleave_columns

# factors are padded with zeros to a multiple of this, so that loads are wide for every length
ALIGNMENT = 16


@triton.jit(do_not_specialize=["mask_strides", "length"])
def _operands(
    x, x_strides, mask, mask_strides, norm_scale, norm_offset, gated, gated_bias, out,
    positions, padded, length, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, POSITIONS: tl.constexpr,
    INNER: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write (LN(x) W + b) ⊙ sigmoid(LN(x) G + c) ⊙ mask, left factor then right, to out [2*M, n, P].

    The columns of W and G are interleaved in `gated`, so that a thread has the value and the gate of a
    channel.
    """
    DTYPE: tl.constexpr = out.dtype.element_ty
    start = tl.program_id(0) * POSITIONS
    offsets, real = position_offsets(start, positions, padded, length, x_strides, POSITIONS, ROWS)
    keep = real.to(tl.float32)
    if mask is not None:
        mask_offsets, _ = position_offsets(start, positions, padded, length, mask_strides, POSITIONS, ROWS)
        keep = tl.load(mask + mask_offsets, mask=real, other=0.0).to(tl.float32)
    chunks = load_normalised_chunks(x + offsets, real, norm_scale, norm_offset, DTYPE, CHANNELS, CHUNK)
    flat = start + tl.arange(0, POSITIONS)
    for first in range(0, 2 * WIDTH, INNER):
        both = project_columns(
            chunks, gated, gated_bias, 2 * first, CHANNELS, 4 * WIDTH, 2 * INNER, CHUNK, PRECISION
        )
        values, gates = tl.split(both.reshape(POSITIONS, INNER, 2))
        values *= sigmoid(gates) * keep[:, None]
        channel = first + tl.arange(0, INNER)
        target = out + channel.to(tl.int64)[None, :] * positions + flat[:, None]
        stored = (flat < positions)[:, None] & (channel < 2 * WIDTH)[None, :]
        tl.store(target, values.to(DTYPE), mask=stored)


@triton.jit(do_not_specialize=["length"])
def _finish(
    product, epsilon, center_scale, center_offset, output, output_bias, x, x_strides,
    norm_scale, norm_offset, gating, gating_bias, result, result_strides, positions, padded, length,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    ADD: tl.constexpr, POSITIONS: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write sigmoid(LN(x) G + c) ⊙ (LN(product [M, n, P]) W + b) to result [n, N, C].

    ADD adds x, which may be the result. output is a descriptor of [BLOCK_WIDTH, OUTPUTS] tiles, gating one of
    [BLOCK, OUTPUTS].
    """
    DTYPE: tl.constexpr = product.dtype.element_ty
    start = tl.program_id(0) * POSITIONS
    flat, inner = start + tl.arange(0, POSITIONS), tl.arange(0, BLOCK_WIDTH)
    source = product + (inner.to(tl.int64)[:, None] * positions + flat[None, :])
    inside = (inner < WIDTH)[:, None] & (flat < positions)[None, :]
    centred = normalise(
        tl.trans(tl.load(source, mask=inside, other=0.0)).to(tl.float32),
        (inner < WIDTH)[None, :],
        load_channels(center_scale, 0, WIDTH, BLOCK_WIDTH),
        load_channels(center_offset, 0, WIDTH, BLOCK_WIDTH),
        WIDTH,
        epsilon,
    ).to(DTYPE)
    offsets, real = position_offsets(start, positions, padded, length, result_strides, POSITIONS, ROWS)
    x_offsets, _ = position_offsets(start, positions, padded, length, x_strides, POSITIONS, ROWS)
    rows = x + x_offsets
    chunks = load_normalised_chunks(rows, real, norm_scale, norm_offset, DTYPE, CHANNELS, BLOCK)
    for column in range(0, CHANNELS, OUTPUTS):
        update = tl.dot(centred, output.load([0, column]), input_precision=PRECISION)
        gate = project_columns(
            chunks, gating, gating_bias, column, CHANNELS, CHANNELS, OUTPUTS, BLOCK, PRECISION
        )
        update = (update + load_channels(output_bias, column, CHANNELS, OUTPUTS)[None, :]) * sigmoid(gate)
        if ADD:
            update += load_chunk(rows, real, column, CHANNELS, OUTPUTS)
        store_chunk(result + offsets, real, column, update, CHANNELS, OUTPUTS)


def triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    add: bool = False,
) -> torch.Tensor:
    """Compute the update of every pair; same arguments as the reference.

    Channels are contiguous, weights of pair's dtype. With `add`, the pair is changed in place and returned;
    the sum is rounded once.
    """
    options = _check(pair, weights)
    factors = _project_factors(pair, weights, mask, padded_length(pair.shape[1]), options["operands"])
    product, scale = scaled_product(*factors.chunk(2), outgoing)
    del factors
    result = pair if add else torch.empty_like(pair)
    _write_update(product, scale, weights, pair, result, add, options["finish"])
    return result


def _check(pair: torch.Tensor, weights: TriangleMultiplicationWeights) -> dict[str, dict[str, Any]]:
    """Return the options of the kernels' launches; ValueError if they do not support these tensors."""
    channels, width = weights.left.shape
    if max(channels, width) > 256 or pair.stride(-1) != 1:
        raise ValueError(
            f"fused triangle_multiplication needs at most 256 contiguous channels, "
            f"not {channels} and {width} in strides {pair.stride()}"
        )
    check_tensors("triangle_multiplication", pair, *weights)
    return choose_launch("triangle_multiplication", pair, channels)


def project_rows(
    pair: torch.Tensor, weights: TriangleMultiplicationWeights, mask: torch.Tensor | None
) -> torch.Tensor:
    """Compute rows of the left and then the right factor, [2*M, n, P], zero past the last column.

    Any rows of the pair representation are [n, N, C], of at most 256 contiguous channels; parameters are of
    their dtype, and the mask is [n, N], or None.

    Raises:
        ValueError: the kernels do not support these tensors.
    """
    return _project_factors(pair, weights, mask, len(pair), _check(pair, weights)["operands"])


def add_product(
    pair: torch.Tensor, product: torch.Tensor, weights: TriangleMultiplicationWeights
) -> torch.Tensor:
    """Add the update to rows of pair [n, N, C] in place, given those of the product [M, n, P]."""
    _write_update(product, 1.0, weights, pair, pair, True, _check(pair, weights)["finish"])
    return pair


def _project_factors(
    x: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None,
    rows: int,
    options: dict[str, Any],
) -> torch.Tensor:
    """Compute rows of the left and then the right factor, [2*M, rows, P], zero past the last residue.

    Args:
        x: [n, N, C].
        weights: the layer's parameters.
        mask: [n, N], or None.
        rows: n, or more if n is N.
        options: options of the launch.
    """
    _, length, channels = x.shape
    width = weights.left.shape[1]
    padded = padded_length(length)
    out = x.new_empty(2 * width, rows, padded)
    gated = interleave_columns(
        weights.left, weights.left_gate, weights.right, weights.right_gate, dtype=x.dtype
    )
    gated_bias = interleave_columns(
        weights.left_bias, weights.left_gate_bias, weights.right_bias, weights.right_gate_bias
    )
    chunk, inner = min(options["CHUNK"], padded_channels(channels)), options["INNER"]
    positions = rows * padded
    if positions:
        _operands[(triton.cdiv(positions, options["POSITIONS"]),)](
            x,
            x.stride()[:2],
            mask,
            None if mask is None else mask.stride(),
            weights.norm_scale.contiguous(),
            weights.norm_offset.contiguous(),
            matrix_tiles(gated, chunk, 2 * inner),
            gated_bias,
            out,
            positions,
            padded,
            length,
            CHANNELS=channels,
            WIDTH=width,
            ROWS=_max_row_ends(options["POSITIONS"], padded),
            **(options | {"CHUNK": chunk}),
        )
    return out


def _max_row_ends(positions: int, padded: int) -> int:
    """Return an upper limit of the row ends among consecutive positions.

    It is one of two values, so that only two kernels are compiled.
    """
    return 1 if positions <= padded else triton.cdiv(positions, ALIGNMENT)


def padded_length(length: int) -> int:
    """Return P, the number of rows and columns of the factors and the product of N residues."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def product_scale(dtype: torch.dtype, length: int) -> float:
    """Return the power of two that keeps sums of `length` products in float16's range; 1 for other dtypes."""
    return 0.5 ** (length - 1).bit_length() if dtype == torch.float16 else 1.0


def scaled_product(left: torch.Tensor, right: torch.Tensor, outgoing: bool) -> tuple[torch.Tensor, float]:
    """Return the scaled product of factors [M, P, P], and the scale.

    The product is Σ_k left[i, k] right[j, k] for outgoing edges and Σ_k right[k, i] left[k, j] for incoming
    ones. Its LayerNorm cancels the scale.
    """
    first, second = (left, right.transpose(1, 2)) if outgoing else (right.transpose(1, 2), left)
    scale = product_scale(left.dtype, left.shape[-1])
    product = torch.empty_like(left)
    torch.baddbmm(product, first, second, beta=0, alpha=scale, out=product)
    return product, scale


def _write_update(
    product: torch.Tensor,
    scale: float,
    weights: TriangleMultiplicationWeights,
    x: torch.Tensor,
    result: torch.Tensor,
    add: bool,
    options: dict[str, Any],
) -> None:
    """Write the update of x [n, N, C] to the result, or the sum of both with `add`, from the scaled product.

    The product is [M, n, P], whose rows past N are ignored; the result may be x.
    """
    width, rows, padded = product.shape
    channels = x.shape[-1]
    block, block_width = padded_channels(channels), padded_channels(width)
    positions = rows * padded
    if positions:
        _finish[(triton.cdiv(positions, options["POSITIONS"]),)](
            product,
            LAYER_NORM_EPSILON * scale**2,
            weights.center_scale.contiguous(),
            weights.center_offset.contiguous(),
            matrix_tiles(cast_weights(weights.output, product.dtype), block_width, options["OUTPUTS"]),
            weights.output_bias.contiguous(),
            x,
            x.stride()[:2],
            weights.norm_scale.contiguous(),
            weights.norm_offset.contiguous(),
            matrix_tiles(weights.gating, block, options["OUTPUTS"]),
            weights.gating_bias.contiguous(),
            result,
            result.stride()[:2],
            positions,
            padded,
            x.shape[1],
            CHANNELS=channels,
            WIDTH=width,
            BLOCK=block,
            BLOCK_WIDTH=block_width,
            ADD=add,
            ROWS=_max_row_ends(options["POSITIONS"], padded),
            **options,
        )
