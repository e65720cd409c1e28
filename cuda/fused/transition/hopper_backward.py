"""The backward pass of the transition on Hopper's tensor cores, with the sums of its products in registers.

Two warpgroups process 64 rows each. A group standardises its rows, and for one block of hidden channels after
the other computes the hidden layer and its gradient, copies both to device memory and multiplies the gradient
into that of the standardised rows, which passes on to the rows at the end. A loading warp copies weights and
the next rows to shared memory ahead of both groups.

Sums over rows in the registers of a product are slow: they take exchanges between lanes and warps for every
column. LayerNorm's scale and offset are therefore folded into the weights (`folded_norm`), and gradients of
biases are summed from shared memory, where a thread can read whole columns.
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
    load_tile,
    next_stage,
    tile_descriptor,
)
from cuda.fused.launch import check_tensors, program_count, tma_aligned, tma_readable
from cuda.fused.rows import EPSILON
from cuda.fused.transition import hopper, triton_backward
from cuda.fused.transition.folded_norm import fold, unfold
from cuda.fused.transition.reference import TransitionWeights
from cuda.fused.transition.triton_backward import HiddenGradients, TransitionGradients

ROWS = gl.constexpr(64)
# By channels: hidden channels of a block, stages of the ring of weights, and buffers of rows per warpgroup.
# With two buffers the next rows are loaded during the work on the current ones.
LAUNCHES = {
    64: {"HIDDEN": 64, "STAGES": 2, "BUFFERS": 2},
    128: {"HIDDEN": 64, "STAGES": 2, "BUFFERS": 2},
    256: {"HIDDEN": 32, "STAGES": 2, "BUFFERS": 1},
}


@gluon.jit
def _load_tiles(x, gradient, widen, narrow, buffers, full, empty, tiles, WIDTH: gl.constexpr):
    """Load the weights and gradients for every tile and, if there are two buffers, the next tile's rows."""
    rows, gradients, widens, narrows, _, _ = buffers
    rows_full, gradient_full, widen_full, narrow_full = full
    rows_empty, gradient_empty, widen_empty, narrow_empty = empty
    BUFFERS: gl.constexpr = rows.shape[0] // 2
    HIDDEN: gl.constexpr = widens.shape[2]
    MIDDLE: gl.constexpr = WIDTH // HIDDEN // 2 * HIDDEN
    tile = gl.program_id(0)
    for group in gl.static_range(2):
        slot = group * BUFFERS
        load_tile(x, ((2 * tile + group) * ROWS, 0), rows_full.index(slot), rows.index(slot))
    buffer = BUFFERS - 1
    buffer_phase = 1
    gradient_phase = 1
    stage = 0
    phase = 1
    while tile < tiles:
        next_tile = tile + gl.num_programs(0)
        for hidden in range(0, WIDTH, HIDDEN):
            mbarrier.wait(widen_empty.index(stage), phase)
            load_tile(widen, (0, hidden), widen_full.index(stage), widens.index(stage))
            mbarrier.wait(narrow_empty.index(stage), phase)
            load_tile(narrow, (hidden, 0), narrow_full.index(stage), narrows.index(stage))
            stage, phase = next_stage(stage, phase, widens.shape[0])
            # after the first weights, whose buffers the groups leave earlier than those of gradients
            if hidden == 0:
                for group in gl.static_range(2):
                    mbarrier.wait(gradient_empty.index(group), gradient_phase)
                    start = ((2 * tile + group) * ROWS, 0)
                    load_tile(gradient, start, gradient_full.index(group), gradients.index(group))
                gradient_phase ^= 1
            # halfway through a tile, the groups have finished the previous one, whose buffer is filled again
            if (BUFFERS > 1) & (hidden == MIDDLE) & (next_tile < tiles):
                for group in gl.static_range(2):
                    slot = group * BUFFERS + buffer
                    mbarrier.wait(rows_empty.index(slot), buffer_phase)
                    load_tile(x, ((2 * next_tile + group) * ROWS, 0), rows_full.index(slot), rows.index(slot))
                buffer, buffer_phase = next_stage(buffer, buffer_phase, BUFFERS)
        tile = next_tile


@gluon.jit
def _standardise(x, CHANNELS: gl.constexpr):
    """Return rows [R, C] less their means and divided by their deviations, float32, and deviations⁻¹ [R]."""
    wide = x.to(gl.float32)
    centred = wide - (gl.sum(wide, axis=1) * (1 / CHANNELS))[:, None]
    inverse = gl.rsqrt(gl.sum(centred * centred, axis=1) * (1 / CHANNELS) + EPSILON)
    return centred * inverse[:, None], inverse


@gluon.jit
def _compute_group(
    GROUP: gl.constexpr,
    tensors,
    buffers,
    full,
    empty,
    widen_bias,
    partial_sums,
    tiles,
    WIDTH: gl.constexpr,
):
    """Compute the gradients of one warpgroup's rows of every tile."""
    x, normed, hidden_layer, hidden_gradient, x_gradient = tensors
    rows, gradients, widens, narrows, hidden_tiles, hidden_gradient_tiles = buffers
    rows_full, gradient_full, widen_full, narrow_full = full
    rows_empty, gradient_empty, widen_empty, narrow_empty = empty
    BUFFERS: gl.constexpr = rows.shape[0] // 2
    CHANNELS: gl.constexpr = widens.shape[1]
    HIDDEN: gl.constexpr = widens.shape[2]
    dtype: gl.constexpr = rows.dtype
    WIDE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HIDDEN, 16])
    NARROW: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHANNELS, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, NARROW, 2)
    # for sums over rows: each thread holds all rows of its columns, or those of a warp
    COLUMNS: gl.constexpr = gl.BlockedLayout([ROWS, max(1, CHANNELS // 128)], [1, 32], [1, 4], [1, 0])
    WARPS: gl.constexpr = HIDDEN // 32
    HIDDEN_COLUMNS: gl.constexpr = gl.BlockedLayout(
        [ROWS * WARPS // 4, 1], [1, 32], [4 // WARPS, WARPS], [1, 0]
    )
    columns = gl.arange(0, CHANNELS, gl.SliceLayout(0, COLUMNS))
    hidden_columns = gl.arange(0, HIDDEN, gl.SliceLayout(0, HIDDEN_COLUMNS))
    hidden_channels = gl.arange(0, HIDDEN, gl.SliceLayout(0, WIDE))
    upstream = gradients.index(GROUP)
    hidden_tile = hidden_tiles.index(GROUP)
    hidden_gradient_tile = hidden_gradient_tiles.index(GROUP)
    stage = 0
    phase = 0
    gradient_phase = 0
    buffer = 0
    buffer_phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        slot = GROUP * BUFFERS + buffer
        row = (2 * tile + GROUP) * ROWS
        sums = partial_sums + (2 * tile + GROUP) * (CHANNELS + WIDTH)
        operand = rows.index(slot)
        mbarrier.wait(rows_full.index(slot), buffer_phase)
        standard, inverse = _standardise(operand.load(NARROW), CHANNELS)
        operand.store(standard.to(dtype))
        fence_async_shared()
        if (BUFFERS > 1) & (tile >= gl.num_programs(0)):
            # the result of the previous tile has left its buffer
            tma.store_wait(0)
            gl.thread_barrier()
            mbarrier.arrive(rows_empty.index(GROUP * BUFFERS + (buffer ^ 1)))
        tma.async_copy_shared_to_global(normed, [row, 0], operand)
        mbarrier.wait(gradient_full.index(GROUP), gradient_phase)
        gradient_phase ^= 1
        gl.store(sums + columns, gl.sum(upstream.load(COLUMNS).to(gl.float32), axis=0))
        standard_gradient = gl.zeros([ROWS, CHANNELS], gl.float32, NARROW)
        for hidden in range(0, WIDTH, HIDDEN):
            bias = gl.load(widen_bias + hidden + hidden_channels).to(gl.float32)
            zeros = gl.zeros([ROWS, HIDDEN], gl.float32, WIDE)
            mbarrier.wait(widen_full.index(stage), phase)
            wide = warpgroup_mma(operand, widens.index(stage), zeros, use_acc=False, is_async=True)
            mbarrier.wait(narrow_full.index(stage), phase)
            second = narrows.index(stage).permute((1, 0))
            wide_gradient = warpgroup_mma(upstream, second, zeros, use_acc=False, is_async=True)
            wide, wide_gradient = warpgroup_mma_wait(0, deps=[wide, wide_gradient])
            mbarrier.arrive(narrow_empty.index(stage))
            activated = gl.maximum(wide + bias[None, :], 0.0).to(dtype)
            # gradients of rows beyond the last are 0, as those of the update read as 0
            wide_gradient = gl.where(activated > 0.0, wide_gradient, 0.0)
            rounded = wide_gradient.to(dtype)
            left = gl.convert_layout(rounded, OPERAND)
            first = widens.index(stage).permute((1, 0))
            standard_gradient = warpgroup_mma(left, first, standard_gradient, is_async=True)
            # the previous block has left its buffers
            tma.store_wait(0)
            gl.thread_barrier()
            hidden_tile.store(activated)
            hidden_gradient_tile.store(rounded)
            fence_async_shared()
            tma.async_copy_shared_to_global(hidden_layer, [row, hidden], hidden_tile)
            tma.async_copy_shared_to_global(hidden_gradient, [row, hidden], hidden_gradient_tile)
            bias_gradient = gl.sum(hidden_gradient_tile.load(HIDDEN_COLUMNS).to(gl.float32), axis=0)
            gl.store(sums + CHANNELS + hidden + hidden_columns, bias_gradient)
            standard_gradient, left = warpgroup_mma_wait(0, deps=[standard_gradient, left])
            mbarrier.arrive(widen_empty.index(stage))
            stage, phase = next_stage(stage, phase, widens.shape[0])
        mbarrier.arrive(gradient_empty.index(GROUP))
        standard = operand.load(NARROW).to(gl.float32)
        average = gl.sum(standard_gradient, axis=1) * (1 / CHANNELS)
        slope = gl.sum(standard_gradient * standard, axis=1) * (1 / CHANNELS)
        result = (standard_gradient - average[:, None] - standard * slope[:, None]) * inverse[:, None]
        operand.store(result.to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(x_gradient, [row, 0], operand)
        next_tile = tile + gl.num_programs(0)
        if (BUFFERS == 1) & (next_tile < tiles):
            tma.store_wait(0)
            gl.thread_barrier()
            load_tile(x, ((2 * next_tile + GROUP) * ROWS, 0), rows_full.index(slot), operand)
        buffer, buffer_phase = next_stage(buffer, buffer_phase, BUFFERS)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["tiles"])
def transition_gradients_kernel(
    x,
    gradient,
    widen,
    narrow,
    normed,
    hidden_layer,
    hidden_gradient,
    x_gradient,
    widen_bias,
    partial_sums,
    tiles,
    WIDTH: gl.constexpr,
    STAGES: gl.constexpr,
    BUFFERS: gl.constexpr,
):
    """Write the tensors of `HiddenGradients` for rows x [R, C], with LayerNorm folded into the projection.

    Descriptors: x, gradient, normed and x_gradient in tiles [ROWS, C], hidden_layer and hidden_gradient
    [R, WIDTH] in tiles [ROWS, HIDDEN], widen [C, WIDTH] in tiles [C, HIDDEN], narrow [WIDTH, C] in tiles
    [HIDDEN, C]. `tiles` counts pairs of tiles of rows.
    """
    rows = allocate_buffers(x, 2 * BUFFERS)
    gradients = allocate_buffers(gradient, 2)
    widens, narrows = allocate_buffers(widen, STAGES), allocate_buffers(narrow, STAGES)
    hidden_tiles, gradient_tiles = allocate_buffers(hidden_layer, 2), allocate_buffers(hidden_gradient, 2)
    buffers = (rows, gradients, widens, narrows, hidden_tiles, gradient_tiles)
    rows_full, rows_empty = allocate_barriers(2 * BUFFERS, 1), allocate_barriers(2 * BUFFERS, 1)
    gradient_full, gradient_empty = allocate_barriers(2, 1), allocate_barriers(2, 1)
    widen_full, widen_empty = allocate_barriers(STAGES, 1), allocate_barriers(STAGES, 2)
    narrow_full, narrow_empty = allocate_barriers(STAGES, 1), allocate_barriers(STAGES, 2)
    full = (rows_full, gradient_full, widen_full, narrow_full)
    empty = (rows_empty, gradient_empty, widen_empty, narrow_empty)
    fence_async_shared()
    tensors = (x, normed, hidden_layer, hidden_gradient, x_gradient)
    gl.warp_specialize(
        [
            (_compute_group, (0, tensors, buffers, full, empty, widen_bias, partial_sums, tiles, WIDTH)),
            (_compute_group, (1, tensors, buffers, full, empty, widen_bias, partial_sums, tiles, WIDTH)),
            (_load_tiles, (x, gradient, widen, narrow, buffers, full, empty, tiles, WIDTH)),
        ],
        [4, 1],
        [240, 24],
    )


def transition_backward(
    gradient: torch.Tensor, x: torch.Tensor, weights: TransitionWeights
) -> TransitionGradients:
    """Compute the gradients of `cuda.fused.transition.reference.transition`.

    Same arguments, result and errors as `cuda.fused.transition.triton_backward.transition_backward`, which
    handles other dtypes and sizes.
    """
    if not (hopper.supports(x, weights) and tma_aligned(gradient)):
        return triton_backward.transition_backward(gradient, x, weights)
    check_tensors("transition", x, gradient, *weights[2:])
    channels, width = weights.widen.shape
    computed = hidden_gradients(gradient, x, *fold(weights), weights.narrow)
    vectors = computed.partial_sums.new_empty(3 * channels + width)
    gradients = triton_backward.weight_gradients(gradient, computed, vectors[2 * channels :])
    unfold(weights, gradients.widen, vectors)
    return gradients._replace(vectors=vectors)


def hidden_gradients(
    gradient: torch.Tensor,
    x: torch.Tensor,
    widen: torch.Tensor,
    widen_bias: torch.Tensor,
    narrow: torch.Tensor,
) -> HiddenGradients:
    """Run the kernel.

    Args:
        gradient: [P, C], of the update, contiguous.
        x: [P, C], contiguous.
        widen: [C, W], the first projection, into which LayerNorm's scale is folded.
        widen_bias: [W] float32, its bias.
        narrow: [W, C], the second projection.
    """
    channels, width = widen.shape
    launch = dict(LAUNCHES[channels])
    hidden = launch.pop("HIDDEN")
    tiles = -(-len(x) // (2 * ROWS.value))
    result = HiddenGradients.allocate(x, width, 2 * tiles, channels + width)
    rows = (ROWS.value, channels)
    transition_gradients_kernel[(program_count(x, tiles, 1),)](
        tile_descriptor(x, *rows),
        tile_descriptor(gradient, *rows),
        tile_descriptor(tma_readable(widen), channels, hidden),
        tile_descriptor(tma_readable(narrow), hidden, channels),
        tile_descriptor(result.normed, *rows),
        tile_descriptor(result.hidden, ROWS.value, hidden),
        tile_descriptor(result.hidden_gradient, ROWS.value, hidden),
        tile_descriptor(result.x_gradient, *rows),
        widen_bias,
        result.partial_sums,
        tiles,
        WIDTH=width,
        num_warps=4,
        **launch,
    )
    return result
