"""The result of the contest's form of the triangle multiplication from its product, on Hopper."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.hopper_rows import buffers_of, copied_weights
from cuda.fused.hopper_tiles import barriers as barriers_of
from cuda.fused.triangle_multiplication.hopper_tiles import (
    CHUNK,
    GROUPS,
    POSITIONS,
    REGISTERS,
    copy_channels,
)


@gluon.jit
def _copy(product, gates, tile, sizes, ready, product_tile, gates_tile):
    """Start to copy a tile of the product and one of the gates, which follow the two factors."""
    length, padded, across, _ = sizes
    row = tile // across
    first = tile % across * POSITIONS
    row += row // length * (padded - length)
    copy_channels(product, 0, row, first, ready, product_tile)
    copy_channels(gates, 2 * gates.block_type.shape[0], row, first, ready, gates_tile)


@gluon.jit
def _finish_of_group(
    GROUP: gl.constexpr, product, gates, center, epsilon, result, buffers, weights_ready, barriers, sizes
):  # fmt: skip
    """One group's tiles."""
    weights, product_tiles, gates_tiles = buffers
    length, _padded, across, tiles = sizes
    center_scale, center_offset = center
    WIDTH: gl.constexpr = weights.shape[2]
    CHANNELS: gl.constexpr = weights.shape[0] * CHUNK
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    # four channels a thread, 64 bytes of a row by four threads
    WRITTEN: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 16], [0, 32], [8, 0]],
        [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 64],
    )
    product_tile, gates_tile, ready = (
        product_tiles.index(GROUP),
        gates_tiles.index(GROUP),
        barriers.index(GROUP),
    )
    inner = gl.arange(0, WIDTH, gl.SliceLayout(0, OPERAND))
    local = gl.arange(0, POSITIONS, gl.SliceLayout(1, WRITTEN))
    columns = gl.arange(0, CHUNK, gl.SliceLayout(0, WRITTEN))
    places = local[:, None] * CHANNELS + columns[None, :]
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    if tile < tiles:
        _copy(product, gates, tile, sizes, ready, product_tile, gates_tile)
    mbarrier.wait(weights_ready, 0)
    while tile < tiles:
        row = tile // across
        first = tile % across * POSITIONS
        tile += gl.num_programs(0) * GROUPS
        mbarrier.wait(ready, phase)
        phase ^= 1
        raw = product_tile.reshape([WIDTH, POSITIONS]).permute([1, 0]).load(OPERAND)
        opened = gates_tile.reshape([WIDTH, POSITIONS]).permute([1, 0]).load(OPERAND)
        if tile < tiles:
            # all warps have read theirs
            gl.thread_barrier()
            _copy(product, gates, tile, sizes, ready, product_tile, gates_tile)
        centred = raw.to(gl.float32)
        centred -= (gl.sum(centred, 1) * (1 / WIDTH))[:, None]
        scale = gl.rsqrt(gl.sum(centred * centred, 1) * (1 / WIDTH) + epsilon)
        centred *= scale[:, None]
        centred *= gl.load(center_scale + inner)[None, :]
        centred += gl.load(center_offset + inner)[None, :]
        update = (centred * opened.to(gl.float32)).to(opened.dtype)
        start = result + (row.to(gl.int64) * length + first) * CHANNELS
        present = (local < length - first)[:, None] & (columns < CHUNK)[None, :]
        for channel in range(0, CHANNELS, CHUNK):
            out = gl.zeros([POSITIONS, CHUNK], gl.float32, PRODUCT)
            out = warpgroup_mma(
                update, weights.index(channel // CHUNK).permute([1, 0]), out, use_acc=False, is_async=True
            )
            out, _ = warpgroup_mma_wait(0, deps=[out, update])
            # undoes `written_order`
            out = out.reshape([POSITIONS, CHUNK // 16, 2, 4, 2]).permute([0, 1, 3, 2, 4])
            out = gl.convert_layout(out.reshape([POSITIONS, CHUNK]), WRITTEN)
            gl.store(start + channel + places, out, mask=present)


@gluon.jit(do_not_specialize=["length", "padded", "tiles"])
def gate_first_finish_kernel(
    product, gates, packed, center_scale, center_offset, epsilon, result, length, padded, tiles,
    CHANNELS: gl.constexpr,
):  # fmt: skip
    """(LN(product) ⊙ gates) W, to result [B, N, N, C], float32 and contiguous.

    product [M, B*P, P] is a descriptor of tiles [M, 1, POSITIONS], gates one of such tiles of [3*M, B*P, P],
    the other kernel's out, packed one of tiles [CHUNK, M] of `FoldedGateFirst`. P is the padded N.
    """
    weights_ready = barriers_of(1, 1).index(0)
    # a tile of each, both of which announce themselves
    barriers = barriers_of(GROUPS, 2)
    product_tiles = buffers_of(product, GROUPS)
    gates_tiles = buffers_of(gates, GROUPS)
    fence_async_shared()
    weights = copied_weights(packed, CHANNELS // CHUNK, weights_ready)
    buffers = (weights, product_tiles, gates_tiles)
    across = (length + POSITIONS - 1) // POSITIONS
    sizes = (length, padded, across, tiles)
    center = (center_scale, center_offset)
    gl.warp_specialize(
        [
            (
                _finish_of_group,
                (0, product, gates, center, epsilon, result, buffers, weights_ready, barriers, sizes),
            ),
            (
                _finish_of_group,
                (1, product, gates, center, epsilon, result, buffers, weights_ready, barriers, sizes),
            ),
            (
                _finish_of_group,
                (2, product, gates, center, epsilon, result, buffers, weights_ready, barriers, sizes),
            ),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )
