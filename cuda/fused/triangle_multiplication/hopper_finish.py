"""The result of the triangle multiplication from its product, on Hopper."""

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
    copy_channels,
    gated,
)


@gluon.jit
def _finish_of_group(
    GROUP: gl.constexpr, product, x, bias, result, buffers, barriers, length, ADD: gl.constexpr
):  # fmt: skip
    """One group's tiles."""
    weights, product_tiles, x_tiles, result_tiles = buffers
    CHANNELS: gl.constexpr = weights.shape[2]
    CHUNKS: gl.constexpr = CHANNELS // CHUNK
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    x_tile, x_ready = x_tiles.index(GROUP), barriers.index(GROUP)
    product_tile, product_ready = product_tiles.index(GROUP), barriers.index(GROUPS + GROUP)
    # chunks of 128 bytes lie behind each other, as they do in one tile of all channels
    WHOLE: gl.constexpr = gl.NVMMASharedLayout(128, 16)
    whole = result_tiles.index(GROUP * CHUNKS)._reinterpret(result.dtype, [POSITIONS, CHANNELS], WHOLE)
    columns = gl.arange(0, CHUNK, gl.SliceLayout(0, PRODUCT))
    across = (length + POSITIONS - 1) // POSITIONS
    tiles = length * across
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    if tile < tiles:
        copy_channels(product, 0, tile // across, tile % across * POSITIONS, product_ready, product_tile)
        copy_positions(x, tile, across, x_ready, x_tile)
    mbarrier.wait(barriers.index(2 * GROUPS), 0)
    while tile < tiles:
        row = tile // across
        first = tile % across * POSITIONS
        tile += gl.num_programs(0) * GROUPS
        mbarrier.wait(product_ready, phase)
        raw = product_tile.reshape([CHANNELS, POSITIONS]).permute([1, 0]).load(OPERAND)
        if tile < tiles:
            # all warps have read theirs
            gl.thread_barrier()
            copy_channels(product, 0, tile // across, tile % across * POSITIONS, product_ready, product_tile)
        centred, scale = centred_rows(raw, EPSILON, CHANNELS, ROWS)
        tma.store_wait(0)
        mbarrier.wait(x_ready, phase)
        phase ^= 1
        x_raw = x_tile.reshape([POSITIONS, CHANNELS]).load(OPERAND)
        if ADD:
            whole.store(x_raw)
        if tile < tiles:
            gl.thread_barrier()
            copy_positions(x, tile, across, x_ready, x_tile)
        x_centred, x_scale = centred_rows(x_raw, EPSILON, CHANNELS, ROWS)
        for channel in range(0, CHANNELS, CHUNK):
            chunk = channel // CHUNK
            added = gl.load(bias + 2 * channel + columns)
            gates_added = gl.load(bias + 2 * channel + CHUNK + columns)
            update = gl.zeros([POSITIONS, CHUNK], gl.float32, PRODUCT)
            update = warpgroup_mma(
                centred, weights.index(2 * chunk).permute([1, 0]), update, use_acc=False, is_async=True
            )
            gates = gl.zeros([POSITIONS, CHUNK], gl.float32, PRODUCT)
            gates = warpgroup_mma(
                x_centred,
                weights.index(2 * chunk + 1).permute([1, 0]),
                gates,
                use_acc=False,
                is_async=True,
            )
            update, gates, _, _ = warpgroup_mma_wait(0, deps=[update, gates, centred, x_centred])
            update = gated(scaled(update, scale, added), scaled(gates, x_scale, gates_added))
            result_tile = result_tiles.index(GROUP * CHUNKS + chunk)
            part = result_tile.reshape([POSITIONS, CHUNK])
            if ADD:
                update += part.load(PRODUCT).to(gl.float32)
            part.store(update.to(result.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(result, [row, first, channel], result_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["length"])
def finish_kernel(product, x, packed, bias, result, length, ADD: gl.constexpr):
    """sigmoid(LN(x) G + c) ⊙ (the projection of LN(product [C, N, N])), to result [N, N, C].

    ADD adds x [N, N, C], which may be the result. product is a descriptor of tiles [C, 1, POSITIONS], x one
    of tiles [1, POSITIONS, C], packed one of tiles [CHUNK, C] of `Folded`, result one of tiles
    [1, POSITIONS, CHUNK].
    """
    barriers = barriers_of(2 * GROUPS + 1, 1)
    CHUNKS: gl.constexpr = x.block_type.shape[2] // CHUNK
    product_tiles = buffers_of(product, GROUPS)
    x_tiles = buffers_of(x, GROUPS)
    result_tiles = buffers_of(result, GROUPS * CHUNKS)
    fence_async_shared()
    weights = copied_weights(packed, 2 * CHUNKS, barriers.index(2 * GROUPS))
    buffers = (weights, product_tiles, x_tiles, result_tiles)
    gl.warp_specialize(
        [
            (_finish_of_group, (0, product, x, bias, result, buffers, barriers, length, ADD)),
            (_finish_of_group, (1, product, x, bias, result, buffers, barriers, length, ADD)),
            (_finish_of_group, (2, product, x, bias, result, buffers, barriers, length, ADD)),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )
