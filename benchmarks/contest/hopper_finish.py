"""The second of the contest's kernels for Hopper GPUs: the result from the product."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.hopper_tiles import allocate_barriers, allocate_buffers, load_tile, load_weights
from cuda.fused.triangle_multiplication.hopper_kernels import (
    CHUNK,
    GROUPS,
    POSITIONS,
    REGISTERS,
)


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
