"""The transition on Hopper's tensor cores; the hidden layer never leaves the registers.

Two groups of four warps take 64 rows each. For a block of hidden channels a group multiplies its normalised
rows with the widening weights, and the activated sums lie in registers just as the next product takes its
left operand. A warp of its own copies weights and rows to shared memory ahead of both.
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

from cuda.fused.blocks import EPSILON


@gluon.jit
def _load(
    x, widen, narrow, xs, widens, narrows, x_full, x_empty, widen_full, widen_empty, narrow_full, narrow_empty,
    tiles, WIDTH: gl.constexpr,
):
    STAGES: gl.constexpr = widens.shape[0]
    CHANNELS: gl.constexpr = widens.shape[1]
    HIDDEN: gl.constexpr = widens.shape[2]
    BUFFERS: gl.constexpr = xs.shape[0] // 2
    BYTES: gl.constexpr = CHANNELS * HIDDEN * 2
    stage = 0
    phase = 1
    buffer = 0
    x_phase = 1
    tile = gl.program_id(0)
    for which in gl.static_range(2):
        mbarrier.expect(x_full.index(which * BUFFERS), 64 * CHANNELS * 2)
        tma.async_copy_global_to_shared(x, [tile * 128 + which * 64, 0], x_full.index(which * BUFFERS), xs.index(which * BUFFERS))
    buffer += 1
    if buffer == BUFFERS:
        buffer = 0
        x_phase ^= 1
    while tile < tiles:
        following = tile + gl.num_programs(0)
        for hidden in range(0, WIDTH, HIDDEN):
            mbarrier.wait(widen_empty.index(stage), phase)
            mbarrier.expect(widen_full.index(stage), BYTES)
            tma.async_copy_global_to_shared(widen, [0, hidden], widen_full.index(stage), widens.index(stage))
            mbarrier.wait(narrow_empty.index(stage), phase)
            mbarrier.expect(narrow_full.index(stage), BYTES)
            tma.async_copy_global_to_shared(narrow, [hidden, 0], narrow_full.index(stage), narrows.index(stage))
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
            if (BUFFERS > 1) & (hidden == (WIDTH // HIDDEN // 2) * HIDDEN) & (following < tiles):
                for which in gl.static_range(2):
                    slot = which * BUFFERS + buffer
                    mbarrier.wait(x_empty.index(slot), x_phase)
                    mbarrier.expect(x_full.index(slot), 64 * CHANNELS * 2)
                    tma.async_copy_global_to_shared(x, [following * 128 + which * 64, 0], x_full.index(slot), xs.index(slot))
                buffer += 1
                if buffer == BUFFERS:
                    buffer = 0
                    x_phase ^= 1
        tile = following


@gluon.jit
def _normalised(x, norm_scale, norm_offset, CHANNELS: gl.constexpr):
    """LayerNorm of a tile [64, C], rounded to its dtype."""
    LAYOUT: gl.constexpr = x.type.layout
    columns = gl.arange(0, CHANNELS, gl.SliceLayout(0, LAYOUT))
    wide = x.to(gl.float32)
    centred = wide - (gl.sum(wide, axis=1) * (1 / CHANNELS))[:, None]
    variance = gl.sum(centred * centred, axis=1) * (1 / CHANNELS)
    centred *= gl.rsqrt(variance + EPSILON)[:, None]
    scale = gl.load(norm_scale + columns).to(gl.float32)
    offset = gl.load(norm_offset + columns).to(gl.float32)
    return (centred * scale[None, :] + offset[None, :]).to(x.dtype)


@gluon.jit
def _consume(
    WHICH: gl.constexpr, x, result, xs, widens, narrows, x_full, x_empty, widen_full, widen_empty,
    narrow_full, narrow_empty, norm_scale, norm_offset, widen_bias, narrow_bias, tiles,
    WIDTH: gl.constexpr, ADD: gl.constexpr,
):
    STAGES: gl.constexpr = widens.shape[0]
    CHANNELS: gl.constexpr = widens.shape[1]
    HIDDEN: gl.constexpr = widens.shape[2]
    BUFFERS: gl.constexpr = xs.shape[0] // 2
    # rows stay in registers where there are enough for them, else normalised ones take their place
    HELD: gl.constexpr = CHANNELS <= 128
    dtype: gl.constexpr = xs.dtype
    WIDE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HIDDEN, 16])
    UPDATE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHANNELS, 16])
    NORMED: gl.constexpr = gl.DotOperandLayout(0, WIDE, 2)
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, UPDATE, 2)
    stage = 0
    phase = 0
    buffer = 0
    x_phase = 0
    hidden_columns = gl.arange(0, HIDDEN, gl.SliceLayout(0, WIDE))
    columns = gl.arange(0, CHANNELS, gl.SliceLayout(0, UPDATE))
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        slot = WHICH * BUFFERS + buffer
        row = tile * 128 + WHICH * 64
        mbarrier.wait(x_full.index(slot), x_phase)
        normed = _normalised(xs.index(slot).load(NORMED), norm_scale, norm_offset, CHANNELS)
        if HELD:
            operand = normed
        else:
            xs.index(slot).store(normed)
            fence_async_shared()
            operand = xs.index(slot)
        if (BUFFERS > 1) & (tile >= gl.num_programs(0)):
            # the tile before is out of its buffer: that is free for the one after
            tma.store_wait(0)
            gl.thread_barrier()
            mbarrier.arrive(x_empty.index(WHICH * BUFFERS + (buffer ^ 1)))
        update = gl.zeros([64, CHANNELS], gl.float32, UPDATE)
        for hidden in range(0, WIDTH, HIDDEN):
            bias = gl.load(widen_bias + hidden + hidden_columns).to(gl.float32)
            wide = gl.zeros([64, HIDDEN], gl.float32, WIDE) + bias[None, :]
            mbarrier.wait(widen_full.index(stage), phase)
            wide = warpgroup_mma(operand, widens.index(stage), wide, is_async=True)
            wide = warpgroup_mma_wait(0, deps=[wide])
            mbarrier.arrive(widen_empty.index(stage))
            activated = gl.convert_layout(gl.maximum(wide, 0.0).to(dtype), OPERAND)
            mbarrier.wait(narrow_full.index(stage), phase)
            update = warpgroup_mma(activated, narrows.index(stage), update, is_async=True)
            update, activated = warpgroup_mma_wait(0, deps=[update, activated])
            mbarrier.arrive(narrow_empty.index(stage))
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
        if ADD and not HELD:
            gl.thread_barrier()
            mbarrier.expect(x_full.index(slot), 64 * CHANNELS * 2)
            tma.async_copy_global_to_shared(x, [row, 0], x_full.index(slot), xs.index(slot))
        update += gl.load(narrow_bias + columns).to(gl.float32)[None, :]
        if ADD:
            if not HELD:
                mbarrier.wait(x_full.index(slot), x_phase ^ 1)
            update += xs.index(slot).load(UPDATE).to(gl.float32)
        xs.index(slot).store(update.to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(result, [row, 0], xs.index(slot))
        if BUFFERS > 1:
            buffer ^= 1
            if buffer == 0:
                x_phase ^= 1
        else:
            if not (ADD and not HELD):
                x_phase ^= 1
            following = tile + gl.num_programs(0)
            if following < tiles:
                tma.store_wait(0)
                gl.thread_barrier()
                mbarrier.expect(x_full.index(slot), 64 * CHANNELS * 2)
                tma.async_copy_global_to_shared(x, [following * 128 + WHICH * 64, 0], x_full.index(slot), xs.index(slot))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["tiles"])
def transition_kernel(
    x, result, widen, narrow, norm_scale, norm_offset, widen_bias, narrow_bias, tiles,
    WIDTH: gl.constexpr, ADD: gl.constexpr, STAGES: gl.constexpr, BUFFERS: gl.constexpr, REGISTERS: gl.constexpr,
):
    CHANNELS: gl.constexpr = widen.block_type.shape[0]
    HIDDEN: gl.constexpr = widen.block_type.shape[1]
    xs = gl.allocate_shared_memory(x.dtype, [2 * BUFFERS, 64, CHANNELS], x.layout)
    widens = gl.allocate_shared_memory(x.dtype, [STAGES, CHANNELS, HIDDEN], widen.layout)
    narrows = gl.allocate_shared_memory(x.dtype, [STAGES, HIDDEN, CHANNELS], narrow.layout)
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    x_full = gl.allocate_shared_memory(gl.int64, [2 * BUFFERS, 1], BARRIER)
    x_empty = gl.allocate_shared_memory(gl.int64, [2 * BUFFERS, 1], BARRIER)
    widen_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    widen_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    narrow_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    narrow_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for k in gl.static_range(2 * BUFFERS):
        mbarrier.init(x_full.index(k), 1)
        mbarrier.init(x_empty.index(k), 1)
    for k in gl.static_range(STAGES):
        mbarrier.init(widen_full.index(k), 1)
        mbarrier.init(widen_empty.index(k), 2)
        mbarrier.init(narrow_full.index(k), 1)
        mbarrier.init(narrow_empty.index(k), 2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_consume, (0, x, result, xs, widens, narrows, x_full, x_empty, widen_full, widen_empty, narrow_full,
                        narrow_empty, norm_scale, norm_offset, widen_bias, narrow_bias, tiles, WIDTH, ADD)),
            (_consume, (1, x, result, xs, widens, narrows, x_full, x_empty, widen_full, widen_empty, narrow_full,
                        narrow_empty, norm_scale, norm_offset, widen_bias, narrow_bias, tiles, WIDTH, ADD)),
            (_load, (x, widen, narrow, xs, widens, narrows, x_full, x_empty, widen_full, widen_empty, narrow_full,
                     narrow_empty, tiles, WIDTH)),
        ],
        [4, 1],
        [REGISTERS, 24],
    )


from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

OPTIONS = {64: dict(HIDDEN=64, STAGES=4, BUFFERS=2), 128: dict(HIDDEN=128, STAGES=2, BUFFERS=2), 256: dict(HIDDEN=64, STAGES=2, BUFFERS=1)}


def transition(x, weights, result, added, options=None):
    """x and result [R, C] contiguous."""
    channels, width = weights.widen.shape
    o = dict(OPTIONS[channels], **(options or {}))
    hidden = o.pop("HIDDEN")
    dtype = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}[x.dtype]
    def descriptor(m, shape):
        return TensorDescriptor.from_tensor(m, shape, gl.NVMMASharedLayout.get_default_for(shape, dtype))
    tiles = -(-x.shape[0] // 128)
    count = min(tiles, torch.cuda.get_device_properties(x.device).multi_processor_count)
    transition_kernel[(count,)](
        descriptor(x, [64, channels]), descriptor(result, [64, channels]),
        descriptor(weights.widen, [channels, hidden]), descriptor(weights.narrow, [hidden, channels]),
        weights.norm_scale, weights.norm_offset, weights.widen_bias, weights.narrow_bias, tiles,
        WIDTH=width, ADD=added, REGISTERS=240, num_warps=4, **o)
    return result
