"""The kernel between attention's projections with a pair bias, on Hopper: `core` in its own instructions.

A program stays on its multiprocessor and takes blocks of 128 queries of one head for four entries of axis 0,
one after another. One warp has tiles of keys, values and bias copied to shared memory ahead of their use;
four groups of four warps each attend from 64 of the queries of two of the entries. In a group the products
of the entries before and after are under way while the exponentials of one are computed, which cost the
most. The two entries share the bias, and a softmax's sum is a product with ones.

As in `core`, all logits of a query are taken relative to one of them, here to the largest of the first
entry's first tile, and sums out of float32's middle range are reported, to be taken again.
"""

import math

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.attention.core import LEAST as LEAST_SUM
from cuda.fused.attention.core import MOST as MOST_SUM
from cuda.fused.blocks import programs
from cuda.fused.hopper_tiles import barriers as barriers_of
from cuda.fused.hopper_tiles import tiled

WIDTH = gl.constexpr(32)
# queries and entries of axis 0 of a group of warps; there are two groups along either
QUERIES = gl.constexpr(64)
ENTRIES = gl.constexpr(2)
GROUPS_OF_QUERIES = gl.constexpr(2)
GROUPS = gl.constexpr(4)
ALL_ENTRIES = gl.constexpr(4)
# keys of a tile, and tiles in shared memory
KEYS = gl.constexpr(32)
STAGES = gl.constexpr(5)
# registers a thread: what there are, shared out between the groups, and what the copying warp leaves
REGISTERS, OF_GROUPS, OF_COPIES = 96, gl.constexpr(112), gl.constexpr(24)

LOG2_E = gl.constexpr(math.log2(math.e))
LEAST = gl.constexpr(LEAST_SUM.value)
MOST = gl.constexpr(MOST_SUM.value)
# how a tile of 32 channels or keys lies in shared memory, and how a group's threads hold what it gives
FLAT = gl.constexpr(gl.NVMMASharedLayout(64, 16, 2))
LOGITS = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16]))
WEIGHTS = gl.constexpr(gl.DotOperandLayout(0, LOGITS.value, 2))
SUMS = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 8, 16]))


@gluon.jit
def _zeros(like):
    """Zeros that the compiler does not make again where products are under way, which would have to end."""
    return gl.inline_asm_elementwise(
        "mov.f32 $0, 0f00000000; // $1", "=f,f", [like], dtype=gl.float32, is_pure=False, pack=1
    )


@gluon.jit
def _wide(x):
    """float32 of bfloat16, an instruction each."""
    return gl.inline_asm_elementwise(
        "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;",
        "=f,=f,r",
        [x],
        dtype=gl.float32,
        is_pure=True,
        pack=2,
    )


@gluon.jit
def _turns(items):
    """How many of so many items this program takes."""
    return gl.cdiv(items - gl.program_id(0), gl.num_programs(0))


@gluon.jit
def _work(turn, query_blocks, entry_blocks):
    """The block of queries, the block of entries and the head of the item that this program takes then.

    Blocks of one row and head follow each other, then rows: one head's bias stays in the L2 cache.
    """
    item = gl.program_id(0) + turn * gl.num_programs(0)
    rest = item // query_blocks
    return item % query_blocks, rest % entry_blocks, rest // entry_blocks


@gluon.jit
def _copies(descriptors, buffers, barriers, sizes, INNER: gl.constexpr):
    """Have all tiles of all items of this program copied, as soon as there is room."""
    query_tiles, key_tiles, bias_tiles = descriptors
    queries, keys, values, biases, _ = buffers
    filled, emptied, queries_filled, queries_emptied = barriers
    length, query_blocks, entry_blocks, items = sizes
    step = 0
    for turn in range(_turns(items)):
        block, entry_block, head = _work(turn, query_blocks, entry_blocks)
        entry = entry_block * ALL_ENTRIES
        channel = head * WIDTH
        start = block * (GROUPS_OF_QUERIES * QUERIES)
        half = turn % 2
        full = queries_filled.index(half)
        mbarrier.wait(queries_emptied.index(half), (turn // 2 & 1) ^ 1)
        mbarrier.expect(full, GROUPS_OF_QUERIES * ALL_ENTRIES * QUERIES * WIDTH * 2)
        for group in gl.static_range(GROUPS_OF_QUERIES):
            tma.async_copy_global_to_shared(
                query_tiles,
                [entry, start + group * QUERIES, channel],
                full,
                queries.index(half * GROUPS_OF_QUERIES + group),
            )
        for begin in range(0, length, KEYS):
            stage = step % STAGES
            full = filled.index(stage)
            mbarrier.wait(emptied.index(stage), (step // STAGES & 1) ^ 1)
            mbarrier.expect(full, (2 * ALL_ENTRIES * WIDTH + GROUPS_OF_QUERIES * QUERIES) * KEYS * 2)
            tma.async_copy_global_to_shared(
                key_tiles, [entry, begin, INNER + channel], full, keys.index(stage)
            )
            tma.async_copy_global_to_shared(
                key_tiles, [entry, begin, 2 * INNER + channel], full, values.index(stage)
            )
            for group in gl.static_range(GROUPS_OF_QUERIES):
                tma.async_copy_global_to_shared(
                    bias_tiles,
                    [head, start + group * QUERIES, begin],
                    full,
                    biases.index(stage * GROUPS_OF_QUERIES + group),
                )
            step += 1


@gluon.jit
def _tile(tiles, stage, entry):
    """The keys or values [KEYS, WIDTH] of one entry, in shared memory."""
    shape: gl.constexpr = [ALL_ENTRIES, KEYS, WIDTH]
    return tiles.index(stage)._reinterpret(tiles.dtype, shape, FLAT).index(entry)


@gluon.jit
def _shift(biases, stage, GROUP: gl.constexpr):
    """The bias [QUERIES, KEYS] of a group's queries in logits of powers of 2, loaded from shared memory."""
    place = stage * GROUPS_OF_QUERIES + GROUP % GROUPS_OF_QUERIES
    tile = biases.index(place)._reinterpret(biases.dtype, [QUERIES, KEYS], FLAT)
    return _wide(tile.load(LOGITS)) * LOG2_E


@gluon.jit
def _attend(buffers, barriers, sizes, output, scale, GROUP: gl.constexpr, INNER: gl.constexpr):
    """All items of this program for one group's queries and entries."""
    queries, keys, values, biases, ones = buffers
    filled, emptied, queries_filled, queries_emptied = barriers
    length, query_blocks, entry_blocks, items = sizes
    FIRST: gl.constexpr = GROUP // GROUPS_OF_QUERIES * ENTRIES
    LAST: gl.constexpr = FIRST + ENTRIES - 1
    dtype: gl.constexpr = queries.dtype
    tiles = (length - 1) // KEYS + 1
    nothing = gl.zeros([QUERIES, KEYS], gl.float32, LOGITS)
    each_one = ones.permute((1, 0))
    step = 0
    for turn in range(_turns(items)):
        block, entry_block, head = _work(turn, query_blocks, entry_blocks)
        half = turn % 2
        stage = step % STAGES
        query = queries.index(half * GROUPS_OF_QUERIES + GROUP % GROUPS_OF_QUERIES)._reinterpret(
            dtype, [ALL_ENTRIES, QUERIES, WIDTH], FLAT
        )
        mbarrier.wait(queries_filled.index(half), turn // 2 & 1)
        mbarrier.wait(filled.index(stage), step // STAGES & 1)
        key = _tile(keys, stage, FIRST).permute((1, 0))
        logits = warpgroup_mma(query.index(FIRST), key, nothing, use_acc=False)
        top = gl.max(logits * scale + _shift(biases, stage, GROUP), 1)
        out = ()
        total = ()
        for _ in gl.static_range(ENTRIES):
            out += (_zeros(nothing),)
            total += (_zeros(gl.zeros([QUERIES, 8], gl.float32, SUMS)),)
        # products under way may not have their inputs made beside them, so an entry's weights are multiplied
        # by its values beside the exponentials of the next; there are none before the first
        weights = gl.zeros([QUERIES, KEYS], dtype, WEIGHTS)
        before = stage
        for tile in range(tiles):
            stage = step % STAGES
            following = (step + 1) % STAGES
            new_out = ()
            new_total = ()
            for entry in gl.static_range(ENTRIES):
                # the logits of the next entry
                if entry + 1 < ENTRIES:
                    key = _tile(keys, stage, FIRST + entry + 1).permute((1, 0))
                    ahead = warpgroup_mma(
                        query.index(FIRST + entry + 1), key, nothing, use_acc=False, is_async=True
                    )
                else:
                    # after the last tile's, those of any tile, which nobody reads
                    more = tile + 1 < tiles
                    mbarrier.wait(filled.index(following), (step + 1) // STAGES & 1, pred=more)
                    key = _tile(keys, following, FIRST).permute((1, 0))
                    ahead = warpgroup_mma(query.index(FIRST), key, nothing, use_acc=False, is_async=True)
                # the weighted values of the entry before, and the sum of their weights
                source = before if entry == 0 else stage
                value = _tile(values, source, LAST if entry == 0 else FIRST + entry - 1)
                behind = warpgroup_mma(weights, value, out[(entry - 1) % ENTRIES], is_async=True)
                summed = warpgroup_mma(weights, each_one, total[(entry - 1) % ENTRIES], is_async=True)
                if entry == 0:
                    shift = _shift(biases, stage, GROUP) - top[:, None]
                weight = gl.exp2(logits * scale + shift)
                logits, behind, summed, weight = warpgroup_mma_wait(0, deps=[ahead, behind, summed, weight])
                if entry == 0:
                    last_out = behind
                    last_total = summed
                    # nobody in the group reads the tile before any more
                    mbarrier.arrive(emptied.index(before), count=1, pred=tile > 0)
                else:
                    new_out += (behind,)
                    new_total += (summed,)
                weights = gl.convert_layout(weight.to(dtype), WEIGHTS, assert_trivial=True)
            new_out += (last_out,)
            new_total += (last_total,)
            out = new_out
            total = new_total
            before = stage
            step += 1
        last_out = warpgroup_mma(weights, _tile(values, before, LAST), out[ENTRIES - 1])
        last_total = warpgroup_mma(weights, each_one, total[ENTRIES - 1])
        mbarrier.arrive(emptied.index(before), count=1)
        mbarrier.arrive(queries_emptied.index(half), count=1)
        first_query = block * GROUPS_OF_QUERIES + GROUP % GROUPS_OF_QUERIES
        first_entry = entry_block * ALL_ENTRIES + FIRST
        _finish(
            (out[0], last_out), (total[0], last_total), output, first_query, first_entry, head, length, INNER
        )


@gluon.jit
def _finish(out, total, output, block, first_entry, head, length, INNER: gl.constexpr):
    """Divide by the sums, gate and store one group's results; report how many sums left the middle range."""
    projected, row, position, gating_bias, gated, gated_row, gated_position, batch, outside = output
    channel = gl.arange(0, WIDTH, gl.SliceLayout(0, LOGITS))
    query = block * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, LOGITS))
    here = query < length
    query = query.to(gl.int64)
    gate_bias = gl.load(gating_bias + head * WIDTH + channel).to(gl.float32)
    gates = projected + 3 * INNER + head * WIDTH + (query * position)[:, None] + channel[None, :]
    results = gated + head * WIDTH + (query * gated_position)[:, None] + channel[None, :]
    bad = gl.zeros([QUERIES], gl.int32, gl.SliceLayout(1, LOGITS))
    for k in gl.static_range(ENTRIES):
        entry = (first_entry + k).to(gl.int64)
        if entry < batch:
            gate = gl.load(gates + entry * row, mask=here[:, None], other=0.0).to(gl.float32)
            gate = 1 / (1 + gl.exp2((gate + gate_bias[None, :]) * -LOG2_E))
            sums = gl.convert_layout(gl.sum(total[k], 1) * 0.125, gl.SliceLayout(1, LOGITS))
            result = out[k] * (1 / sums)[:, None] * gate
            gl.store(results + entry * gated_row, result.to(gated.dtype.element_ty), mask=here[:, None])
            # not a number is no middle range either
            bad += gl.where(here, 1, 0) * gl.where((sums > LEAST) & (sums < MOST), 0, 1)
    blocks = gl.cdiv(length, QUERIES)
    pairs = gl.cdiv(batch, ENTRIES)
    pair = first_entry // ENTRIES
    there = (block < blocks) & (pair < pairs)
    gl.store(outside + (head * pairs + pair) * blocks + block, gl.sum(bad, 0), mask=there)


@gluon.jit(do_not_specialize=["batch", "length", "query_blocks", "entry_blocks", "items"])
def attend_blocks(
    query_tiles, key_tiles, bias_tiles, projected, row, position, gating_bias, gated, gated_row,
    gated_position, batch, outside, length, query_blocks, entry_blocks, items, scale, INNER: gl.constexpr,
):  # fmt: skip
    """What `core.attend_blocks` does; the scale is that of logits of powers of 2."""
    dtype: gl.constexpr = query_tiles.dtype
    queries = gl.allocate_shared_memory(
        dtype, [2 * GROUPS_OF_QUERIES, ALL_ENTRIES, QUERIES, WIDTH], query_tiles.layout
    )
    keys = gl.allocate_shared_memory(dtype, [STAGES, ALL_ENTRIES, KEYS, WIDTH], key_tiles.layout)
    values = gl.allocate_shared_memory(dtype, [STAGES, ALL_ENTRIES, KEYS, WIDTH], key_tiles.layout)
    biases = gl.allocate_shared_memory(
        dtype, [STAGES * GROUPS_OF_QUERIES, 1, QUERIES, KEYS], bias_tiles.layout
    )
    filled, emptied = barriers_of(STAGES, 1), barriers_of(STAGES, GROUPS)
    queries_filled, queries_emptied = barriers_of(2, 1), barriers_of(2, GROUPS)
    ones = gl.allocate_shared_memory(dtype, [8, KEYS], FLAT)
    ones.store(gl.full([8, KEYS], 1.0, dtype, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])))
    fence_async_shared()
    buffers = (queries, keys, values, biases, ones)
    barriers = (filled, emptied, queries_filled, queries_emptied)
    sizes = (length, query_blocks, entry_blocks, items)
    output = (projected, row, position, gating_bias, gated, gated_row, gated_position, batch, outside)
    gl.warp_specialize(
        [
            (_attend, (buffers, barriers, sizes, output, scale, 0, INNER)),
            (_attend, (buffers, barriers, sizes, output, scale, 1, INNER)),
            (_attend, (buffers, barriers, sizes, output, scale, 2, INNER)),
            (_attend, (buffers, barriers, sizes, output, scale, 3, INNER)),
            (_copies, ((query_tiles, key_tiles, bias_tiles), buffers, barriers, sizes, INNER)),
        ],
        [4, 4, 4, 1],
        [OF_GROUPS, OF_GROUPS, OF_GROUPS, OF_COPIES],
    )


def attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    pair_bias: torch.Tensor,
    gated: torch.Tensor,
    outside: torch.Tensor,
) -> None:
    """Write what `kernel.attend` does, of bfloat16 heads of 32 channels and without a mask.

    Args:
        projected, gating_bias, gated: as there; tiles of the first can be copied.
        pair_bias: [H, L, ...], its keys past the last -inf up to a whole tile.
        outside: int32, written: how many sums left the middle range, for each block of QUERIES queries of
            ENTRIES entries of one head, in the order of `core`.
    """
    batch, length, _ = projected.shape
    heads, width = gating_bias.shape
    query_blocks = triton.cdiv(length, GROUPS_OF_QUERIES.value * QUERIES.value)
    entry_blocks = triton.cdiv(batch, ALL_ENTRIES.value)
    items = query_blocks * entry_blocks * heads
    attend_blocks[(programs(projected, items, 1),)](
        tiled(projected, ALL_ENTRIES.value, QUERIES.value, width),
        tiled(projected, ALL_ENTRIES.value, KEYS.value, width),
        tiled(pair_bias, 1, QUERIES.value, KEYS.value),
        projected,
        projected.stride(0),
        projected.stride(1),
        gating_bias,
        gated,
        gated.stride(0),
        gated.stride(1),
        batch,
        outside,
        length,
        query_blocks,
        entry_blocks,
        items,
        width**-0.5 * math.log2(math.e),
        INNER=heads * width,
        num_warps=4,
        maxnreg=REGISTERS,
    )
