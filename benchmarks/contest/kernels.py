"""GPU kernels for the contest's operator: Triton kernels for any CUDA GPU, and the choice of Hopper's.

They share their device functions with AlphaFold2's form in `cuda.fused.triangle_multiplication`.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.contest.reference import GateFirstWeights
from cuda.fused.dispatch import hopper_available
from cuda.fused.launch import check_tensors, first_fitting, matrix_tiles, padded_channels
from cuda.fused.layer_norm.reference import EPSILON
from cuda.fused.rows import sigmoid
from cuda.fused.triangle_multiplication.triton import multiply_factors, padded_length
from cuda.fused.triangle_multiplication.triton_tiles import (
    load_operand_chunks,
    load_product,
    load_transposed,
    position_offsets,
    project_columns,
    store_chunk,
    store_factors,
)
from cuda.fused.weights import cast_weights, interleave_columns

PRECISION = {"PRECISION": "ieee"}
# as `cuda.fused.launch.first_fitting` reads them; "bytes" are those of the operands of the matrix products
LAUNCHES: list[dict[str, Any]] = [
    {
        "bytes": 4,
        "channels": 1024,
        "options": {
            "operands": PRECISION
            | {"POSITIONS": 32, "INNER": 32, "CHUNK": 64, "num_warps": 4, "num_stages": 1},
            "finish": PRECISION | {"POSITIONS": 32, "OUTPUTS": 32, "num_warps": 4, "num_stages": 1},
        },
    },
    {
        "bytes": 2,
        "channels": 128,
        "options": {
            "operands": PRECISION
            | {"POSITIONS": 128, "INNER": 64, "CHUNK": 128, "num_warps": 8, "num_stages": 2},
            "finish": PRECISION | {"POSITIONS": 64, "OUTPUTS": 64, "num_warps": 4, "num_stages": 2},
        },
    },
    {
        "bytes": 2,
        "channels": 1024,
        "options": {
            "operands": PRECISION
            | {"POSITIONS": 128, "INNER": 64, "CHUNK": 128, "num_warps": 8, "num_stages": 1},
            "finish": PRECISION | {"POSITIONS": 64, "OUTPUTS": 64, "num_warps": 4, "num_stages": 2},
        },
    },
]


@triton.jit
def _operands(
    x, x_strides, mask, mask_strides, norm_scale, norm_offset, gated, output_gate, out, plane,
    positions, padded, length, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, POSITIONS: tl.constexpr,
    INNER: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write (LN(x) W) ⊙ sigmoid(LN(x) G) ⊙ mask of both factors, and sigmoid(LN(x) O), to out [3*M, B, P, P].

    `gated` has the columns of W and G interleaved, and `output_gate` is O.
    """
    DTYPE: tl.constexpr = out.dtype.element_ty
    start = tl.program_id(0) * POSITIONS
    flat = start + tl.arange(0, POSITIONS)
    chunks, keep = load_operand_chunks(
        x, x_strides, mask, mask_strides, norm_scale, norm_offset, start, positions, padded, length,
        DTYPE, CHANNELS, POSITIONS, CHUNK, ROWS,
    )  # fmt: skip
    out += flat[:, None]
    stored = (flat < positions)[:, None]
    store_factors(
        chunks, keep, gated, None, out, plane, stored,
        DTYPE, CHANNELS, WIDTH, POSITIONS, INNER, CHUNK, PRECISION,
    )  # fmt: skip
    for first in range(0, WIDTH, INNER):
        gates = project_columns(chunks, output_gate, None, first, CHANNELS, WIDTH, INNER, CHUNK, PRECISION)
        channel = first + tl.arange(0, INNER)
        offsets = (2 * WIDTH + channel).to(tl.int64)[None, :] * plane
        tl.store(out + offsets, sigmoid(gates).to(DTYPE), mask=stored & (channel < WIDTH)[None, :])


@triton.jit
def _finish(
    product, plane, gates, epsilon, center_scale, center_offset, output, result, result_strides, positions,
    padded, length, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    POSITIONS: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write (LN(product) ⊙ gates) W, both [M, B, P, P], to result [B, N, N, C].

    output is a descriptor of [BLOCK_WIDTH, OUTPUTS] tiles of W.
    """
    DTYPE: tl.constexpr = product.dtype.element_ty
    start = tl.program_id(0) * POSITIONS
    centred = load_product(
        product, plane, start, positions, epsilon, center_scale, center_offset, WIDTH, BLOCK_WIDTH, POSITIONS
    )  # fmt: skip
    centred *= load_transposed(gates, plane, start, positions, WIDTH, BLOCK_WIDTH, POSITIONS)
    centred = centred.to(DTYPE)
    offsets, real = position_offsets(start, positions, padded, length, result_strides, POSITIONS, ROWS)
    for column in range(0, CHANNELS, OUTPUTS):
        update = tl.dot(centred, output.load([0, column]), input_precision=PRECISION)
        store_chunk(result + offsets, real, column, update, CHANNELS, OUTPUTS)


def gate_first_triangle_multiplication(
    x: torch.Tensor,
    weights: GateFirstWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool = True,
    operands: torch.dtype = torch.float16,
) -> torch.Tensor:
    """Compute the contest's operator; see `benchmarks.contest.reference`.

    Args:
        x: [B, N, N, C], channels contiguous.
        weights: the layer's parameters, of any float dtype.
        mask: [B, N, N], 1 for real pairs, or None for all.
        outgoing: whether the product is over k of (i, k) and (j, k), as in the contest, or of (k, i) and
            (k, j).
        operands: dtype of the operands of matrix products; sums and statistics are float32. Normalised inputs
            and gated values are far inside float16's range, and it rounds eight times finer than bfloat16.

    Returns:
        [B, N, N, C], of x's dtype.

    Raises:
        ValueError: the kernels do not support these tensors.
    """
    check_tensors("triangle_multiplication", x)
    width = weights.left.shape[1]
    if width > 256 or x.stride(-1) != 1:
        raise ValueError(f"the contest's kernels need contiguous channels and M of at most 256, not {width}")
    if hopper_available(x.device):
        # deferred: Gluon differs between versions of Triton
        from benchmarks.contest import hopper

        if hopper.supports(x, width, operands):
            return hopper.update(x, weights, mask, outgoing)
    return on_any_gpu(x, weights, mask, outgoing, operands)


def on_any_gpu(
    x: torch.Tensor,
    weights: GateFirstWeights,
    mask: torch.Tensor | None,
    outgoing: bool,
    operands: torch.dtype = torch.float16,
) -> torch.Tensor:
    """Compute the operator with the Triton kernels; arguments as in `gate_first_triangle_multiplication`."""
    options = launch_options(x, operands)
    width = weights.left.shape[1]
    factors = project_factors(x, weights, mask, operands, options["operands"])
    product, scale = multiply_factors(factors, width, outgoing)
    return finish(product, scale, factors[2 * width :], weights, x, options["finish"])


def launch_options(x: torch.Tensor, operands: torch.dtype) -> dict[str, Any]:
    """Return the launch options of both kernels.

    Raises:
        ValueError: the kernels do not support this number of channels.
    """
    options = first_fitting(LAUNCHES, x.new_empty(0, dtype=operands), x.shape[-1])
    if options is None:
        raise ValueError(f"the contest's kernels do not support {x.shape[-1]} channels")
    return options


def project_factors(
    x: torch.Tensor,
    weights: GateFirstWeights,
    mask: torch.Tensor | None,
    dtype: torch.dtype,
    options: dict[str, Any],
) -> torch.Tensor:
    """Compute the left factor, the right factor and the sigmoid of the output gate, [3*M, B, P, P]."""
    batch, length, _, channels = x.shape
    width = weights.left.shape[1]
    padded = padded_length(length)
    out = x.new_empty(3 * width, batch, padded, padded, dtype=dtype)
    gated = interleave_columns(
        weights.left, weights.left_gate, weights.right, weights.right_gate, dtype=dtype
    )
    chunk, inner = min(options["CHUNK"], padded_channels(channels)), options["INNER"]
    positions = batch * padded * padded
    if positions:
        _operands[(triton.cdiv(positions, options["POSITIONS"]),)](
            x,
            x.stride()[:3],
            mask,
            None if mask is None else mask.stride(),
            weights.norm_scale.contiguous(),
            weights.norm_offset.contiguous(),
            matrix_tiles(gated, chunk, 2 * inner),
            matrix_tiles(cast_weights(weights.output_gate, dtype), chunk, inner),
            out,
            positions,
            positions,
            padded,
            length,
            CHANNELS=channels,
            WIDTH=width,
            ROWS=triton.cdiv(options["POSITIONS"], padded),
            **(options | {"CHUNK": chunk}),
        )
    return out


def finish(
    product: torch.Tensor,
    scale: float,
    gates: torch.Tensor,
    weights: GateFirstWeights,
    x: torch.Tensor,
    options: dict[str, Any],
) -> torch.Tensor:
    """Return the result of x [B, N, N, C] from the scaled product and the gates, both [M, B, P, P]."""
    width, batch, padded, _ = product.shape
    result = torch.empty_like(x)
    positions = batch * padded * padded
    if positions:
        _finish[(triton.cdiv(positions, options["POSITIONS"]),)](
            product,
            positions,
            gates,
            EPSILON * scale**2,
            weights.center_scale.contiguous(),
            weights.center_offset.contiguous(),
            matrix_tiles(
                cast_weights(weights.output, product.dtype), padded_channels(width), options["OUTPUTS"]
            ),
            result,
            result.stride()[:3],
            positions,
            padded,
            x.shape[1],
            CHANNELS=x.shape[-1],
            WIDTH=width,
            BLOCK_WIDTH=padded_channels(width),
            ROWS=triton.cdiv(options["POSITIONS"], padded),
            **options,
        )
    return result
