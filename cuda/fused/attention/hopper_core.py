"""The core kernel of gated attention with a pair bias on Hopper GPUs, and its launch.

It computes the same as `triton_core`, with Hopper's instructions for copies and products.
Programs are persistent: each processes blocks of 128 queries of one head in four rows. A loading warp copies
tiles of keys, values and bias to shared memory ahead of their use. Four warpgroups each attend from 64 of the
queries in two of the rows, which share the bias. While a group computes the exponentials of one row, its most
expensive step, the products of the previous and of the next row are in flight. The sum of the softmax is a
product with ones.

As in `triton_core`, all logits of a query are taken relative to one value, and sums outside float32's middle
range are counted, so that their blocks can be recomputed. Here, the value is the query's largest bias plus
its largest product with a key in the first row's first tile. A steep bias thus takes no sum out of range.
"""

import math
from typing import Any

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

from cuda.fused.attention import triton_core as core
from cuda.fused.hopper_tiles import (
    allocate_barriers,
    allocate_buffers,
    next_stage,
    previous_stage,
    tile_descriptor,
)
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
# layouts: a tile of 32 channels or keys in shared memory, and the registers of a group
FLAT = gl.constexpr(gl.NVMMASharedLayout(64, 16, 2))
LOGITS = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16]))
WEIGHTS = gl.constexpr(gl.DotOperandLayout(0, LOGITS.value, 2))
SUMS = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 8, 16]))


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
def _load_tiles(descriptors, buffers, barriers, sizes, INNER: gl.constexpr):
    """Load the tiles of all work items of this program as buffers become free."""
    query_tiles, key_tiles, bias_tiles = descriptors
    queries, keys, values, biases, _ = buffers
    full, empty, queries_full, queries_empty = barriers
    length, query_blocks, items = sizes
    stage = 0
    phase = 0
    for iteration in range(_iterations(items)):
        block, row_block, head = _work_item(iteration, query_blocks, INNER // WIDTH)
        row = row_block * PROGRAM_ROWS
        channel = head * WIDTH
        start = block * (QUERY_GROUPS * QUERIES)
        buffer = iteration % 2
        loaded = queries_full.index(buffer)
        mbarrier.wait(queries_empty.index(buffer), (iteration // 2 & 1) ^ 1)
        mbarrier.expect(loaded, QUERY_GROUPS * PROGRAM_ROWS * QUERIES * WIDTH * 2)
        for group in gl.static_range(QUERY_GROUPS):
            tma.async_copy_global_to_shared(
                query_tiles,
                [row, start + group * QUERIES, channel],
                loaded,
                queries.index(buffer * QUERY_GROUPS + group),
            )
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
            stage, phase = next_stage(stage, phase, STAGES)


@gluon.jit
def _row_tile(tiles, stage, row):
    """Return the keys or values [KEYS, WIDTH] of one row, in shared memory."""
    shape: gl.constexpr = [PROGRAM_ROWS, KEYS, WIDTH]
    return tiles.index(stage)._reinterpret(tiles.dtype, shape, FLAT).index(row)


@gluon.jit
def rows_of_tile(tile, k, ROWS: gl.constexpr):
    """Return ROWS rows of a tile with 32 columns, in shared memory: those from k * ROWS on."""
    shape: gl.constexpr = [tile.shape[0] // ROWS, ROWS, 32]
    return tile._reinterpret(tile.dtype, shape, FLAT).index(k)


@gluon.jit
def _load_bias(biases, stage, GROUP: gl.constexpr):
    """Load the bias [QUERIES, KEYS] of a group's queries from shared memory, in units of log2."""
    slot = stage * QUERY_GROUPS + GROUP % QUERY_GROUPS
    tile = biases.index(slot)._reinterpret(biases.dtype, [QUERIES, KEYS], FLAT)
    return _to_float32(tile.load(LOGITS)) * LOG2_E


@gluon.jit
def _queries_of(block):
    """Return the indices of the queries of a block, int32 [QUERIES]."""
    return block * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, LOGITS))


@gluon.jit
def _load_maxima(bias_maxima, query_block, head, length):
    """Load the largest bias of each query of a block, float32 in units of log2."""
    query = _queries_of(query_block)
    maxima = gl.load(bias_maxima + head * length + query, mask=query < length, other=0.0)
    return maxima.to(gl.float32) * LOG2_E


@gluon.jit
def _attend_group(GROUP: gl.constexpr, inputs, output, statistics, INNER: gl.constexpr, SAVE: gl.constexpr):
    """Compute all work items of this program for the queries and rows of one warpgroup."""
    buffers, barriers, sizes, bias_maxima, scale = inputs
    queries, keys, values, biases, ones = buffers
    full, empty, queries_full, queries_empty = barriers
    length, query_blocks, items = sizes
    FIRST: gl.constexpr = GROUP // QUERY_GROUPS * ROWS
    LAST: gl.constexpr = FIRST + ROWS - 1
    dtype: gl.constexpr = queries.dtype
    tiles = (length - 1) // KEYS + 1
    zero_logits = gl.zeros([QUERIES, KEYS], gl.float32, LOGITS)
    ones_operand = ones.permute((1, 0))
    stage = 0
    phase = 0
    for iteration in range(_iterations(items)):
        block, row_block, head = _work_item(iteration, query_blocks, INNER // WIDTH)
        query_block = block * QUERY_GROUPS + GROUP % QUERY_GROUPS
        bias_maximum = _load_maxima(bias_maxima, query_block, head, length)
        buffer = iteration % 2
        query = queries.index(buffer * QUERY_GROUPS + GROUP % QUERY_GROUPS)._reinterpret(
            dtype, [PROGRAM_ROWS, QUERIES, WIDTH], FLAT
        )
        mbarrier.wait(queries_full.index(buffer), iteration // 2 & 1)
        mbarrier.wait(full.index(stage), phase)
        key = _row_tile(keys, stage, FIRST).permute((1, 0))
        logits = warpgroup_mma(query.index(FIRST), key, zero_logits, use_acc=False)
        maximum = gl.max(logits, 1) * scale + bias_maximum
        out = ()
        total = ()
        for _ in gl.static_range(ROWS):
            out += (_zeros(zero_logits),)
            total += (_zeros(gl.zeros([QUERIES, 8], gl.float32, SUMS)),)
        # Operands of products cannot be computed while products are in flight, so the weights of one row are
        # multiplied by its values during the exponentials of the next row. Before the first row they are 0.
        weights = gl.zeros([QUERIES, KEYS], dtype, WEIGHTS)
        for tile in range(tiles):
            following, following_phase = next_stage(stage, phase, STAGES)
            previous = gl.where(tile == 0, stage, previous_stage(stage, STAGES))
            new_out = ()
            new_total = ()
            for k in gl.static_range(ROWS):
                # the logits of the next row
                if k + 1 < ROWS:
                    key = _row_tile(keys, stage, FIRST + k + 1).permute((1, 0))
                    next_logits = warpgroup_mma(
                        query.index(FIRST + k + 1), key, zero_logits, use_acc=False, is_async=True
                    )
                else:
                    # after the last tile there is no next one; these logits are not used
                    more = tile + 1 < tiles
                    mbarrier.wait(full.index(following), following_phase, pred=more)
                    key = _row_tile(keys, following, FIRST).permute((1, 0))
                    next_logits = warpgroup_mma(
                        query.index(FIRST), key, zero_logits, use_acc=False, is_async=True
                    )
                # the weighted values of the previous row, and the sum of its weights
                source = previous if k == 0 else stage
                value = _row_tile(values, source, LAST if k == 0 else FIRST + k - 1)
                weighted = warpgroup_mma(weights, value, out[(k - 1) % ROWS], is_async=True)
                summed = warpgroup_mma(weights, ones_operand, total[(k - 1) % ROWS], is_async=True)
                if k == 0:
                    shift = _load_bias(biases, stage, GROUP) - maximum[:, None]
                weight = gl.exp2(logits * scale + shift)
                logits, weighted, summed, weight = warpgroup_mma_wait(
                    0, deps=[next_logits, weighted, summed, weight]
                )
                if k == 0:
                    last_out = weighted
                    last_total = summed
                    # no warp of the group reads the previous tile any more
                    mbarrier.arrive(empty.index(previous), count=1, pred=tile > 0)
                else:
                    new_out += (weighted,)
                    new_total += (summed,)
                weights = gl.convert_layout(weight.to(dtype), WEIGHTS, assert_trivial=True)
            new_out += (last_out,)
            new_total += (last_total,)
            out = new_out
            total = new_total
            stage = following
            phase = following_phase
        previous = previous_stage(stage, STAGES)
        value = _row_tile(values, previous, LAST)
        last_out = warpgroup_mma(weights, value, out[ROWS - 1], is_async=True)
        last_total = warpgroup_mma(weights, ones_operand, total[ROWS - 1], is_async=True)
        first_row = row_block * PROGRAM_ROWS + FIRST
        gates = _load_gates(output, query_block, first_row, head, length, INNER)
        last_out, last_total = warpgroup_mma_wait(0, deps=[last_out, last_total])
        mbarrier.arrive(empty.index(previous), count=1)
        mbarrier.arrive(queries_empty.index(buffer), count=1)
        _finish(
            (out[0], last_out), (total[0], last_total), maximum, gates, output, statistics, query_block,
            first_row, head, length, INNER, SAVE,
        )  # fmt: skip


@gluon.jit
def _load_gates(output, block, first_row, head, length, INNER: gl.constexpr):
    """Load the projected gates [QUERIES, WIDTH] of a group's queries in each of its rows."""
    projected, projected_row, projected_position, _, _, _, _, batch, _ = output
    channel = gl.arange(0, WIDTH, gl.SliceLayout(0, LOGITS))
    query = _queries_of(block)
    in_range = query < length
    offsets = (query.to(gl.int64) * projected_position)[:, None] + channel[None, :]
    gates = ()
    for k in gl.static_range(ROWS):
        row = (first_row + k).to(gl.int64)
        pointers = projected + 3 * INNER + head * WIDTH + row * projected_row + offsets
        gates += (gl.load(pointers, mask=in_range[:, None] & (row < batch), other=0.0),)
    return gates


@gluon.jit
def _finish(
    out, total, maximum, gates, output, statistics, block, first_row, head, length, INNER: gl.constexpr,
    SAVE: gl.constexpr,
):  # fmt: skip
    """Divide by the sums, gate and store one group's results; store the number of sums out of range."""
    _, _, _, gating_bias, gated, gated_row, gated_position, batch, out_of_range = output
    channel = gl.arange(0, WIDTH, gl.SliceLayout(0, LOGITS))
    query = _queries_of(block)
    in_range = query < length
    query = query.to(gl.int64)
    gate_bias = gl.load(gating_bias + head * WIDTH + channel).to(gl.float32)
    results = gated + head * WIDTH + (query * gated_position)[:, None] + channel[None, :]
    out_of_range_count = gl.zeros([QUERIES], gl.int32, gl.SliceLayout(1, LOGITS))
    for k in gl.static_range(ROWS):
        row = (first_row + k).to(gl.int64)
        if row < batch:
            gate = _reciprocal(1 + gl.exp2((gates[k].to(gl.float32) + gate_bias[None, :]) * -LOG2_E))
            sums = gl.convert_layout(gl.sum(total[k], 1) * 0.125, gl.SliceLayout(1, LOGITS))
            result = out[k] * _reciprocal(sums)[:, None] * gate
            gl.store(results + row * gated_row, result.to(gated.dtype.element_ty), mask=in_range[:, None])
            if SAVE:
                maxima, sums_of_weights = statistics
                offsets = (row * (INNER // WIDTH) + head) * length + query
                gl.store(maxima + offsets, maximum * (1 / LOG2_E), mask=in_range)
                gl.store(sums_of_weights + offsets, sums, mask=in_range)
            # written so that NaN counts as out of range
            outside = gl.where((sums > MIN_SUM) & (sums < MAX_SUM), 0, 1)
            out_of_range_count += gl.where(in_range, 1, 0) * outside
    blocks = gl.cdiv(length, QUERIES)
    row_blocks = gl.cdiv(batch, ROWS)
    row_block = first_row // ROWS
    exists = (block < blocks) & (row_block < row_blocks)
    target = out_of_range + (row_block * (INNER // WIDTH) + head) * blocks + block
    gl.store(target, gl.sum(out_of_range_count, 0), mask=exists)


@gluon.jit(do_not_specialize=["batch", "length", "query_blocks", "items"])
def attention_kernel(
    query_tiles, key_tiles, bias_tiles, bias_maxima, projected, projected_row, projected_position,
    gating_bias, gated, gated_row, gated_position, batch, out_of_range, maxima, sums, length, query_blocks,
    items, scale, INNER: gl.constexpr, SAVE: gl.constexpr,
):  # fmt: skip
    """Write softmax(q kᵀ · scale + bias) v ⊙ sigmoid(g + b) of all blocks.

    projected [B, L, 4*H*D] holds q, k, v and g; query_tiles and key_tiles are descriptors of it. bias_maxima
    [H, L] is the largest bias of each query. gated is [B, L, H*D]. The scale includes log2 e. out_of_range
    receives the number of sums outside the middle range of each block. If SAVE, maxima and sums [B, H, L]
    receive the logit that each query's weights are relative to, and the sum of the weights.
    """
    dtype: gl.constexpr = query_tiles.dtype
    queries = allocate_buffers(query_tiles, 2 * QUERY_GROUPS)
    keys = allocate_buffers(key_tiles, STAGES)
    values = allocate_buffers(key_tiles, STAGES)
    biases = allocate_buffers(bias_tiles, STAGES * QUERY_GROUPS)
    full, empty = allocate_barriers(STAGES, 1), allocate_barriers(STAGES, GROUPS)
    queries_full, queries_empty = allocate_barriers(2, 1), allocate_barriers(2, GROUPS)
    ones = gl.allocate_shared_memory(dtype, [8, KEYS], FLAT)
    ones.store(gl.full([8, KEYS], 1.0, dtype, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])))
    fence_async_shared()
    buffers = (queries, keys, values, biases, ones)
    barriers = (full, empty, queries_full, queries_empty)
    sizes = (length, query_blocks, items)
    output = (
        projected, projected_row, projected_position, gating_bias, gated, gated_row, gated_position, batch,
        out_of_range,
    )  # fmt: skip
    statistics = (maxima, sums)
    inputs = (buffers, barriers, sizes, bias_maxima, scale)
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


def launch_core(arguments: tuple[Any, ...], heads: int, bias_maxima: torch.Tensor | None = None) -> None:
    """Launch the kernel for bfloat16 heads of 32 channels, a pair bias and no mask.

    Args:
        arguments: those of a `CoreLaunch`. The projections must satisfy `tma_aligned`, and the bias of keys
            past the last one must be -inf. The counts of sums out of range are those of blocks of QUERIES
            queries of ROWS rows of one head.
        heads: number of heads.
        bias_maxima: [H, L], the largest bias of each query, if it is known.
    """
    (projected, projected_row, projected_position, gating_bias, _, _, _, pair_bias, _, _, gated, gated_row,
        gated_position, batch, length, maxima, sums, _, _, out_of_range) = arguments  # fmt: skip
    query_blocks = -(-length // (QUERY_GROUPS.value * QUERIES.value))
    items = query_blocks * -(-batch // PROGRAM_ROWS.value) * heads
    attention_kernel[(program_count(projected, items, 1),)](
        tile_descriptor(projected, PROGRAM_ROWS.value, QUERIES.value, WIDTH.value),
        tile_descriptor(projected, PROGRAM_ROWS.value, KEYS.value, WIDTH.value),
        tile_descriptor(pair_bias, 1, QUERIES.value, KEYS.value),
        pair_bias.amax(-1) if bias_maxima is None else bias_maxima,
        projected,
        projected_row,
        projected_position,
        gating_bias,
        gated,
        gated_row,
        gated_position,
        batch,
        out_of_range,
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
