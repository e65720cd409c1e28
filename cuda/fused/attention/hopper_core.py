"""The core kernel of gated attention with a pair bias on Hopper GPUs, and its launch.

It computes the same as `triton_core`, with Hopper's instructions for copies and products.
Programs are persistent: each processes blocks of 128 queries of one head in four rows. A loading warp copies
tiles of keys, values and bias to shared memory ahead of their use. Four warpgroups each attend from 64 of the
queries in two of the rows, which share the bias. While one group computes exponentials, products of the
others are in flight.

Few instructions per logit matter most, for time and for power. So the product of scaled queries and keys is
accumulated onto the bias, a weight is two to the power of the result, and the sum of the softmax is a product
with ones. The weights of a query are relative to its largest bias (`relative_bias`). As in `triton_core`,
sums outside float32's middle range are counted, so that their blocks can be recomputed.
"""

import math
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.attention import triton_core as core
from cuda.fused.attention.biases import relative_bias
from cuda.fused.hopper_tiles import allocate_barriers, allocate_buffers, next_stage, tile_descriptor
from cuda.fused.launch import program_count

WIDTH = gl.constexpr(32)
# queries and rows of one warpgroup; a program has two groups along each axis
QUERIES = gl.constexpr(64)
ROWS = gl.constexpr(2)
QUERY_GROUPS = gl.constexpr(2)
GROUPS = gl.constexpr(4)
PROGRAM_ROWS = gl.constexpr(4)
# keys of a tile, and tiles in shared memory
KEYS = gl.constexpr(32)
STAGES = gl.constexpr(6)
# registers per thread: at the launch, and after their redistribution to warpgroups and loading warp
REGISTERS, GROUP_REGISTERS, LOAD_REGISTERS = 96, gl.constexpr(112), gl.constexpr(24)

LOG2_E = gl.constexpr(math.log2(math.e))
MIN_SUM = gl.constexpr(core.MIN_SUM.value)
MAX_SUM = gl.constexpr(core.MAX_SUM.value)
# layouts: a tile of 32 channels or keys in shared memory, tiles of several rows, and the registers of a group
FLAT = gl.constexpr(gl.NVMMASharedLayout(64, 16, 2))
TILES_OF_ROWS = gl.constexpr(gl.NVMMASharedLayout(64, 16, 3))
LOGITS = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16]))
WEIGHTS = gl.constexpr(gl.DotOperandLayout(0, LOGITS.value, 2))
SUMS = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 8, 16]))
# columns of the product with ones, eight in all, that hold the sums of one row
COLUMNS_OF_ROW = gl.constexpr(8 // ROWS.value)


@gluon.jit
def _zeros(like):
    """Return zeros that the compiler cannot create a second time, which would stall products in flight."""
    return gl.inline_asm_elementwise(
        "mov.f32 $0, 0f00000000; // $1", "=f,f", [like], dtype=gl.float32, is_pure=False, pack=1
    )


@gluon.jit
def _to_float32(x):
    """Convert bfloat16 to float32 with one instruction per element."""
    return gl.inline_asm_elementwise(
        "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;",
        "=f,=f,r",
        [x],
        dtype=gl.float32,
        is_pure=True,
        pack=2,
    )


@gluon.jit
def _reciprocal(x):
    """Return 1 / x with one instruction, to within one unit in the last place; infinite if x is denormal."""
    return gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def _pairs(x):
    """Return a float16 tile [QUERIES, KEYS] as int32 [QUERIES, KEYS / 2], with two neighbours in each.

    A variable of a loop takes a whole register even if it has 16 bits.
    """
    pairs = gl.inline_asm_elementwise("mov.b32 $0, $2;", "=r,=r,r", [x], dtype=gl.int32, is_pure=True, pack=2)
    pairs, _ = pairs.reshape([x.shape[0], x.shape[1] // 2, 2]).split()
    return pairs


@gluon.jit
def _half_of(pairs, CODE: gl.constexpr):
    """Convert one element of each of the `_pairs` to float32."""
    return gl.inline_asm_elementwise(CODE, "=f,r", [pairs], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def _to_logits(pairs):
    """Convert the `_pairs` of a tile to float32 [QUERIES, KEYS] with one instruction per element."""
    low = _half_of(pairs, "{ .reg .b16 low, high; mov.b32 {low, high}, $1; cvt.f32.f16 $0, low; }")
    high = _half_of(pairs, "{ .reg .b16 low, high; mov.b32 {low, high}, $1; cvt.f32.f16 $0, high; }")
    both = gl.join(low, high).reshape([pairs.shape[0], pairs.shape[1] * 2])
    return gl.convert_layout(both, LOGITS, assert_trivial=True)


@gluon.jit
def _iterations(items):
    """Return the number of work items that this program processes."""
    return gl.cdiv(items - gl.program_id(0), gl.num_programs(0))


@gluon.jit
def _work_item(iteration, query_blocks, HEADS: gl.constexpr):
    """Return the block of queries, the block of rows and the head of an iteration of this program.

    Blocks of queries vary fastest, then heads, then rows, as the heads of a position are adjacent in memory.
    """
    item = gl.program_id(0) + iteration * gl.num_programs(0)
    rest = item // query_blocks
    return item % query_blocks, rest // HEADS, rest % HEADS


@gluon.jit
def _load_rows(tiles, start, buffers, full, empty, iteration):
    """Load the queries or gates of a work item from index `start` on when their buffers are free."""
    row, position, channel = start
    mbarrier.wait(empty, (iteration & 1) ^ 1)
    mbarrier.expect(full, QUERY_GROUPS * PROGRAM_ROWS * QUERIES * WIDTH * 2)
    for group in gl.static_range(QUERY_GROUPS):
        first = position + group * QUERIES
        tma.async_copy_global_to_shared(tiles, [row, first, channel], full, buffers.index(group))


@gluon.jit
def _load_tiles(descriptors, buffers, barriers, sizes, INNER: gl.constexpr):
    """Load the tiles of all work items of this program as buffers become free."""
    query_tiles, key_tiles, bias_tiles = descriptors
    queries, keys, values, biases, gates, _ = buffers
    full, empty, queries_full, queries_empty, gates_full, gates_empty = barriers
    length, query_blocks, items = sizes
    # The previous item's results leave the gates' buffer while the first STAGES tiles are loaded.
    gates_begin = gl.minimum(STAGES, (length - 1) // KEYS) * KEYS
    stage = 0
    phase = 0
    for iteration in range(_iterations(items)):
        block, row_block, head = _work_item(iteration, query_blocks, INNER // WIDTH)
        row = row_block * PROGRAM_ROWS
        channel = head * WIDTH
        start = block * (QUERY_GROUPS * QUERIES)
        _load_rows(query_tiles, [row, start, channel], queries, queries_full, queries_empty, iteration)
        for begin in range(0, length, KEYS):
            loaded = full.index(stage)
            mbarrier.wait(empty.index(stage), phase ^ 1)
            mbarrier.expect(loaded, (2 * PROGRAM_ROWS * WIDTH + QUERY_GROUPS * QUERIES) * KEYS * 2)
            tma.async_copy_global_to_shared(
                key_tiles, [row, begin, INNER + channel], loaded, keys.index(stage)
            )
            tma.async_copy_global_to_shared(
                key_tiles, [row, begin, 2 * INNER + channel], loaded, values.index(stage)
            )
            for group in gl.static_range(QUERY_GROUPS):
                tma.async_copy_global_to_shared(
                    bias_tiles,
                    [head, start + group * QUERIES, begin],
                    loaded,
                    biases.index(stage * QUERY_GROUPS + group),
                )
            if begin == gates_begin:
                first = [row, start, 3 * INNER + channel]
                _load_rows(query_tiles, first, gates, gates_full, gates_empty, iteration)
            stage, phase = next_stage(stage, phase, STAGES)


@gluon.jit
def _group_tile(buffers, GROUP: gl.constexpr):
    """Return the queries or gates [PROGRAM_ROWS, QUERIES, WIDTH] of one group's block, in shared memory."""
    shape: gl.constexpr = [PROGRAM_ROWS, QUERIES, WIDTH]
    return buffers.index(GROUP % QUERY_GROUPS)._reinterpret(buffers.dtype, shape, FLAT)


@gluon.jit
def _row_tile(tiles, stage, row):
    """Return the keys or values [KEYS, WIDTH] of one row, in shared memory."""
    shape: gl.constexpr = [PROGRAM_ROWS, KEYS, WIDTH]
    return tiles.index(stage)._reinterpret(tiles.dtype, shape, FLAT).index(row)


@gluon.jit
def _queries_of(block):
    """Return the indices of the queries of a block, int32 [QUERIES]."""
    return block * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, LOGITS))


@gluon.jit
def _load_bias(biases, stage, GROUP: gl.constexpr):
    """Load the bias of a group's queries from shared memory, as `_pairs`."""
    slot = stage * QUERY_GROUPS + GROUP % QUERY_GROUPS
    tile = biases.index(slot)._reinterpret(biases.dtype, [QUERIES, KEYS], FLAT)
    return _pairs(tile.load(LOGITS))


@gluon.jit
def _load_queries(tile, scale, FIRST: gl.constexpr):
    """Load the queries of a group in each of its rows from shared memory, times the scale."""
    queries = ()
    for k in gl.static_range(ROWS):
        query = _to_float32(tile.index(FIRST + k).load(WEIGHTS)) * scale
        queries += (query.to(tile.dtype),)
    return queries


@gluon.jit
def _attend_group(GROUP: gl.constexpr, inputs, output, statistics, INNER: gl.constexpr, SAVE: gl.constexpr):
    """Compute all work items of this program for the queries and rows of one warpgroup."""
    buffers, barriers, sizes, scale = inputs
    query_tiles, keys, values, biases, gate_tiles, ones = buffers
    full, empty, queries_full, queries_empty, gates_full, gates_empty = barriers
    length, query_blocks, items = sizes
    gated_tiles = output[0]
    FIRST: gl.constexpr = GROUP // QUERY_GROUPS * ROWS
    tiles = (length - 1) // KEYS + 1
    stage = 0
    phase = 0
    for iteration in range(_iterations(items)):
        block, row_block, head = _work_item(iteration, query_blocks, INNER // WIDTH)
        block = block * QUERY_GROUPS + GROUP % QUERY_GROUPS
        first_row = row_block * PROGRAM_ROWS + FIRST
        counter = _cleared_counter(output, block, first_row, head, length, INNER)
        mbarrier.wait(queries_full, iteration & 1)
        queries = _load_queries(_group_tile(query_tiles, GROUP), scale, FIRST)
        mbarrier.arrive(queries_empty, count=1)
        mbarrier.wait(full.index(stage), phase)
        bias = _load_bias(biases, stage, GROUP)
        key = _row_tile(keys, stage, FIRST).permute((1, 0))
        logits = warpgroup_mma(queries[0], key, _to_logits(bias))
        # the previous item's results have left shared memory
        tma.store_wait(0)
        mbarrier.arrive(gates_empty, count=1, pred=iteration > 0)
        total = _zeros(gl.zeros([QUERIES, 8], gl.float32, SUMS))
        out = ()
        for _ in gl.static_range(ROWS):
            out += (_zeros(logits),)
        for tile in range(tiles):
            following, following_phase = next_stage(stage, phase, STAGES)
            new_out = ()
            for k in gl.static_range(ROWS):
                weights = gl.convert_layout(gl.exp2(logits).to(keys.dtype), WEIGHTS, assert_trivial=True)
                # the logits of the next row, or of the next tile's first one
                if k + 1 < ROWS:
                    key = _row_tile(keys, stage, FIRST + k + 1).permute((1, 0))
                else:
                    # after the last tile there is no next one; its logits are not used
                    mbarrier.wait(full.index(following), following_phase, pred=tile + 1 < tiles)
                    bias = _load_bias(biases, following, GROUP)
                    key = _row_tile(keys, following, FIRST).permute((1, 0))
                next_logits = warpgroup_mma(queries[(k + 1) % ROWS], key, _to_logits(bias), is_async=True)
                # this row's weighted values, and the sum of its weights
                value = _row_tile(values, stage, FIRST + k)
                weighted = warpgroup_mma(weights, value, out[k], is_async=True)
                summed = warpgroup_mma(weights, ones.index(k).permute((1, 0)), total, is_async=True)
                logits, weighted, total = warpgroup_mma_wait(0, deps=[next_logits, weighted, summed])
                new_out += (weighted,)
            mbarrier.arrive(empty.index(stage), count=1)
            out = new_out
            stage = following
            phase = following_phase
        mbarrier.wait(gates_full, iteration & 1)
        gates = _group_tile(gate_tiles, GROUP)
        _finish(out, total, gates, counter, output, block, first_row, head, length, FIRST)
        if SAVE:
            _save_statistics(total, statistics, output, block, first_row, head, length, INNER)
        fence_async_shared()
        gl.thread_barrier()
        shape: gl.constexpr = [PROGRAM_ROWS // ROWS, ROWS, QUERIES, WIDTH]
        results = gate_tiles.index(GROUP % QUERY_GROUPS)._reinterpret(keys.dtype, shape, TILES_OF_ROWS)
        tma.async_copy_shared_to_global(
            gated_tiles, [first_row, block * QUERIES, head * WIDTH], results.index(FIRST // ROWS)
        )
    tma.store_wait(0)


@gluon.jit
def _cleared_counter(output, block, first_row, head, length, INNER: gl.constexpr):
    """Return the pointer to the number of a block's sums that are out of range, after setting it to 0."""
    _, _, batch, out_of_range = output
    blocks = gl.cdiv(length, QUERIES)
    counter = out_of_range + (first_row // ROWS * (INNER // WIDTH) + head) * blocks + block
    gl.store(counter, 0, mask=(block < blocks) & (first_row < batch))
    return counter


@gluon.jit
def _sums(total, k: gl.constexpr):
    """Return the sums of a row's weights, float32 [QUERIES], from those of all rows."""
    column = gl.arange(0, 8, gl.SliceLayout(0, SUMS))
    own = gl.where((column // COLUMNS_OF_ROW == k)[None, :], total, 0.0)
    return gl.convert_layout(gl.sum(own, 1) * (1 / COLUMNS_OF_ROW), gl.SliceLayout(1, LOGITS))


@gluon.jit
def _finish(out, total, tile, counter, output, block, first_row, head, length, FIRST: gl.constexpr):
    """Divide by the sums, gate, and write one group's results over its gates; count sums out of range."""
    _, gating_bias, batch, _ = output
    in_range = _queries_of(block) < length
    channel = gl.arange(0, WIDTH, gl.SliceLayout(0, LOGITS))
    gate_bias = gl.load(gating_bias + head * WIDTH + channel).to(gl.float32) * -LOG2_E
    for k in gl.static_range(ROWS):
        sums = _sums(total, k)
        gates = _to_float32(tile.index(FIRST + k).load(LOGITS))
        # sigmoid(gates + gating bias) / sums
        factor = _reciprocal(sums[:, None] * (1 + gl.exp2(gates * -LOG2_E + gate_bias[None, :])))
        tile.index(FIRST + k).store((out[k] * factor).to(tile.dtype))
        # written so that NaN counts as out of range
        outside = gl.where((sums > MIN_SUM) & (sums < MAX_SUM), 0, 1)
        counted = in_range & (first_row + k < batch) & (outside > 0)
        gl.atomic_add(counter + gl.zeros_like(outside), outside, mask=counted, sem="relaxed")


@gluon.jit
def _save_statistics(total, statistics, output, block, first_row, head, length, INNER: gl.constexpr):
    """Store the logits that weights are relative to, and the sums of weights."""
    bias_maxima, maxima, sums_of_weights = statistics
    _, _, batch, _ = output
    query = _queries_of(block)
    maximum = gl.load(bias_maxima + head * length + query, mask=query < length, other=0.0)
    for k in gl.static_range(ROWS):
        row = (first_row + k).to(gl.int64)
        offsets = (row * (INNER // WIDTH) + head) * length + query
        exists = (query < length) & (row < batch)
        gl.store(maxima + offsets, maximum, mask=exists)
        gl.store(sums_of_weights + offsets, _sums(total, k), mask=exists)


@gluon.jit
def _allocate_barrier(ARRIVALS: gl.constexpr):
    """Allocate a barrier that waits for ARRIVALS arrivals."""
    return allocate_barriers(1, ARRIVALS).index(0)


@gluon.jit
def _ones(dtype: gl.constexpr):
    """Return operands [ROWS, 8, KEYS] in shared memory, with ones in each row's columns of the sums."""
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    operands = gl.allocate_shared_memory(dtype, [ROWS, 8, KEYS], FLAT)
    column = gl.arange(0, 8, gl.SliceLayout(1, layout))
    for k in gl.static_range(ROWS):
        own = (column // COLUMNS_OF_ROW == k)[:, None]
        ones = gl.full([8, KEYS], 1.0, gl.float32, layout)
        operands.index(k).store(gl.where(own, ones, 0.0).to(dtype))
    fence_async_shared()
    return operands


@gluon.jit(do_not_specialize=["batch", "length", "query_blocks", "items"])
def attention_kernel(
    query_tiles, key_tiles, bias_tiles, gated_tiles, gating_bias, batch, out_of_range, bias_maxima, maxima,
    sums, length, query_blocks, items, scale, INNER: gl.constexpr, SAVE: gl.constexpr,
):  # fmt: skip
    """Write softmax(q kᵀ · scale + bias) v ⊙ sigmoid(g + b) of all blocks.

    query_tiles and key_tiles are descriptors of q, k, v and g [B, L, 4*H*D], bias_tiles of `relative_bias`
    [H, L, K], gated_tiles of the result [B, L, H*D]. bias_maxima [H, L] is the largest bias of each query.
    The scale includes log2 e. out_of_range receives the number of sums outside the middle range of each
    block. If SAVE, maxima and sums [B, H, L] receive the logit that each query's weights are relative to, and
    the sum of the weights.
    """
    dtype: gl.constexpr = query_tiles.dtype
    queries = allocate_buffers(query_tiles, QUERY_GROUPS)
    keys = allocate_buffers(key_tiles, STAGES)
    values = allocate_buffers(key_tiles, STAGES)
    biases = allocate_buffers(bias_tiles, STAGES * QUERY_GROUPS)
    gates = allocate_buffers(query_tiles, QUERY_GROUPS)
    full, empty = allocate_barriers(STAGES, 1), allocate_barriers(STAGES, GROUPS)
    queries_full, queries_empty = _allocate_barrier(1), _allocate_barrier(GROUPS)
    gates_full, gates_empty = _allocate_barrier(1), _allocate_barrier(GROUPS)
    ones = _ones(dtype)
    buffers = (queries, keys, values, biases, gates, ones)
    barriers = (full, empty, queries_full, queries_empty, gates_full, gates_empty)
    sizes = (length, query_blocks, items)
    output = (gated_tiles, gating_bias, batch, out_of_range)
    statistics = (bias_maxima, maxima, sums)
    inputs = (buffers, barriers, sizes, scale)
    gl.warp_specialize(
        [
            (_attend_group, (0, inputs, output, statistics, INNER, SAVE)),
            (_attend_group, (1, inputs, output, statistics, INNER, SAVE)),
            (_attend_group, (2, inputs, output, statistics, INNER, SAVE)),
            (_attend_group, (3, inputs, output, statistics, INNER, SAVE)),
            (_load_tiles, ((query_tiles, key_tiles, bias_tiles), buffers, barriers, sizes, INNER)),
        ],
        [4, 4, 4, 1],
        [GROUP_REGISTERS, GROUP_REGISTERS, GROUP_REGISTERS, LOAD_REGISTERS],
    )


def launch_core(arguments: tuple[Any, ...], heads: int) -> None:
    """Launch the kernel for bfloat16 heads of 32 channels, a pair bias, and no mask or one for all rows.

    Args:
        arguments: those of a `CoreLaunch`. The projections and the result must satisfy `tma_aligned`, and the
            bias of keys past the last one must be -inf. The counts of sums out of range are those of blocks
            of QUERIES queries of ROWS rows of one head.
        heads: number of heads.
    """
    (projected, _, _, gating_bias, mask, _, _, pair_bias, _, _, gated, _, _, batch, length, _, _, maxima,
        sums, _, _, out_of_range) = arguments  # fmt: skip
    relative, bias_maxima = relative_bias(pair_bias, mask)
    query_blocks = -(-length // (QUERY_GROUPS.value * QUERIES.value))
    items = query_blocks * -(-batch // PROGRAM_ROWS.value) * heads
    attention_kernel[(program_count(projected, items, 1),)](
        tile_descriptor(projected, PROGRAM_ROWS.value, QUERIES.value, WIDTH.value),
        tile_descriptor(projected, PROGRAM_ROWS.value, KEYS.value, WIDTH.value),
        tile_descriptor(relative, 1, QUERIES.value, KEYS.value),
        tile_descriptor(gated, ROWS.value, QUERIES.value, WIDTH.value),
        gating_bias,
        batch,
        out_of_range,
        bias_maxima,
        # a tuple of a kernel cannot contain None
        out_of_range if maxima is None else maxima,
        out_of_range if sums is None else sums,
        length,
        query_blocks,
        items,
        WIDTH.value**-0.5 * math.log2(math.e),
        INNER=heads * WIDTH.value,
        SAVE=maxima is not None,
        num_warps=4,
        maxnreg=REGISTERS,
    )
