"""The operator of GPU MODE's contest "Triangle multiplicative update": kernels, and a benchmark of them.

    python -m benchmarks.contest [--lengths 256,512,1024] [--no-peers]

The operator differs from AlphaFold2's in having no biases and in gating before the output projection. It has
float32 input and output, 128 inner channels and a tolerance of 2e-2, which is checked against its float32
reference, including cases with a mask and with long-tailed input. Times are in milliseconds. Weights are
packed for the kernels at a layer's first call, which is not timed. Compared with PyTorch and with
torch.compile under bfloat16 autocast.

The file has the operator in plain PyTorch, Triton kernels for any CUDA GPU, two kernels for Hopper GPUs, and
the benchmark. The kernels share their device functions with `cuda.fused.triangle_multiplication`.
"""

import argparse
from itertools import product
from statistics import geometric_mean
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.compiler import CompiledKernel
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from benchmarks.fused_timing import Call, Floors, milliseconds, print_times
from cuda.fused import LAYER_NORM_EPSILON
from cuda.fused.dispatch import hopper_available
from cuda.fused.hopper_tiles import (
    allocate_barriers,
    allocate_buffers,
    load_tile,
    load_weights,
    next_stage,
    previous_stage,
    tile_descriptor,
)
from cuda.fused.launch import check_tensors, first_fitting, matrix_tiles, padded_channels, program_count
from cuda.fused.layer_norm.reference import layer_norm
from cuda.fused.rows import EPSILON as KERNEL_EPSILON
from cuda.fused.rows import sigmoid
from cuda.fused.triangle_multiplication.hopper import alternate_chunks, fold_half
from cuda.fused.triangle_multiplication.hopper_kernels import (
    CHUNK,
    GROUPS,
    POSITIONS,
    REGISTERS,
    as_column,
    gated,
    split_halves,
    store_channels,
)
from cuda.fused.triangle_multiplication.triton import multiply_factors, padded_length, scaled_product
from cuda.fused.triangle_multiplication.triton_tiles import (
    load_operand_chunks,
    load_product,
    load_transposed,
    position_offsets,
    project_columns,
    store_chunk,
    store_factors,
)
from cuda.fused.weights import cached_weights, cast_weights, interleave_columns


class GateFirstWeights(NamedTuple):
    """Parameters of the contest's operator: C channels, M channels of the product, no biases.

    Args:
        norm_scale: [C], scale of the input's LayerNorm.
        norm_offset: [C], offset of the input's LayerNorm.
        left: [C, M], like right, left_gate, right_gate and output_gate.
        right: [C, M].
        left_gate: [C, M].
        right_gate: [C, M].
        output_gate: [C, M].
        center_scale: [M], scale of the product's LayerNorm.
        center_offset: [M], offset of the product's LayerNorm.
        output: [M, C].
    """

    norm_scale: torch.Tensor
    norm_offset: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    left_gate: torch.Tensor
    right_gate: torch.Tensor
    output_gate: torch.Tensor
    center_scale: torch.Tensor
    center_offset: torch.Tensor
    output: torch.Tensor


def plain_operator(
    x: torch.Tensor,
    weights: GateFirstWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool = True,
) -> torch.Tensor:
    """Compute W (LN(Σ_k a_ik · b_jk) ⊙ gate_ij) of every pair.

    Args:
        x: [B, N, N, C].
        weights: the layer's parameters.
        mask: [B, N, N], 1 for real pairs, or None for all.
        outgoing: the contest's form; otherwise the sum is Σ_k a_kj · b_ki.

    Returns:
        [B, N, N, C].
    """
    normed = layer_norm(x, weights.norm_scale, weights.norm_offset)
    left = (normed @ weights.left) * torch.sigmoid(normed @ weights.left_gate)  # [B, N, N, M]
    right = (normed @ weights.right) * torch.sigmoid(normed @ weights.right_gate)
    if mask is not None:
        left, right = left * mask[..., None], right * mask[..., None]
    equation = "bikm,bjkm->bijm" if outgoing else "bkjm,bkim->bijm"
    product = layer_norm(torch.einsum(equation, left, right), weights.center_scale, weights.center_offset)
    return (product * torch.sigmoid(normed @ weights.output_gate)) @ weights.output


# Triton kernels for any CUDA GPU

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
    """Compute the contest's operator; see `plain_operator`.

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
    if hopper_available(x.device) and hopper_supports(x, width, operands):
        return on_hopper(x, weights, mask, outgoing)
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
            LAYER_NORM_EPSILON * scale**2,
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


# The operands on Hopper GPUs. Two warpgroups each have a tile of 64 normalised positions in registers. The
# weights of 384 channels do not fit in shared memory, so they are streamed: both groups multiply with a tile
# of weights before the next one replaces it. The weights of 128 channels fit and stay. A third group
# normalises the next tiles, read from device memory one batch of rows ahead, and a loading warp copies
# weights.

# output channels and input channels of a tile of weights
BLOCK, SLICE = (gl.constexpr(size) for size in (128, 64))


@gluon.jit
def open_gates(gates):
    """Return (1 + tanh(gates)) / 2, which is sigmoid(2 · gates), of float32."""
    return gl.inline_asm_elementwise(
        """{
            .reg .f32 t;
            tanh.approx.f32 t, $1;
            fma.rn.f32 $0, t, 0f3F000000, 0f3F000000;  // 1 / 2
        }""",
        "=f,f",
        [gates],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def _load_weights(
    packed, weights, full, empty, pairs, WIDTH: gl.constexpr, CHANNELS: gl.constexpr, ONCE: gl.constexpr
):  # fmt: skip
    """Load all weights, for each pair of tiles or, if ONCE, for the first."""
    stage = 0
    phase = 1
    step = gl.num_programs(0)
    if ONCE:
        step = pairs
    for _ in range(gl.program_id(0), pairs, step):
        for row in range(0, 5 * WIDTH, BLOCK):
            for column in range(0, CHANNELS, SLICE):
                mbarrier.wait(empty.index(stage), phase)
                load_tile(packed, (row, column), full.index(stage), weights.index(stage))
                stage, phase = next_stage(stage, phase, weights.shape[0])


@gluon.jit
def _position(tile, start, sizes):
    """Return the flat position in [B, N, N] at an offset in a tile, and how many are left in its row."""
    batch, length, padded, tiles_per_row = sizes
    row = tile // tiles_per_row
    image = row // padded
    within = row - image * padded
    first = tile % tiles_per_row * POSITIONS + start
    left = gl.where((image < batch) & (within < length), length - first, 0)
    return (image * length + within).to(gl.int64) * length + first, left


@gluon.jit
def _load_batch(x, tile, start, sizes, BATCH: gl.constexpr, SLICES: gl.constexpr):
    """Load a batch of a tile's positions as SLICES tiles of float32 [BATCH, SLICE]; 0 past the row's end."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    local = gl.arange(0, BATCH, gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, SLICE, gl.SliceLayout(0, LAYOUT))
    position, left = _position(tile, start, sizes)
    start_of_rows = x + position * (SLICES * SLICE)
    offsets = local[:, None] * (SLICES * SLICE) + columns[None, :]
    mask = (local < left)[:, None] & (columns < SLICE)[None, :]
    parts = ()
    for k in gl.static_range(SLICES):
        parts += (gl.load(start_of_rows + k * SLICE + offsets, mask=mask, other=0.0),)
    return parts


@gluon.jit
def _normalise_slices(parts, CHANNELS: gl.constexpr):
    """Return LayerNorm of rows without scale and offset; parts are [R, SLICE] each.

    It is not split around the product, since float16 cannot hold all float32 inputs.
    """
    total = parts[0]
    for k in gl.static_range(1, len(parts)):
        total = total + parts[k]
    mean = (gl.sum(total, 1) * (1 / CHANNELS))[:, None]
    squares = (parts[0] - mean) * (parts[0] - mean)
    for k in gl.static_range(1, len(parts)):
        squares = gl.fma(parts[k] - mean, parts[k] - mean, squares)
    scale = gl.rsqrt(gl.sum(squares, 1) * (1 / CHANNELS) + KERNEL_EPSILON)[:, None]
    normed = ()
    for k in gl.static_range(len(parts)):
        normed += ((parts[k] - mean) * scale,)
    return normed


@gluon.jit
def _normalise_group(x, normed, full, empty, pairs, sizes, BATCH: gl.constexpr):
    """Normalise both tiles of each pair of tiles."""
    SLICES: gl.constexpr = normed.shape[0] // 2
    phase = 1
    pair = gl.program_id(0)
    ahead = _load_batch(x, 2 * pair, 0, sizes, BATCH, SLICES)
    while pair < pairs:
        next_pair = pair + gl.num_programs(0)
        for group in gl.static_range(2):
            mbarrier.wait(empty.index(group), phase)
            for start in gl.static_range(0, POSITIONS, BATCH):
                parts = ahead
                if start + BATCH < POSITIONS:
                    ahead = _load_batch(x, 2 * pair + group, start + BATCH, sizes, BATCH, SLICES)
                elif group == 0:
                    ahead = _load_batch(x, 2 * pair + 1, 0, sizes, BATCH, SLICES)
                else:
                    ahead = _load_batch(x, 2 * next_pair, 0, sizes, BATCH, SLICES)
                parts = _normalise_slices(parts, SLICES * SLICE)
                for k in gl.static_range(SLICES):
                    rows = normed.index(group * SLICES + k).slice(start, BATCH)
                    rows.store(parts[k].to(normed.dtype))
            gl.thread_barrier()
            mbarrier.arrive(full.index(group))
        phase ^= 1
        pair = next_pair


@gluon.jit
def _project_block(operands, bias, weights, full, empty, stage, phase, ONCE: gl.constexpr):
    """Return the next BLOCK channels of LN(x) W + b as float32 [POSITIONS, BLOCK], and the next stage."""
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    STAGES: gl.constexpr = weights.shape[0]
    columns = gl.arange(0, BLOCK, gl.SliceLayout(0, PRODUCT))
    both = gl.zeros([POSITIONS, BLOCK], gl.float32, PRODUCT) + gl.load(bias + columns)[None, :]
    for k in gl.static_range(len(operands)):
        mbarrier.wait(full.index(stage), phase)
        both = warpgroup_mma(operands[k], weights.index(stage).permute([1, 0]), both, is_async=True)
        if k > 0 and not ONCE:
            # this product is in flight while the buffer of the previous one is released
            both = warpgroup_mma_wait(1, deps=[both])
            mbarrier.arrive(empty.index(previous_stage(stage, STAGES)))
        stage, phase = next_stage(stage, phase, STAGES)
    both = warpgroup_mma_wait(0, deps=(both,) + operands)[0]  # noqa: RUF005
    if ONCE:
        phase = 0
    else:
        mbarrier.arrive(empty.index(previous_stage(stage, STAGES)))
    return both, stage, phase


@gluon.jit
def _multiply_group(
    GROUP: gl.constexpr, out, bias, masking, buffers, full, empty, pairs, sizes,
    WIDTH: gl.constexpr, MASKED: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """Compute the factors and the gate of one tile of each pair of tiles."""
    batch, length, padded, tiles_per_row = sizes
    mask, mask_image, mask_row, mask_column = masking
    normed, weights, out_tiles = buffers
    normed_full, weights_full = full
    normed_empty, weights_empty = empty
    SLICES: gl.constexpr = normed.shape[0] // 2
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    local = gl.arange(0, POSITIONS, gl.SliceLayout(1, PRODUCT))
    normed_phase = 0
    stage = 0
    phase = 0
    for pair in range(gl.program_id(0), pairs, gl.num_programs(0)):
        tile = 2 * pair + GROUP
        row = tile // tiles_per_row
        first = tile % tiles_per_row * POSITIONS
        keep = None
        if MASKED:
            image = row // padded
            within = row - image * padded
            column = first + local
            real = (image < batch) & (within < length) & (column < length)
            if mask is None:
                keep = real.to(gl.float32)
            else:
                row_offset = image.to(gl.int64) * mask_image + within.to(gl.int64) * mask_row
                offsets = row_offset + column.to(gl.int64) * mask_column
                keep = gl.load(mask + offsets, mask=real, other=0.0).to(gl.float32)
        mbarrier.wait(normed_full.index(GROUP), normed_phase)
        normed_phase ^= 1
        operands = ()
        for k in gl.static_range(SLICES):
            operands += (normed.index(GROUP * SLICES + k).load(OPERAND),)
        # all warps of the group must have read the buffer before it is filled again
        gl.thread_barrier()
        mbarrier.arrive(normed_empty.index(GROUP))
        for channel in range(0, 2 * WIDTH, CHUNK):
            both, stage, phase = _project_block(
                operands, bias + 2 * channel, weights, weights_full, weights_empty, stage, phase, ONCE
            )
            values, gates = split_halves(both)
            values = gated(values, gates)
            if MASKED:
                values *= as_column(keep, values)
            buffer = channel // CHUNK % 2
            store_channels(values, out, channel, row, first, out_tiles.index(2 * GROUP + buffer))
        both, stage, phase = _project_block(
            operands, bias + 4 * WIDTH, weights, weights_full, weights_empty, stage, phase, ONCE
        )
        left, right = split_halves(open_gates(both))
        store_channels(left, out, 2 * WIDTH, row, first, out_tiles.index(2 * GROUP))
        store_channels(right, out, 2 * WIDTH + CHUNK, row, first, out_tiles.index(2 * GROUP + 1))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["mask_image", "mask_row", "mask_column", "batch", "length", "padded", "pairs"])
def operands_kernel(
    x,
    packed,
    bias,
    mask,
    mask_image,
    mask_row,
    mask_column,
    out,
    batch,
    length,
    padded,
    pairs,
    CHANNELS: gl.constexpr,
    WIDTH: gl.constexpr,
    MASKED: gl.constexpr,
    BATCH: gl.constexpr,
    STAGES: gl.constexpr,
    MULTIPLYING: gl.constexpr,
    NORMALISING: gl.constexpr,
):
    """Write (LN(x) W) ⊙ sigmoid(LN(x) G) ⊙ mask of both factors, and the output's gate, to out [3*M, B*P, P].

    P is the padded N. x is float32 [B, N, N, C], contiguous. Descriptors: packed weights (`FoldedWeights`) in
    tiles [BLOCK, SLICE], out in tiles [CHUNK, 1, POSITIONS], two of which make one of `pairs`. MASKED means
    that there is a mask [B, N, N] or that N is padded. BATCH positions are normalised at once, STAGES tiles
    of weights are in shared memory, and threads have MULTIPLYING or NORMALISING registers.
    """
    SLICES: gl.constexpr = CHANNELS // SLICE
    ONCE: gl.constexpr = STAGES == 5 * WIDTH // BLOCK * SLICES
    ROWS: gl.constexpr = gl.NVMMASharedLayout(128, 16)
    normed = gl.allocate_shared_memory(packed.dtype, [2 * SLICES, POSITIONS, SLICE], ROWS)
    weights = allocate_buffers(packed, STAGES)
    buffers = (normed, weights, allocate_buffers(out, 4))
    # one warpgroup reads each buffer of positions, two read the weights
    full = (allocate_barriers(2, 1), allocate_barriers(STAGES, 1))
    empty = (allocate_barriers(2, 1), allocate_barriers(STAGES, 2))
    fence_async_shared()
    tiles_per_row = (padded + POSITIONS - 1) // POSITIONS
    sizes = (batch, length, padded, tiles_per_row)
    masking = (mask, mask_image, mask_row, mask_column)
    gl.warp_specialize(
        [
            (
                _multiply_group,
                (0, out, bias, masking, buffers, full, empty, pairs, sizes, WIDTH, MASKED, ONCE),
            ),
            (
                _multiply_group,
                (1, out, bias, masking, buffers, full, empty, pairs, sizes, WIDTH, MASKED, ONCE),
            ),
            (_normalise_group, (x, normed, full[0], empty[0], pairs, sizes, BATCH)),
            (_load_weights, (packed, weights, full[1], empty[1], pairs, WIDTH, CHANNELS, ONCE)),
        ],
        [4, 4, 1],
        [MULTIPLYING, NORMALISING, 24],
    )


# the result from the product, on Hopper GPUs
@gluon.jit
def _load_tiles(product, gates, tile, sizes, full, product_tile, gates_tile):
    """Start to copy a tile of the product and one of the gates, which follow the two factors."""
    length, padded, tiles_per_row, _ = sizes
    row = tile // tiles_per_row
    first = tile % tiles_per_row * POSITIONS
    row += row // length * (padded - length)
    load_tile(product, (0, row, first), full, product_tile)
    load_tile(gates, (2 * gates.block_type.shape[0], row, first), full, gates_tile)


@gluon.jit
def _finish_group(
    GROUP: gl.constexpr, product, gates, center, epsilon, result, buffers, weights_full, barriers, sizes
):  # fmt: skip
    """Compute the results of one warpgroup's tiles."""
    weights, product_tiles, gates_tiles = buffers
    length, _padded, tiles_per_row, tiles = sizes
    center_scale, center_offset = center
    WIDTH: gl.constexpr = weights.shape[2]
    CHANNELS: gl.constexpr = weights.shape[0] * CHUNK
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    # each thread stores four channels, four threads 64 bytes of a row
    WRITTEN: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 16], [0, 32], [8, 0]],
        [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 64],
    )
    product_tile, gates_tile, full = (
        product_tiles.index(GROUP),
        gates_tiles.index(GROUP),
        barriers.index(GROUP),
    )
    inner = gl.arange(0, WIDTH, gl.SliceLayout(0, OPERAND))
    local = gl.arange(0, POSITIONS, gl.SliceLayout(1, WRITTEN))
    columns = gl.arange(0, CHUNK, gl.SliceLayout(0, WRITTEN))
    offsets = local[:, None] * CHANNELS + columns[None, :]
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    if tile < tiles:
        _load_tiles(product, gates, tile, sizes, full, product_tile, gates_tile)
    mbarrier.wait(weights_full, 0)
    while tile < tiles:
        row = tile // tiles_per_row
        first = tile % tiles_per_row * POSITIONS
        tile += gl.num_programs(0) * GROUPS
        mbarrier.wait(full, phase)
        phase ^= 1
        raw = product_tile.reshape([WIDTH, POSITIONS]).permute([1, 0]).load(OPERAND)
        gate = gates_tile.reshape([WIDTH, POSITIONS]).permute([1, 0]).load(OPERAND)
        if tile < tiles:
            # all warps of the group must have read the buffers before they are filled again
            gl.thread_barrier()
            _load_tiles(product, gates, tile, sizes, full, product_tile, gates_tile)
        centred = raw.to(gl.float32)
        centred -= (gl.sum(centred, 1) * (1 / WIDTH))[:, None]
        scale = gl.rsqrt(gl.sum(centred * centred, 1) * (1 / WIDTH) + epsilon)
        centred *= scale[:, None]
        centred *= gl.load(center_scale + inner)[None, :]
        centred += gl.load(center_offset + inner)[None, :]
        update = (centred * gate.to(gl.float32)).to(gate.dtype)
        start = result + (row.to(gl.int64) * length + first) * CHANNELS
        mask = (local < length - first)[:, None] & (columns < CHUNK)[None, :]
        for channel in range(0, CHANNELS, CHUNK):
            out = gl.zeros([POSITIONS, CHUNK], gl.float32, PRODUCT)
            out = warpgroup_mma(
                update, weights.index(channel // CHUNK).permute([1, 0]), out, use_acc=False, is_async=True
            )
            out, _ = warpgroup_mma_wait(0, deps=[out, update])
            # restores the order of channels that `reorder_for_stores` changed
            out = out.reshape([POSITIONS, CHUNK // 16, 2, 4, 2]).permute([0, 1, 3, 2, 4])
            out = gl.convert_layout(out.reshape([POSITIONS, CHUNK]), WRITTEN)
            gl.store(start + channel + offsets, out, mask=mask)


@gluon.jit(do_not_specialize=["length", "padded", "tiles"])
def finish_kernel(
    product, gates, packed, center_scale, center_offset, epsilon, result, length, padded, tiles,
    CHANNELS: gl.constexpr,
):  # fmt: skip
    """Write (LN(product) ⊙ gates) W to result [B, N, N, C], float32 and contiguous.

    Descriptors: product [M, B*P, P] and gates [3*M, B*P, P], the first kernel's output, in tiles
    [M, 1, POSITIONS]; packed weights (`FoldedWeights`) in tiles [CHUNK, M]. P is the padded N.
    """
    weights_full = allocate_barriers(1, 1).index(0)
    # a tile of the product and one of the gates, each of which announces its bytes
    barriers = allocate_barriers(GROUPS, 2)
    product_tiles = allocate_buffers(product, GROUPS)
    gates_tiles = allocate_buffers(gates, GROUPS)
    fence_async_shared()
    weights = load_weights(packed, CHANNELS // CHUNK, weights_full)
    buffers = (weights, product_tiles, gates_tiles)
    tiles_per_row = (length + POSITIONS - 1) // POSITIONS
    sizes = (length, padded, tiles_per_row, tiles)
    center = (center_scale, center_offset)
    gl.warp_specialize(
        [
            (
                _finish_group,
                (0, product, gates, center, epsilon, result, buffers, weights_full, barriers, sizes),
            ),
            (
                _finish_group,
                (1, product, gates, center, epsilon, result, buffers, weights_full, barriers, sizes),
            ),
            (
                _finish_group,
                (2, product, gates, center, epsilon, result, buffers, weights_full, barriers, sizes),
            ),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )


# launches of the kernels for Hopper GPUs
WIDTH = 128
# by channels: positions normalised at once, tiles of weights in shared memory, registers per thread
HOPPER_LAUNCHES = {
    128: {"BATCH": 32, "STAGES": 10, "MULTIPLYING": 184, "NORMALISING": 120},
    384: {"BATCH": 8, "STAGES": 4, "MULTIPLYING": 208, "NORMALISING": 72},
}

_compiled: dict[tuple[Any, ...], CompiledKernel] = {}


def hopper_supports(x: torch.Tensor, width: int, operands: torch.dtype) -> bool:
    """Return whether the kernels support x [B, N, N, C], M inner channels and a dtype of operands."""
    return (
        x.dtype == torch.float32
        and operands == torch.float16
        and x.shape[-1] in HOPPER_LAUNCHES
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


def on_hopper(
    x: torch.Tensor, weights: GateFirstWeights, mask: torch.Tensor | None, outgoing: bool
) -> torch.Tensor:
    """Compute the operator for x [B, N, N, C] and mask [B, N, N]."""
    prepared = prepare_weights(weights)
    factors = project_factors_on_hopper(x, prepared, mask)
    product, scale = multiply_factors_on_hopper(factors, x.shape[0], outgoing)
    return finish_on_hopper(product, scale, factors, prepared, x)


def project_factors_on_hopper(
    x: torch.Tensor, weights: PreparedWeights, mask: torch.Tensor | None
) -> torch.Tensor:
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
        **HOPPER_LAUNCHES[channels],
    )
    return out


def multiply_factors_on_hopper(
    factors: torch.Tensor, batch: int, outgoing: bool
) -> tuple[torch.Tensor, float]:
    """Return the scaled product [M, B*P, P] of the factors of B pair representations, and the scale."""
    left, right = factors[: 2 * WIDTH].view(2, WIDTH * batch, *[factors.shape[-1]] * 2).unbind()
    product, scale = scaled_product(left, right, outgoing)
    return product.view(WIDTH, -1, factors.shape[-1]), scale


def finish_on_hopper(
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
            LAYER_NORM_EPSILON * scale**2,
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


# the benchmark
INNER = 128
# batch, length, channels, masked, long-tailed
CONTEST = [
    (2, 256, 128, False, False),
    (1, 768, 128, False, True),
    (2, 256, 384, True, False),
    (1, 512, 128, False, False),
    (1, 1024, 128, False, True),
    (1, 768, 384, True, False),
    (1, 1024, 384, False, False),
]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers of unit variance, divided by the first size for a matrix."""
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, device="cuda", dtype=dtype)


def random_case(batch: int, length: int, channels: int, masked: bool, tailed: bool) -> tuple[Any, ...]:
    """Return input, weights and mask of one of the contest's cases."""
    x = random(batch, length, length, channels)
    if tailed:
        # at least 1e-6, since dividing by 0 would leave nothing to compare
        x = x / random(batch, length, length, channels).abs().clamp(min=1e-6)
    mask = torch.ones(batch, length, length, device="cuda")
    if masked:
        mask = torch.randint(0, 2, mask.shape, device="cuda").float()
    shapes = [(channels,)] * 2 + [(channels, INNER)] * 5 + [(INNER,)] * 2 + [(INNER, channels)]
    return x, GateFirstWeights(*(random(*shape) for shape in shapes)), mask


def lower_bounds(floors: Floors, batch: int, length: int, channels: int) -> dict[str, float]:
    """Return lower bounds of a case's time in milliseconds."""
    positions = batch * length**2
    operations = 2 * positions * INNER * (6 * channels + length)
    # x and the result in float32; factors, gate and product in 16 bits, written and read
    return floors.of(positions * (8 * channels + 2 * 2 * 4 * INNER), operations)


def run_cases(floors: Floors, with_peers: bool) -> None:
    """Print a line for each case of the contest, and the geometric mean of our times."""
    torch.backends.cuda.matmul.allow_tf32 = False
    ours: list[float] = []
    for case in CONTEST:
        tensors = random_case(*case)
        operation = plain_operator
        result, expected = gate_first_triangle_multiplication(*tensors), operation(*tensors)
        difference = float((result - expected).abs().max())
        agrees = torch.allclose(result, expected, rtol=2e-2, atol=2e-2)
        del result, expected
        calls: dict[str, Call] = {}
        if with_peers:
            compiled = torch.compile(operation, dynamic=False)

            def autocast(compiled: Call = compiled, tensors: Any = tensors) -> torch.Tensor:
                with torch.autocast("cuda", torch.bfloat16):
                    return compiled(*tensors)

            calls = {
                "PyTorch": lambda tensors=tensors: plain_operator(*tensors),
                "torch.compile": autocast,
            }
        calls["ours"] = lambda tensors=tensors: gate_first_triangle_multiplication(*tensors)
        print_times(f"contest {case[:3]}", calls, lower_bounds(floors, *case[:3]))
        ours.append(milliseconds(calls["ours"]))
        print(f"  maximum difference {difference:.4f}, within the contest's tolerance: {agrees}", flush=True)
    print(f"contest: geometric mean of ours {geometric_mean(ours):.3f} ms", flush=True)


def passes(length: int, channels: int) -> dict[str, Call]:
    """Return calls of each step of the Triton implementation, for N and C."""
    x, weights, mask = random_case(1, length, channels, False, False)
    options = launch_options(x, torch.float16)
    factors = project_factors(x, weights, mask, torch.float16, options["operands"])
    gates = factors[2 * INNER :]
    return {
        "operands": lambda: project_factors(x, weights, mask, torch.float16, options["operands"]),
        "product": lambda: multiply_factors(factors, INNER, True),
        "finish": lambda: finish(factors[:INNER], 1.0, gates, weights, x, options["finish"]),
    }


def passes_on_hopper(length: int, channels: int) -> dict[str, Call]:
    """Return calls of each step of the Hopper implementation, for N and C."""
    x, weights, mask = random_case(1, length, channels, False, False)
    prepared = prepare_weights(weights)
    factors = project_factors_on_hopper(x, prepared, None)
    product, scale = multiply_factors_on_hopper(factors, 1, True)
    return {
        "operands": lambda: project_factors_on_hopper(x, prepared, None),
        "operands, masked": lambda: project_factors_on_hopper(x, prepared, mask),
        "product": lambda: multiply_factors_on_hopper(factors, 1, True),
        "finish": lambda: finish_on_hopper(product, scale, factors, prepared, x),
    }


def main() -> None:
    """Print one line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="256,512,1024", help="N of the steps that are timed one by one")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    floors = Floors.measure()
    steps = [("Triton", passes)] + ([("Hopper", passes_on_hopper)] if hopper_available("cuda") else [])
    for name, calls in steps:
        for length, channels in product([int(n) for n in options.lengths.split(",")], (128, 384)):
            bounds = lower_bounds(floors, 1, length, channels)
            print_times(f"{name}'s steps N {length} C {channels}", calls(length, channels), bounds)
    run_cases(floors, not options.no_peers)


if __name__ == "__main__":
    main()
