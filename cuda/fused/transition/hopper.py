"""The transition on Hopper's tensor cores, with the hidden layer in registers.

Two warpgroups process 64 rows each. A group normalises its rows and multiplies them with the widening
weights, one block of hidden channels at a time. The activated sums are already in the registers from which
the second product takes its left operand. A loading warp copies weights and the next rows to shared memory
ahead of both.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.hopper_tiles import (
    allocate_barriers,
    allocate_buffers,
    gated,
    load_tile,
    next_stage,
    split_halves,
    tile_descriptor,
)
from cuda.fused.launch import check_tensors, program_count, tma_readable
from cuda.fused.rows import EPSILON
from cuda.fused.transition import triton
from cuda.fused.transition.reference import GATE_BLOCK, TransitionWeights

ROWS = gl.constexpr(64)
# By channels: columns of a block of the widening matrix, stages of the rings of weights, and buffers of rows
# per warpgroup. With one buffer the normalised rows overwrite the rows, which are then loaded again for the
# residual.
LAUNCHES = {
    64: {"COLUMNS": 128, "STAGES": 2, "BUFFERS": 2},
    128: {"COLUMNS": 128, "STAGES": 2, "BUFFERS": 2},
    256: {"COLUMNS": 64, "STAGES": 2, "BUFFERS": 1},
}


@gluon.jit
def _load_tiles(x, widen, narrow, buffers, full, empty, tiles, WIDTH: gl.constexpr):
    """Load the weights for every tile and, if there are two buffers, the rows of the next tile."""
    rows, _, widens, narrows = buffers
    rows_full, widen_full, narrow_full = full
    rows_empty, widen_empty, narrow_empty = empty
    BUFFERS: gl.constexpr = rows.shape[0] // 2
    HIDDEN: gl.constexpr = narrows.shape[1]
    GATED: gl.constexpr = widens.shape[2] // HIDDEN - 1
    MIDDLE: gl.constexpr = WIDTH // HIDDEN // 2 * HIDDEN
    tile = gl.program_id(0)
    for group in gl.static_range(2):
        slot = group * BUFFERS
        load_tile(x, ((2 * tile + group) * ROWS, 0), rows_full.index(slot), rows.index(slot))
    buffer = BUFFERS - 1
    buffer_phase = 1
    stage = 0
    phase = 1
    while tile < tiles:
        next_tile = tile + gl.num_programs(0)
        for hidden in range(0, WIDTH, HIDDEN):
            mbarrier.wait(widen_empty.index(stage), phase)
            load_tile(widen, (0, hidden * (1 + GATED)), widen_full.index(stage), widens.index(stage))
            mbarrier.wait(narrow_empty.index(stage), phase)
            load_tile(narrow, (hidden, 0), narrow_full.index(stage), narrows.index(stage))
            stage, phase = next_stage(stage, phase, widens.shape[0])
            # halfway through a tile, the groups have finished the previous one, whose buffer is filled again
            if (BUFFERS > 1) & (hidden == MIDDLE) & (next_tile < tiles):
                for group in gl.static_range(2):
                    slot = group * BUFFERS + buffer
                    mbarrier.wait(rows_empty.index(slot), buffer_phase)
                    load_tile(x, ((2 * next_tile + group) * ROWS, 0), rows_full.index(slot), rows.index(slot))
                buffer, buffer_phase = next_stage(buffer, buffer_phase, BUFFERS)
        tile = next_tile


@gluon.jit
def _normalise(x, norm_scale, norm_offset, CHANNELS: gl.constexpr):
    """Return LayerNorm of rows [R, C] in their dtype."""
    columns = gl.arange(0, CHANNELS, gl.SliceLayout(0, x.type.layout))
    wide = x.to(gl.float32)
    centred = wide - (gl.sum(wide, axis=1) * (1 / CHANNELS))[:, None]
    variance = gl.sum(centred * centred, axis=1) * (1 / CHANNELS)
    centred *= gl.rsqrt(variance + EPSILON)[:, None]
    scale = gl.load(norm_scale + columns).to(gl.float32)
    offset = gl.load(norm_offset + columns).to(gl.float32)
    return (centred * scale[None, :] + offset[None, :]).to(x.dtype)


@gluon.jit
def _compute_group(
    GROUP: gl.constexpr,
    x,
    result,
    buffers,
    full,
    empty,
    norm,
    biases,
    tiles,
    WIDTH: gl.constexpr,
    ADD: gl.constexpr,
):
    """Compute the update of one warpgroup's rows of every tile."""
    rows, normed_rows, widens, narrows = buffers
    rows_full, widen_full, narrow_full = full
    rows_empty, widen_empty, narrow_empty = empty
    norm_scale, norm_offset = norm
    widen_bias, narrow_bias = biases
    BUFFERS: gl.constexpr = rows.shape[0] // 2
    CHANNELS: gl.constexpr = widens.shape[1]
    HIDDEN: gl.constexpr = narrows.shape[1]
    COLUMNS: gl.constexpr = widens.shape[2]
    GATED: gl.constexpr = COLUMNS // HIDDEN - 1
    dtype: gl.constexpr = rows.dtype
    WIDE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    UPDATE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHANNELS, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, UPDATE, 2)
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, WIDE))
    channels = gl.arange(0, CHANNELS, gl.SliceLayout(0, UPDATE))
    stage = 0
    phase = 0
    buffer = 0
    buffer_phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        slot = GROUP * BUFFERS + buffer
        row = (2 * tile + GROUP) * ROWS
        mbarrier.wait(rows_full.index(slot), buffer_phase)
        normed = _normalise(rows.index(slot).load(OPERAND), norm_scale, norm_offset, CHANNELS)
        if BUFFERS > 1:
            operand = normed_rows.index(GROUP)
            if tile >= gl.num_programs(0):
                # the result of the previous tile has left its buffer
                tma.store_wait(0)
                gl.thread_barrier()
                mbarrier.arrive(rows_empty.index(GROUP * BUFFERS + (buffer ^ 1)))
        else:
            operand = rows.index(slot)
        operand.store(normed)
        fence_async_shared()
        update = gl.zeros([ROWS, CHANNELS], gl.float32, UPDATE)
        for hidden in range(0, WIDTH, HIDDEN):
            bias = gl.load(widen_bias + hidden * (1 + GATED) + columns).to(gl.float32)
            wide = gl.zeros([ROWS, COLUMNS], gl.float32, WIDE) + bias[None, :]
            mbarrier.wait(widen_full.index(stage), phase)
            wide = warpgroup_mma(operand, widens.index(stage), wide, is_async=True)
            wide = warpgroup_mma_wait(0, deps=[wide])
            mbarrier.arrive(widen_empty.index(stage))
            if GATED:
                a, b = split_halves(wide)
                a *= 0.5
                wide = gated(a * b, a)
            else:
                wide = gl.maximum(wide, 0.0)
            activated = gl.convert_layout(wide.to(dtype), OPERAND)
            mbarrier.wait(narrow_full.index(stage), phase)
            update = warpgroup_mma(activated, narrows.index(stage), update, is_async=True)
            update, activated = warpgroup_mma_wait(0, deps=[update, activated])
            mbarrier.arrive(narrow_empty.index(stage))
            stage, phase = next_stage(stage, phase, widens.shape[0])
        if ADD and BUFFERS == 1:
            gl.thread_barrier()
            load_tile(x, (row, 0), rows_full.index(slot), rows.index(slot))
            buffer_phase ^= 1
        update += gl.load(narrow_bias + channels).to(gl.float32)[None, :]
        if ADD:
            if BUFFERS == 1:
                mbarrier.wait(rows_full.index(slot), buffer_phase)
            update += rows.index(slot).load(UPDATE).to(gl.float32)
        rows.index(slot).store(update.to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(result, [row, 0], rows.index(slot))
        next_tile = tile + gl.num_programs(0)
        if (BUFFERS == 1) & (next_tile < tiles):
            tma.store_wait(0)
            gl.thread_barrier()
            load_tile(x, ((2 * next_tile + GROUP) * ROWS, 0), rows_full.index(slot), rows.index(slot))
        buffer, buffer_phase = next_stage(buffer, buffer_phase, BUFFERS)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["tiles"])
def transition_kernel(
    x,
    result,
    widen,
    narrow,
    norm_scale,
    norm_offset,
    widen_bias,
    narrow_bias,
    tiles,
    WIDTH: gl.constexpr,
    ADD: gl.constexpr,
    STAGES: gl.constexpr,
    BUFFERS: gl.constexpr,
):
    """Write the update of rows [R, C] to the result, which may be x; ADD adds x to it.

    Descriptors: x and result in tiles [ROWS, C], narrow [WIDTH, C] in tiles [HIDDEN, C], widen [C, WIDTH] in
    tiles [C, HIDDEN] or, of a gated layer, [C, 2 WIDTH] in tiles [C, 2 HIDDEN]. `tiles` counts pairs of tiles
    of rows.
    """
    rows = allocate_buffers(x, 2 * BUFFERS)
    normed = allocate_buffers(x, 2) if BUFFERS > 1 else rows
    buffers = (rows, normed, allocate_buffers(widen, STAGES), allocate_buffers(narrow, STAGES))
    full = (allocate_barriers(2 * BUFFERS, 1), allocate_barriers(STAGES, 1), allocate_barriers(STAGES, 1))
    empty = (allocate_barriers(2 * BUFFERS, 1), allocate_barriers(STAGES, 2), allocate_barriers(STAGES, 2))
    fence_async_shared()
    norm = (norm_scale, norm_offset)
    biases = (widen_bias, narrow_bias)
    gl.warp_specialize(
        [
            (_compute_group, (0, x, result, buffers, full, empty, norm, biases, tiles, WIDTH, ADD)),
            (_compute_group, (1, x, result, buffers, full, empty, norm, biases, tiles, WIDTH, ADD)),
            (_load_tiles, (x, widen, narrow, buffers, full, empty, tiles, WIDTH)),
        ],
        [4, 1],
        [240, 24],
    )


def transition(x: torch.Tensor, weights: TransitionWeights, *, add: bool = False) -> torch.Tensor:
    """Compute the update of every position.

    Same arguments, result and errors as `cuda.fused.transition.triton.transition`, which handles other dtypes
    and sizes.
    """
    if not supports(x, weights):
        return triton.transition(x, weights, add=add)
    result = x if add else torch.empty_like(x)
    check_tensors("transition", x, *weights[2:])  # those of LayerNorm may be float32
    width, channels = weights.narrow.shape
    launch = dict(LAUNCHES[channels])
    columns = launch.pop("COLUMNS")
    tiles = -(-(x.numel() // channels) // (2 * ROWS.value))
    transition_kernel[(program_count(x, tiles, 1),)](
        tile_descriptor(x.view(-1, channels), ROWS.value, channels),
        tile_descriptor(result.view(-1, channels), ROWS.value, channels),
        tile_descriptor(tma_readable(weights.widen), channels, columns),
        tile_descriptor(tma_readable(weights.narrow), columns // (1 + weights.is_gated), channels),
        weights.norm_scale.contiguous(),
        weights.norm_offset.contiguous(),
        weights.widen_bias.contiguous(),
        weights.narrow_bias.contiguous(),
        tiles,
        WIDTH=width,
        ADD=add,
        num_warps=4,
        **launch,
    )
    return result


def supports(x: torch.Tensor, weights: TransitionWeights) -> bool:
    """Return whether the Hopper kernel supports rows x [..., C] and a hidden layer of W channels.

    If W is less than 4 C, the Triton kernel is faster.
    """
    width, channels = weights.narrow.shape
    is_possible = not weights.is_gated or LAUNCHES.get(channels, {}).get("COLUMNS") == 2 * GATE_BLOCK
    aligned = x.is_contiguous() and x.data_ptr() % 16 == 0
    is_wide = channels in LAUNCHES and width == 4 * channels
    return x.element_size() == 2 and is_wide and is_possible and aligned and x.numel() > 0
