"""The transition on Hopper's tensor cores; its hidden layer never leaves registers.

Two groups of four warps take 64 rows each. A group normalises its rows, multiplies them with the widening
weights a block of hidden channels at a time, and the activated sums lie in registers just as the next product
takes its left operand. A warp of its own copies weights and the next rows to shared memory ahead of both.
Every buffer there has a barrier that says it is full and one that says that it may be filled again.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.blocks import EPSILON, in_reach, programs
from cuda.fused.hopper_tiles import barriers, next_stage, start_copy, tiled
from cuda.fused.transition.reference import TransitionWeights

ROWS = gl.constexpr(64)
# by channels: hidden channels of a block, and how many blocks of each weight and tiles of a group's rows
# there is room for; where it is one tile, the normalised rows take its place and the rows are read again
LAUNCHES = {
    64: {"HIDDEN": 128, "STAGES": 2, "BUFFERS": 2},
    128: {"HIDDEN": 128, "STAGES": 2, "BUFFERS": 2},
    256: {"HIDDEN": 64, "STAGES": 2, "BUFFERS": 1},
}


@gluon.jit
def _load(x, widen, narrow, buffers, full, empty, tiles, WIDTH: gl.constexpr):
    """Copy weights for every tile and, where there is room for it, the rows of the tile after."""
    rows, _, widens, narrows = buffers
    rows_full, widen_full, narrow_full = full
    rows_empty, widen_empty, narrow_empty = empty
    BUFFERS: gl.constexpr = rows.shape[0] // 2
    HIDDEN: gl.constexpr = widens.shape[2]
    MIDDLE: gl.constexpr = WIDTH // HIDDEN // 2 * HIDDEN
    tile = gl.program_id(0)
    for group in gl.static_range(2):
        place = group * BUFFERS
        start_copy(x, (2 * tile + group) * ROWS, 0, rows_full.index(place), rows.index(place))
    buffer = BUFFERS - 1
    buffer_phase = 1
    stage = 0
    phase = 1
    while tile < tiles:
        following = tile + gl.num_programs(0)
        for hidden in range(0, WIDTH, HIDDEN):
            mbarrier.wait(widen_empty.index(stage), phase)
            start_copy(widen, 0, hidden, widen_full.index(stage), widens.index(stage))
            mbarrier.wait(narrow_empty.index(stage), phase)
            start_copy(narrow, hidden, 0, narrow_full.index(stage), narrows.index(stage))
            stage, phase = next_stage(stage, phase, widens.shape[0])
            # by now the groups are past the tile whose place the rows take
            if (BUFFERS > 1) & (hidden == MIDDLE) & (following < tiles):
                for group in gl.static_range(2):
                    place = group * BUFFERS + buffer
                    mbarrier.wait(rows_empty.index(place), buffer_phase)
                    start_copy(
                        x, (2 * following + group) * ROWS, 0, rows_full.index(place), rows.index(place)
                    )
                buffer, buffer_phase = next_stage(buffer, buffer_phase, BUFFERS)
        tile = following


@gluon.jit
def _normalised(x, norm_scale, norm_offset, CHANNELS: gl.constexpr):
    """LayerNorm of rows [R, C], rounded to their dtype."""
    columns = gl.arange(0, CHANNELS, gl.SliceLayout(0, x.type.layout))
    wide = x.to(gl.float32)
    centred = wide - (gl.sum(wide, axis=1) * (1 / CHANNELS))[:, None]
    variance = gl.sum(centred * centred, axis=1) * (1 / CHANNELS)
    centred *= gl.rsqrt(variance + EPSILON)[:, None]
    scale = gl.load(norm_scale + columns).to(gl.float32)
    offset = gl.load(norm_offset + columns).to(gl.float32)
    return (centred * scale[None, :] + offset[None, :]).to(x.dtype)


@gluon.jit
def _update(
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
    """The update of one group's rows of every tile."""
    rows, normed_rows, widens, narrows = buffers
    rows_full, widen_full, narrow_full = full
    rows_empty, widen_empty, narrow_empty = empty
    norm_scale, norm_offset = norm
    widen_bias, narrow_bias = biases
    BUFFERS: gl.constexpr = rows.shape[0] // 2
    CHANNELS: gl.constexpr = widens.shape[1]
    HIDDEN: gl.constexpr = widens.shape[2]
    dtype: gl.constexpr = rows.dtype
    WIDE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HIDDEN, 16])
    UPDATE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHANNELS, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, UPDATE, 2)
    hidden_channels = gl.arange(0, HIDDEN, gl.SliceLayout(0, WIDE))
    channels = gl.arange(0, CHANNELS, gl.SliceLayout(0, UPDATE))
    stage = 0
    phase = 0
    buffer = 0
    buffer_phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        place = GROUP * BUFFERS + buffer
        row = (2 * tile + GROUP) * ROWS
        mbarrier.wait(rows_full.index(place), buffer_phase)
        normed = _normalised(rows.index(place).load(OPERAND), norm_scale, norm_offset, CHANNELS)
        if BUFFERS > 1:
            operand = normed_rows.index(GROUP)
            if tile >= gl.num_programs(0):
                # the tile before has left its buffer by now
                tma.store_wait(0)
                gl.thread_barrier()
                mbarrier.arrive(rows_empty.index(GROUP * BUFFERS + (buffer ^ 1)))
        else:
            operand = rows.index(place)
        operand.store(normed)
        fence_async_shared()
        update = gl.zeros([ROWS, CHANNELS], gl.float32, UPDATE)
        for hidden in range(0, WIDTH, HIDDEN):
            bias = gl.load(widen_bias + hidden + hidden_channels).to(gl.float32)
            wide = gl.zeros([ROWS, HIDDEN], gl.float32, WIDE) + bias[None, :]
            mbarrier.wait(widen_full.index(stage), phase)
            wide = warpgroup_mma(operand, widens.index(stage), wide, is_async=True)
            wide = warpgroup_mma_wait(0, deps=[wide])
            mbarrier.arrive(widen_empty.index(stage))
            activated = gl.convert_layout(gl.maximum(wide, 0.0).to(dtype), OPERAND)
            mbarrier.wait(narrow_full.index(stage), phase)
            update = warpgroup_mma(activated, narrows.index(stage), update, is_async=True)
            update, activated = warpgroup_mma_wait(0, deps=[update, activated])
            mbarrier.arrive(narrow_empty.index(stage))
            stage, phase = next_stage(stage, phase, widens.shape[0])
        if ADD and BUFFERS == 1:
            gl.thread_barrier()
            start_copy(x, row, 0, rows_full.index(place), rows.index(place))
            buffer_phase ^= 1
        update += gl.load(narrow_bias + channels).to(gl.float32)[None, :]
        if ADD:
            if BUFFERS == 1:
                mbarrier.wait(rows_full.index(place), buffer_phase)
            update += rows.index(place).load(UPDATE).to(gl.float32)
        rows.index(place).store(update.to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(result, [row, 0], rows.index(place))
        following = tile + gl.num_programs(0)
        if (BUFFERS == 1) & (following < tiles):
            tma.store_wait(0)
            gl.thread_barrier()
            start_copy(x, (2 * following + GROUP) * ROWS, 0, rows_full.index(place), rows.index(place))
        buffer, buffer_phase = next_stage(buffer, buffer_phase, BUFFERS)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["tiles"])
def _transition(
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
    """The update of rows [R, C], written to the result or, with x added, to x.

    x and result are descriptors of tiles [ROWS, C], widen of tiles [C, HIDDEN] of [C, WIDTH], narrow of tiles
    [HIDDEN, C] of [WIDTH, C]. Two tiles of rows each make up `tiles`.
    """
    CHANNELS: gl.constexpr = widen.block_type.shape[0]
    HIDDEN: gl.constexpr = widen.block_type.shape[1]
    rows = gl.allocate_shared_memory(x.dtype, [2 * BUFFERS, ROWS, CHANNELS], x.layout)
    normed = gl.allocate_shared_memory(x.dtype, [2, ROWS, CHANNELS], x.layout) if BUFFERS > 1 else rows
    buffers = (
        rows,
        normed,
        gl.allocate_shared_memory(x.dtype, [STAGES, CHANNELS, HIDDEN], widen.layout),
        gl.allocate_shared_memory(x.dtype, [STAGES, HIDDEN, CHANNELS], narrow.layout),
    )
    full = (barriers(2 * BUFFERS, 1), barriers(STAGES, 1), barriers(STAGES, 1))
    empty = (barriers(2 * BUFFERS, 1), barriers(STAGES, 2), barriers(STAGES, 2))
    fence_async_shared()
    norm = (norm_scale, norm_offset)
    biases = (widen_bias, narrow_bias)
    gl.warp_specialize(
        [
            (_update, (0, x, result, buffers, full, empty, norm, biases, tiles, WIDTH, ADD)),
            (_update, (1, x, result, buffers, full, empty, norm, biases, tiles, WIDTH, ADD)),
            (_load, (x, widen, narrow, buffers, full, empty, tiles, WIDTH)),
        ],
        [4, 1],
        [240, 24],
    )


def suits(x: torch.Tensor, width: int) -> bool:
    """Whether the kernel is for rows x [..., C] and a hidden layer of so many channels.

    Where it is less than four times as wide, the other kernel is faster.
    """
    channels = x.shape[-1]
    aligned = x.is_contiguous() and x.data_ptr() % 16 == 0
    return channels in LAUNCHES and width == 4 * channels and aligned and x.numel() > 0


def write_transition(x: torch.Tensor, weights: TransitionWeights, result: torch.Tensor, add: bool) -> None:
    """Write the update of x [..., C], contiguous, to the result of its shape, with x added if wished.

    The result may be x.
    """
    channels, width = weights.widen.shape
    launch = dict(LAUNCHES[channels])
    hidden = launch.pop("HIDDEN")

    tiles = triton.cdiv(x.numel() // channels, 2 * ROWS.value)
    _transition[(programs(x, tiles, 1),)](
        tiled(x.view(-1, channels), ROWS.value, channels),
        tiled(result.view(-1, channels), ROWS.value, channels),
        tiled(in_reach(weights.widen), channels, hidden),
        tiled(in_reach(weights.narrow), hidden, channels),
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
