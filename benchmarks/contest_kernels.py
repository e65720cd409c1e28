"""Kernels for Hopper GPUs of the operator in contest.py.

They share device functions with `cuda.fused.triangle_multiplication`. Weights are packed at a layer's first
call.
"""

from typing import Any, NamedTuple

import torch
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

from cuda.fused import LAYER_NORM_EPSILON
from cuda.fused.hopper_tiles import (
    allocate_barriers,
    allocate_buffers,
    gated,
    load_tile,
    load_weights,
    next_stage,
    previous_stage,
    split_halves,
    tile_descriptor,
)
from cuda.fused.launch import program_count
from cuda.fused.rows import EPSILON as KERNEL_EPSILON
from cuda.fused.triangle_multiplication.hopper import alternate_chunks, fold_half
from cuda.fused.triangle_multiplication.hopper_kernels import (
    CHUNK,
    GROUPS,
    POSITIONS,
    REGISTERS,
    as_column,
    store_channels,
)
from cuda.fused.triangle_multiplication.triton import padded_length, scaled_product
from cuda.fused.weights import cached_weights


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


def gate_first_triangle_multiplication(
    x: torch.Tensor, weights: GateFirstWeights, mask: torch.Tensor | None = None, *, outgoing: bool = True
) -> torch.Tensor:
    """Compute the operator; see `plain_operator`.

    Raises:
        ValueError: the kernels do not support these tensors.
    """
    if not supports(x, weights.left.shape[1], torch.float16):
        raise ValueError("the contest's kernels need float32, 128 or 384 channels, and 128 inner channels")
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
