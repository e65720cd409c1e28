"""The operands of the triangle multiplication's product, on Hopper."""

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
from cuda.fused.hopper_rows import (
    buffers_of,
    centred_rows,
    copied_weights,
    copy_positions,
    scaled,
)
from cuda.fused.hopper_tiles import barriers as barriers_of
from cuda.fused.triangle_multiplication.hopper_tiles import (
    CHUNK,
    GROUPS,
    POSITIONS,
    REGISTERS,
    gated,
    halves,
    rows_of,
    store_channels,
)


@gluon.jit
def _operands_of_group(GROUP: gl.constexpr, x, out, bias, masking, buffers, barriers, MASKED: gl.constexpr):
    """One group's tiles."""
    mask, mask_strides, length, padded = masking
    weights, x_tiles, out_tiles = buffers
    BLOCK: gl.constexpr = weights.shape[1]
    CHANNELS: gl.constexpr = weights.shape[2]
    # channels of both factors
    WIDTH: gl.constexpr = weights.shape[0] * CHUNK
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    x_tile, x_ready = x_tiles.index(GROUP), barriers.index(GROUP)
    local = gl.arange(0, POSITIONS, ROWS)
    columns = gl.arange(0, BLOCK, gl.SliceLayout(0, PRODUCT))
    across = (padded + POSITIONS - 1) // POSITIONS
    tiles = padded * across
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    buffer = 0
    if tile < tiles:
        copy_positions(x, tile, across, x_ready, x_tile)
    mbarrier.wait(barriers.index(GROUPS), 0)
    while tile < tiles:
        row = tile // across
        first = tile % across * POSITIONS
        kept = None
        if MASKED:
            column = first + local
            real = (row < length) & (column < length)
            if mask is None:
                kept = real.to(gl.float32)
            else:
                place = row.to(gl.int64) * mask_strides[0] + column.to(gl.int64) * mask_strides[1]
                kept = gl.load(mask + place, mask=real, other=0.0).to(gl.float32)
        mbarrier.wait(x_ready, phase)
        phase ^= 1
        raw = x_tile.reshape([POSITIONS, CHANNELS]).load(OPERAND)
        tile += gl.num_programs(0) * GROUPS
        if tile < tiles:
            # all warps have read theirs
            gl.thread_barrier()
            copy_positions(x, tile, across, x_ready, x_tile)
        centred, scale = centred_rows(raw, EPSILON, CHANNELS, ROWS)
        for channel in range(0, WIDTH, CHUNK):
            chunk = channel // CHUNK
            added = gl.load(bias + chunk * BLOCK + columns)
            both = gl.zeros([POSITIONS, BLOCK], gl.float32, PRODUCT)
            both = warpgroup_mma(
                centred, weights.index(chunk).permute([1, 0]), both, use_acc=False, is_async=True
            )
            both, _ = warpgroup_mma_wait(0, deps=[both, centred])
            both = scaled(both, scale, added)
            values, gates = halves(both)
            values = gated(values, gates)
            if MASKED:
                values *= rows_of(kept, values)
            store_channels(values, out, channel, row, first, out_tiles.index(2 * GROUP + buffer))
            buffer ^= 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["mask_strides", "length", "padded"])
def operands_kernel(
    x, packed, bias, mask, mask_strides, out, length, padded, WIDTH: gl.constexpr, MASKED: gl.constexpr
):  # fmt: skip
    """(LN(x) W + b) ⊙ sigmoid(LN(x) G + c) ⊙ mask, left then right, to out [2*M, padded, padded].

    x [N, N, C] is a descriptor of tiles [1, POSITIONS, C], packed one of tiles [2 * CHUNK, C] of `Folded`,
    out one of tiles [CHUNK, 1, POSITIONS]. MASKED says that there is a mask [N, N] or that N is padded.
    """
    barriers = barriers_of(GROUPS + 1, 1)
    x_tiles = buffers_of(x, GROUPS)
    out_tiles = buffers_of(out, 2 * GROUPS)
    fence_async_shared()
    weights = copied_weights(packed, 2 * WIDTH // CHUNK, barriers.index(GROUPS))
    buffers = (weights, x_tiles, out_tiles)
    masking = (mask, mask_strides, length, padded)
    gl.warp_specialize(
        [
            (_operands_of_group, (0, x, out, bias, masking, buffers, barriers, MASKED)),
            (_operands_of_group, (1, x, out, bias, masking, buffers, barriers, MASKED)),
            (_operands_of_group, (2, x, out, bias, masking, buffers, barriers, MASKED)),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )
