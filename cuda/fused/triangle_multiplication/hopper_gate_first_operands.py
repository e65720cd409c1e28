"""The operands of the contest's form of the triangle multiplication, on Hopper.

Two groups of four warps have a tile of 64 normalised positions each in registers. The weights of 384 channels
are more than shared memory has room for, so they pass by: both groups multiply with every tile of weights
before another takes its place. Those of 128 channels stay. Another group normalises the tiles after, straight
from device memory, and has a batch of their rows on its way ahead; a warp of its own copies weights. Every
buffer between them has a barrier that says it is full and one that says that it may be filled again.
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

from cuda.fused.blocks import EPSILON
from cuda.fused.hopper_rows import buffers_of
from cuda.fused.hopper_tiles import barriers, next_stage, stage_before, start_copy
from cuda.fused.triangle_multiplication.hopper_tiles import (
    CHUNK,
    POSITIONS,
    gated,
    halves,
    opened,
    rows_of,
    store_channels,
)

# output channels and input channels of a tile of weights
BLOCK, SLICE = (gl.constexpr(size) for size in (128, 64))


@gluon.jit
def _copy(
    packed, weights, full, empty, pairs, WIDTH: gl.constexpr, CHANNELS: gl.constexpr, ONCE: gl.constexpr
):  # fmt: skip
    """Copy all weights, for each pair of tiles or once."""
    stage = 0
    phase = 1
    step = gl.num_programs(0)
    if ONCE:
        step = pairs
    for _ in range(gl.program_id(0), pairs, step):
        for row in range(0, 5 * WIDTH, BLOCK):
            for column in range(0, CHANNELS, SLICE):
                mbarrier.wait(empty.index(stage), phase)
                start_copy(packed, row, column, full.index(stage), weights.index(stage))
                stage, phase = next_stage(stage, phase, weights.shape[0])


@gluon.jit
def _place(tile, start, sizes):
    """Which position of [B, N, N] is so far behind a tile's first, and how many are left of its row."""
    batch, length, padded, across = sizes
    row = tile // across
    image = row // padded
    within = row - image * padded
    first = tile % across * POSITIONS + start
    left = gl.where((image < batch) & (within < length), length - first, 0)
    return (image * length + within).to(gl.int64) * length + first, left


@gluon.jit
def _loaded(x, tile, start, sizes, BATCH: gl.constexpr, SLICES: gl.constexpr):
    """Positions of a tile from a start on, SLICES tiles of float32 [BATCH, SLICE]; 0 where there are none."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    local = gl.arange(0, BATCH, gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, SLICE, gl.SliceLayout(0, LAYOUT))
    place, left = _place(tile, start, sizes)
    start_of_rows = x + place * (SLICES * SLICE)
    places = local[:, None] * (SLICES * SLICE) + columns[None, :]
    present = (local < left)[:, None] & (columns < SLICE)[None, :]
    parts = ()
    for k in gl.static_range(SLICES):
        parts += (gl.load(start_of_rows + k * SLICE + places, mask=present, other=0.0),)
    return parts


@gluon.jit
def _normalised(parts, CHANNELS: gl.constexpr):
    """LayerNorm of rows without scale and offset; parts are [R, SLICE] each.

    Not split around the product as in the other form: float16 would not hold all of float32's numbers.
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
def _normalise(x, normed, full, empty, pairs, sizes, BATCH: gl.constexpr):
    """Normalise both tiles of each pair."""
    SLICES: gl.constexpr = normed.shape[0] // 2
    phase = 1
    pair = gl.program_id(0)
    ahead = _loaded(x, 2 * pair, 0, sizes, BATCH, SLICES)
    while pair < pairs:
        following = pair + gl.num_programs(0)
        for group in gl.static_range(2):
            mbarrier.wait(empty.index(group), phase)
            for start in gl.static_range(0, POSITIONS, BATCH):
                parts = ahead
                if start + BATCH < POSITIONS:
                    ahead = _loaded(x, 2 * pair + group, start + BATCH, sizes, BATCH, SLICES)
                elif group == 0:
                    ahead = _loaded(x, 2 * pair + 1, 0, sizes, BATCH, SLICES)
                else:
                    ahead = _loaded(x, 2 * following, 0, sizes, BATCH, SLICES)
                parts = _normalised(parts, SLICES * SLICE)
                for k in gl.static_range(SLICES):
                    rows = normed.index(group * SLICES + k).slice(start, BATCH)
                    rows.store(parts[k].to(normed.dtype))
            gl.thread_barrier()
            mbarrier.arrive(full.index(group))
        phase ^= 1
        pair = following


@gluon.jit
def _projected(operands, bias, weights, full, empty, stage, phase, ONCE: gl.constexpr):
    """The next BLOCK channels of LN(x) W + b, float32 [POSITIONS, BLOCK], and where in the ring they end."""
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    STAGES: gl.constexpr = weights.shape[0]
    columns = gl.arange(0, BLOCK, gl.SliceLayout(0, PRODUCT))
    both = gl.zeros([POSITIONS, BLOCK], gl.float32, PRODUCT) + gl.load(bias + columns)[None, :]
    for k in gl.static_range(len(operands)):
        mbarrier.wait(full.index(stage), phase)
        both = warpgroup_mma(operands[k], weights.index(stage).permute([1, 0]), both, is_async=True)
        if k > 0 and not ONCE:
            # one tile of weights goes on while the one before is given back
            both = warpgroup_mma_wait(1, deps=[both])
            mbarrier.arrive(empty.index(stage_before(stage, STAGES)))
        stage, phase = next_stage(stage, phase, STAGES)
    both = warpgroup_mma_wait(0, deps=(both,) + operands)[0]  # noqa: RUF005
    if ONCE:
        phase = 0
    else:
        mbarrier.arrive(empty.index(stage_before(stage, STAGES)))
    return both, stage, phase


@gluon.jit
def _multiply(
    GROUP: gl.constexpr, out, bias, masking, buffers, full, empty, pairs, sizes,
    WIDTH: gl.constexpr, MASKED: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """The factors and the gate of one tile of each pair."""
    batch, length, padded, across = sizes
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
        row = tile // across
        first = tile % across * POSITIONS
        kept = None
        if MASKED:
            image = row // padded
            within = row - image * padded
            column = first + local
            real = (image < batch) & (within < length) & (column < length)
            if mask is None:
                kept = real.to(gl.float32)
            else:
                place = image.to(gl.int64) * mask_image + within.to(gl.int64) * mask_row
                places = place + column.to(gl.int64) * mask_column
                kept = gl.load(mask + places, mask=real, other=0.0).to(gl.float32)
        mbarrier.wait(normed_full.index(GROUP), normed_phase)
        normed_phase ^= 1
        operands = ()
        for k in gl.static_range(SLICES):
            operands += (normed.index(GROUP * SLICES + k).load(OPERAND),)
        # all warps have read theirs
        gl.thread_barrier()
        mbarrier.arrive(normed_empty.index(GROUP))
        for channel in range(0, 2 * WIDTH, CHUNK):
            both, stage, phase = _projected(
                operands, bias + 2 * channel, weights, weights_full, weights_empty, stage, phase, ONCE
            )
            values, gates = halves(both)
            values = gated(values, gates)
            if MASKED:
                values *= rows_of(kept, values)
            buffer = channel // CHUNK % 2
            store_channels(values, out, channel, row, first, out_tiles.index(2 * GROUP + buffer))
        both, stage, phase = _projected(
            operands, bias + 4 * WIDTH, weights, weights_full, weights_empty, stage, phase, ONCE
        )
        one, two = halves(opened(both))
        store_channels(one, out, 2 * WIDTH, row, first, out_tiles.index(2 * GROUP))
        store_channels(two, out, 2 * WIDTH + CHUNK, row, first, out_tiles.index(2 * GROUP + 1))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["mask_image", "mask_row", "mask_column", "batch", "length", "padded", "pairs"])
def gate_first_operands_kernel(
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
    """(LN(x) W) ⊙ sigmoid(LN(x) G) ⊙ mask, left then right, and the output's gate, to out [3*M, B*P, P].

    P is the padded N. x is float32 [B, N, N, C], contiguous; packed is a descriptor of tiles [BLOCK, SLICE]
    of `FoldedGateFirst`, out one of tiles [CHUNK, 1, POSITIONS], two of which make one of `pairs`. MASKED
    says that there is a mask [B, N, N] or that N is padded. BATCH is how many positions are normalised at
    once, STAGES how many tiles of weights there is room for. A thread that multiplies has MULTIPLYING
    registers, one that normalises NORMALISING.
    """
    SLICES: gl.constexpr = CHANNELS // SLICE
    ONCE: gl.constexpr = STAGES == 5 * WIDTH // BLOCK * SLICES
    ROWS: gl.constexpr = gl.NVMMASharedLayout(128, 16)
    normed = gl.allocate_shared_memory(packed.dtype, [2 * SLICES, POSITIONS, SLICE], ROWS)
    weights = buffers_of(packed, STAGES)
    buffers = (normed, weights, buffers_of(out, 4))
    # the factors' buffers have one who takes them, the weights' two
    full = (barriers(2, 1), barriers(STAGES, 1))
    empty = (barriers(2, 1), barriers(STAGES, 2))
    fence_async_shared()
    across = (padded + POSITIONS - 1) // POSITIONS
    sizes = (batch, length, padded, across)
    masking = (mask, mask_image, mask_row, mask_column)
    gl.warp_specialize(
        [
            (_multiply, (0, out, bias, masking, buffers, full, empty, pairs, sizes, WIDTH, MASKED, ONCE)),
            (_multiply, (1, out, bias, masking, buffers, full, empty, pairs, sizes, WIDTH, MASKED, ONCE)),
            (_normalise, (x, normed, full[0], empty[0], pairs, sizes, BATCH)),
            (_copy, (packed, weights, full[1], empty[1], pairs, WIDTH, CHANNELS, ONCE)),
        ],
        [4, 4, 1],
        [MULTIPLYING, NORMALISING, 24],
    )
