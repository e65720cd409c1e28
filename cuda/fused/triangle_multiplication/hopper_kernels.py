"""Device code of the triangle multiplication on Hopper GPUs: the kernels before and after the product.

Programs are persistent and keep all weights in shared memory. The three warpgroups of a program share only
these: each processes tiles of 64 positions of a row in turn, and starts to load its next tile as soon as this
one is in registers, so that the products and copies of one group run while another normalises or gates. Tiles
are transposed between channels last and channels first on their way between registers and shared memory.
The kernels take any n rows of a pair representation.

LayerNorm is split around products as in `cuda.fused.hopper_tiles`. Half of each value and gate is folded into
the weights, since values v with gates g are v / 2 · (1 + tanh(g / 2)). n rows and N columns are padded to R
and P.
"""

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
    centre_rows,
    gated,
    load_positions,
    load_tile,
    load_weights,
    scale_and_shift,
    split_halves,
)
from cuda.fused.rows import EPSILON

GROUPS = gl.constexpr(3)
POSITIONS = gl.constexpr(64)
# channels of values in a tile of weights, followed by as many of gates
CHUNK = gl.constexpr(64)
# per thread; three groups of 128 threads share 65,536
REGISTERS = gl.constexpr(168)


@gluon.jit
def as_column(x, like):
    """Return x [R] as [R, 1] in the layout of a tile [R, N] that has the same rows in each thread."""
    return gl.convert_layout(x, gl.SliceLayout(1, like.type.layout), assert_trivial=True)[:, None]


@gluon.jit
def store_channels(values, out, channel, row, first, buffer):
    """Start to store values [POSITIONS, CHUNK] to [M, N, N] through one of two alternating buffers."""
    tma.store_wait(1)
    buffer.reshape([CHUNK, POSITIONS]).permute([1, 0]).store(values.to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [channel, row, first], buffer)


@gluon.jit
def _operands_group(GROUP: gl.constexpr, x, out, bias, masking, buffers, barriers, MASKED: gl.constexpr):
    """Compute the operands of one warpgroup's tiles."""
    mask, mask_strides, rows, length, padded_rows, padded = masking
    weights, x_tiles, out_tiles = buffers
    BLOCK: gl.constexpr = weights.shape[1]
    CHANNELS: gl.constexpr = weights.shape[2]
    # channels of both factors together
    WIDTH: gl.constexpr = weights.shape[0] * CHUNK
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    x_tile, x_full = x_tiles.index(GROUP), barriers.index(GROUP)
    local = gl.arange(0, POSITIONS, ROWS)
    columns = gl.arange(0, BLOCK, gl.SliceLayout(0, PRODUCT))
    tiles_per_row = (padded + POSITIONS - 1) // POSITIONS
    tiles = padded_rows * tiles_per_row
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    buffer = 0
    if tile < tiles:
        load_positions(x, tile, tiles_per_row, x_full, x_tile)
    mbarrier.wait(barriers.index(GROUPS), 0)
    while tile < tiles:
        row = tile // tiles_per_row
        first = tile % tiles_per_row * POSITIONS
        keep = None
        if MASKED:
            column = first + local
            real = (row < rows) & (column < length)
            if mask is None:
                keep = real.to(gl.float32)
            else:
                offsets = row.to(gl.int64) * mask_strides[0] + column.to(gl.int64) * mask_strides[1]
                keep = gl.load(mask + offsets, mask=real, other=0.0).to(gl.float32)
        mbarrier.wait(x_full, phase)
        phase ^= 1
        raw = x_tile.reshape([POSITIONS, CHANNELS]).load(OPERAND)
        tile += gl.num_programs(0) * GROUPS
        if tile < tiles:
            # all warps of the group must have read the buffer before it is filled again
            gl.thread_barrier()
            load_positions(x, tile, tiles_per_row, x_full, x_tile)
        centred, scale = centre_rows(raw, EPSILON, CHANNELS, ROWS)
        for channel in range(0, WIDTH, CHUNK):
            chunk = channel // CHUNK
            shift = gl.load(bias + chunk * BLOCK + columns)
            both = gl.zeros([POSITIONS, BLOCK], gl.float32, PRODUCT)
            both = warpgroup_mma(
                centred, weights.index(chunk).permute([1, 0]), both, use_acc=False, is_async=True
            )
            both, _ = warpgroup_mma_wait(0, deps=[both, centred])
            both = scale_and_shift(both, scale, shift)
            values, gates = split_halves(both)
            values = gated(values, gates)
            if MASKED:
                values *= as_column(keep, values)
            store_channels(values, out, channel, row, first, out_tiles.index(2 * GROUP + buffer))
            buffer ^= 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["mask_strides", "rows", "length", "padded_rows", "padded"])
def operands_kernel(
    x, packed, bias, mask, mask_strides, out, rows, length, padded_rows, padded, WIDTH: gl.constexpr,
    MASKED: gl.constexpr,
):  # fmt: skip
    """Write (LN(x) W + b) ⊙ sigmoid(LN(x) G + c) ⊙ mask, left factor then right, to out [2*M, R, P].

    Descriptors: x [n, N, C] in tiles [1, POSITIONS, C], packed weights in tiles [2 * CHUNK, C], out in tiles
    [CHUNK, 1, POSITIONS]. MASKED means that there is a mask [n, N] or padding.
    """
    barriers = allocate_barriers(GROUPS + 1, 1)
    x_tiles = allocate_buffers(x, GROUPS)
    out_tiles = allocate_buffers(out, 2 * GROUPS)
    fence_async_shared()
    weights = load_weights(packed, 2 * WIDTH // CHUNK, barriers.index(GROUPS))
    buffers = (weights, x_tiles, out_tiles)
    masking = (mask, mask_strides, rows, length, padded_rows, padded)
    gl.warp_specialize(
        [
            (_operands_group, (0, x, out, bias, masking, buffers, barriers, MASKED)),
            (_operands_group, (1, x, out, bias, masking, buffers, barriers, MASKED)),
            (_operands_group, (2, x, out, bias, masking, buffers, barriers, MASKED)),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )


@gluon.jit
def _load_product(product, tile, tiles_per_row, full, buffer):
    """Start to copy tile number `tile` of the product, with all channels."""
    load_tile(product, (0, tile // tiles_per_row, tile % tiles_per_row * POSITIONS), full, buffer)


@gluon.jit
def _finish_group(
    GROUP: gl.constexpr, product, x, bias, result, buffers, barriers, rows, length, ADD: gl.constexpr
):  # fmt: skip
    """Compute the results of one warpgroup's tiles."""
    weights, product_tiles, x_tiles, result_tiles = buffers
    CHANNELS: gl.constexpr = weights.shape[2]
    CHUNKS: gl.constexpr = CHANNELS // CHUNK
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    x_tile, x_full = x_tiles.index(GROUP), barriers.index(GROUP)
    product_tile, product_full = product_tiles.index(GROUP), barriers.index(GROUPS + GROUP)
    # consecutive chunks of 128 bytes have the same layout in memory as one tile of all channels
    WHOLE: gl.constexpr = gl.NVMMASharedLayout(128, 16)
    whole = result_tiles.index(GROUP * CHUNKS)._reinterpret(result.dtype, [POSITIONS, CHANNELS], WHOLE)
    columns = gl.arange(0, CHUNK, gl.SliceLayout(0, PRODUCT))
    tiles_per_row = (length + POSITIONS - 1) // POSITIONS
    tiles = rows * tiles_per_row
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    if tile < tiles:
        _load_product(product, tile, tiles_per_row, product_full, product_tile)
        load_positions(x, tile, tiles_per_row, x_full, x_tile)
    mbarrier.wait(barriers.index(2 * GROUPS), 0)
    while tile < tiles:
        row = tile // tiles_per_row
        first = tile % tiles_per_row * POSITIONS
        tile += gl.num_programs(0) * GROUPS
        mbarrier.wait(product_full, phase)
        raw = product_tile.reshape([CHANNELS, POSITIONS]).permute([1, 0]).load(OPERAND)
        if tile < tiles:
            # all warps of the group must have read the buffer before it is filled again
            gl.thread_barrier()
            _load_product(product, tile, tiles_per_row, product_full, product_tile)
        centred, scale = centre_rows(raw, EPSILON, CHANNELS, ROWS)
        tma.store_wait(0)
        mbarrier.wait(x_full, phase)
        phase ^= 1
        x_raw = x_tile.reshape([POSITIONS, CHANNELS]).load(OPERAND)
        if ADD:
            whole.store(x_raw)
        if tile < tiles:
            gl.thread_barrier()
            load_positions(x, tile, tiles_per_row, x_full, x_tile)
        x_centred, x_scale = centre_rows(x_raw, EPSILON, CHANNELS, ROWS)
        for channel in range(0, CHANNELS, CHUNK):
            chunk = channel // CHUNK
            shift = gl.load(bias + 2 * channel + columns)
            gate_shift = gl.load(bias + 2 * channel + CHUNK + columns)
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
            update = gated(scale_and_shift(update, scale, shift), scale_and_shift(gates, x_scale, gate_shift))
            result_tile = result_tiles.index(GROUP * CHUNKS + chunk)
            flat_tile = result_tile.reshape([POSITIONS, CHUNK])
            if ADD:
                update += flat_tile.load(PRODUCT).to(gl.float32)
            flat_tile.store(update.to(result.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(result, [row, first, channel], result_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["rows", "length"])
def finish_kernel(product, x, packed, bias, result, rows, length, ADD: gl.constexpr):
    """Write sigmoid(LN(x) G + c) ⊙ (LN(product) W + b) to result [n, N, C].

    ADD adds x, which may be the result.

    Descriptors: product [C, R, P] in tiles [C, 1, POSITIONS], x in tiles [1, POSITIONS, C], packed weights in
    tiles [CHUNK, C], result in tiles [1, POSITIONS, CHUNK].
    """
    barriers = allocate_barriers(2 * GROUPS + 1, 1)
    CHUNKS: gl.constexpr = x.block_type.shape[2] // CHUNK
    product_tiles = allocate_buffers(product, GROUPS)
    x_tiles = allocate_buffers(x, GROUPS)
    result_tiles = allocate_buffers(result, GROUPS * CHUNKS)
    fence_async_shared()
    weights = load_weights(packed, 2 * CHUNKS, barriers.index(2 * GROUPS))
    buffers = (weights, product_tiles, x_tiles, result_tiles)
    gl.warp_specialize(
        [
            (_finish_group, (0, product, x, bias, result, buffers, barriers, rows, length, ADD)),
            (_finish_group, (1, product, x, bias, result, buffers, barriers, rows, length, ADD)),
            (_finish_group, (2, product, x, bias, result, buffers, barriers, rows, length, ADD)),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )
