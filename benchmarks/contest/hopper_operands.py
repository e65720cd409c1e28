"""The first of the contest's kernels for Hopper GPUs: the operands of the product.

Two warpgroups each have a tile of 64 normalised positions in registers. The weights of 384 channels do not
fit in shared memory, so they are streamed: both groups multiply with a tile of weights before the next one
replaces it. The weights of 128 channels fit and stay. A third group normalises the next tiles, read from
device memory one batch of rows ahead, and a loading warp copies weights.
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
    load_tile,
    next_stage,
    previous_stage,
)
from cuda.fused.rows import EPSILON
from cuda.fused.triangle_multiplication.hopper_kernels import (
    CHUNK,
    POSITIONS,
    as_column,
    gated,
    split_halves,
    store_channels,
)

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
    scale = gl.rsqrt(gl.sum(squares, 1) * (1 / CHANNELS) + EPSILON)[:, None]
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
