"""The Triton kernel of gated attention on projected inputs; logits are never written to memory.

A program computes a block of queries of one head for some rows, which share each tile of the pair bias. Most
time is spent on work per logit, and two tricks reduce it: the product of queries and keys is accumulated onto
the bias, and the sum of the softmax is a product with ones. In bfloat16, whose exponents are as wide as
float32's, the logits of a query are taken relative to the maximum of its first block of keys, without a
running maximum. Blocks in which such a sum leaves float32's middle range are recomputed with a running
maximum.
"""

import math

import triton
import triton.language as tl

from cuda.fused.attention.reference import MASK_PENALTY as REFERENCE_MASK_PENALTY
from cuda.fused.rows import sigmoid

LOG2_E = tl.constexpr(math.log2(math.e))
MASK_PENALTY = tl.constexpr(REFERENCE_MASK_PENALTY)
# the middle range of a query's sum of weights: below it, weights of 2⁻²⁶ of the sum would be lost; above it,
# products with values of up to 2¹⁷ could be infinite
MIN_SUM = tl.constexpr(2.0**-100)
MAX_SUM = tl.constexpr(2.0**110)
# modes of a step: update the maximum of a query's logits, set it from this block, or keep it
RUNNING_MAX, FIRST_MAX, FIXED_MAX = (tl.constexpr(mode) for mode in range(3))


@triton.jit
def _load_head(base, position, stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Load one head's queries or keys [positions, PADDED], zero-padded to the 16 terms a product needs."""
    channel = tl.arange(0, PADDED)
    pointers = base + position[:, None] * stride + channel[None, :]
    if PADDED == WIDTH:
        return tl.load(pointers)
    return tl.load(pointers, mask=channel[None, :] < WIDTH, other=0.0)


@triton.jit
def _step(
    state, query, key, value, penalty, bias, real,
    MODE: tl.constexpr, EDGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Continue the softmax of one row over a block of keys; return (maximum, sum, weighted values)."""
    maximum, total, out = state
    if value.dtype == tl.float32:
        # a sum that starts with a large bias would round each term of the product
        logits = tl.dot(query, key.T, input_precision=PRECISION) * value.shape[1] ** -0.5
        if bias is not None:
            logits += bias
    else:
        logits = tl.dot(query, key.T, bias, input_precision=PRECISION)  # [queries, keys]
    if EDGE:
        logits = tl.where(real[None, :], logits, float("-inf"))
    if MODE == FIRST_MAX:
        # of the logits without mask penalties, which could put the maximum far below all other logits
        maximum = tl.max(logits, 1)
    if penalty is not None:
        logits += penalty[None, :]
    if MODE == RUNNING_MAX:
        new_maximum = tl.maximum(maximum, tl.max(logits, 1))
        rescale = tl.exp2((maximum - new_maximum) * LOG2_E)
        # subtracted before multiplying: the product of a masked logit would not be exact
        weight = tl.exp2((logits - new_maximum[:, None]) * LOG2_E)
        total *= rescale[:, None]
        out *= rescale[:, None]
        maximum = new_maximum
    else:
        weight = tl.exp2(logits * LOG2_E - (maximum * LOG2_E)[:, None])
    narrow = weight.to(value.dtype)
    if total.shape[1] == 1:
        total += tl.sum(weight, 1)[:, None]
    else:
        ones = tl.full([key.shape[0], total.shape[1]], 1.0, value.dtype)
        total = tl.dot(narrow, ones, total, input_precision=PRECISION)
    return maximum, total, tl.dot(narrow, value, out, input_precision=PRECISION)


@triton.jit
def _attend_keys(
    states, queries, begin, position, real, keys, keys_row, keys_position, key_to_value, mask, mask_row,
    mask_position, bias_start, bias_offset, first_row, batch,
    MODE: tl.constexpr, EDGE: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Continue the softmax of each row of a program over one block of keys; return the new states."""
    bias = None
    if bias_start is not None:
        bias = tl.load(bias_start + begin + bias_offset + position[None, :]).to(tl.float32)
    new_states = ()
    for k in tl.static_range(ROWS):
        row = tl.minimum(first_row + k, batch - 1)
        base = keys + row * keys_row + begin * keys_position.to(tl.int64)
        key = _load_head(base, position, keys_position, WIDTH, PADDED)
        value = _load_head(base + key_to_value, position, keys_position, WIDTH, WIDTH)
        penalty = None
        if mask is not None:
            keep = tl.load(mask + row * mask_row + (begin + position) * mask_position)
            penalty = (keep.to(tl.float32) - 1.0) * MASK_PENALTY
        state = _step(states[k], queries[k], key, value, penalty, bias, real, MODE, EDGE, PRECISION)
        new_states += (state,)
    return new_states


@triton.jit
def _attend_block(
    index, projected, projected_row, projected_position, gating_bias, mask, mask_row, mask_position,
    pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length, queries, first_query,
    maximum, total, bias_rows, bias_batch,
    FIRST_MODE: tl.constexpr, MODE: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    PADDED: tl.constexpr, SUMS: tl.constexpr, ROWS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend from one block of queries of one head in ROWS rows; return the number of sums out of range.

    Queries and gates are those of positions from `first_query` on.
    Positions past the end read the last position, so that only loads of narrow heads are predicated.
    """
    # blocks of queries vary fastest, then heads, then rows: the heads of a position are adjacent in memory
    query_blocks = tl.cdiv(queries, QUERIES)
    start = index % query_blocks * QUERIES
    index //= query_blocks
    head = index % HEADS
    inner = HEADS * WIDTH
    # if rows are left over, the last program computes the last row more than once
    first_row = (index // HEADS).to(tl.int64) * ROWS
    projected += head * WIDTH
    keys = projected + inner
    # offsets from the start of the block fit in 32 bits, offsets from the start of the tensor may not
    position = tl.minimum(tl.arange(0, QUERIES), queries - 1 - start)
    query_start = projected + (first_query + start) * projected_position.to(tl.int64)
    tiles = ()
    states = ()
    for k in tl.static_range(ROWS):
        row = tl.minimum(first_row + k, batch - 1)
        query = _load_head(query_start + row * projected_row, position, projected_position, WIDTH, PADDED)
        if query.dtype != tl.float32:
            query = (query.to(tl.float32) * WIDTH**-0.5).to(query.dtype)
        tiles += (query,)
        state = (
            tl.full([QUERIES], float("-inf"), tl.float32),
            tl.zeros([QUERIES, SUMS], tl.float32),
            tl.zeros([QUERIES, WIDTH], tl.float32),
        )
        states += (state,)
    bias_start = pair_bias
    bias_offset = None
    if pair_bias is not None:
        bias_start += head.to(tl.int64) * bias_head + start.to(tl.int64) * bias_query
        bias_start += first_row // bias_rows * bias_batch
        bias_offset = position[:, None] * bias_query

    # the last block first, so that all others are complete
    local = tl.arange(0, KEYS)
    last = (length - 1) // KEYS * KEYS
    left = length - last
    states = _attend_keys(
        states, tiles, last, tl.minimum(local, left - 1), local < left, keys, projected_row,
        projected_position, inner, mask, mask_row, mask_position, bias_start, bias_offset, first_row, batch,
        FIRST_MODE, True, WIDTH, PADDED, ROWS, PRECISION,
    )  # fmt: skip
    # num_stages is set here rather than at the launch so that loads of the bias are pipelined too
    for begin in tl.range(0, last, KEYS, num_stages=STAGES):
        states = _attend_keys(
            states, tiles, begin, local, None, keys, projected_row, projected_position, inner, mask,
            mask_row, mask_position, bias_start, bias_offset, first_row, batch,
            MODE, False, WIDTH, PADDED, ROWS, PRECISION,
        )  # fmt: skip

    channel = tl.arange(0, WIDTH)
    gate_bias = tl.load(gating_bias + head * WIDTH + channel).to(tl.float32)[None, :]
    local = start + tl.arange(0, QUERIES)
    in_range = (local < queries)[:, None]
    gate_start = query_start + 3 * inner + position[:, None] * projected_position + channel[None, :]
    gated += start.to(tl.int64) * gated_position + head * WIDTH
    gated += position[:, None] * gated_position + channel[None, :]
    out_of_range = 0
    for k in tl.static_range(ROWS):
        row = tl.minimum(first_row + k, batch - 1)
        row_maximum, row_total, out = states[k]
        gate = sigmoid(tl.load(gate_start + row * projected_row).to(tl.float32) + gate_bias)
        mean_total = tl.sum(row_total, 1) / SUMS
        result = out * (1.0 / mean_total)[:, None] * gate
        tl.store(gated + row * gated_row, result.to(gated.dtype.element_ty), mask=in_range)
        if maximum is not None:
            statistics = (row * HEADS + head) * queries + local
            tl.store(maximum + statistics, row_maximum, mask=local < queries)
            tl.store(total + statistics, mean_total, mask=local < queries)
        in_middle = (row_total > MIN_SUM) & (row_total < MAX_SUM)
        out_of_range += tl.sum(tl.sum(1 - in_middle.to(tl.int32), 1), 0)
    return out_of_range


@triton.jit(do_not_specialize=["mask", "mask_row", "batch", "length", "queries", "first_query", "bias_rows"])
def attend_blocks(
    projected, projected_row, projected_position, gating_bias, mask, mask_row, mask_position,
    pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length, queries, first_query,
    maximum, total, bias_rows, bias_batch, out_of_range,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, SUMS: tl.constexpr, ROWS: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write softmax(q kᵀ · scale + bias) v ⊙ sigmoid(g + b) of one block.

    projected [B, L, 4*H*D] holds q, k, v and g; gated is [B, Q, H*D]. Each bias_rows rows share a pair bias;
    those of the next rows are bias_batch elements further. If maximum and total [B, H, L] are not None, they
    receive the logit that each query's weights are relative to, and the sum of the weights. If out_of_range
    is not None, it receives the number of sums outside the middle range of each block.
    """
    index = tl.program_id(0)
    if out_of_range is not None:
        count = _attend_block(
            index, projected, projected_row, projected_position, gating_bias, mask, mask_row,
            mask_position, pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length,
            queries, first_query, maximum, total, bias_rows, bias_batch,
            FIRST_MAX, FIXED_MAX, HEADS, WIDTH, PADDED, SUMS, ROWS, QUERIES, KEYS, STAGES, PRECISION,
        )  # fmt: skip
        tl.store(out_of_range + index, count)
    else:
        _attend_block(
            index, projected, projected_row, projected_position, gating_bias, mask, mask_row,
            mask_position, pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length,
            queries, first_query, maximum, total, bias_rows, bias_batch,
            RUNNING_MAX, RUNNING_MAX, HEADS, WIDTH, PADDED, SUMS, ROWS, QUERIES, KEYS, STAGES, PRECISION,
        )  # fmt: skip


@triton.jit(
    do_not_specialize=["mask", "mask_row", "batch", "length", "queries", "first_query", "bias_rows", "blocks"]
)
def recompute_blocks(
    projected, projected_row, projected_position, gating_bias, mask, mask_row, mask_position,
    pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length, queries, first_query,
    maximum, total, bias_rows, bias_batch, out_of_range, blocks,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, SUMS: tl.constexpr,
    CHECKED_BLOCKS: tl.constexpr, ROWS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Recompute, with a running maximum, those of CHECKED_BLOCKS blocks whose sums left the middle range."""
    begin = tl.program_id(0) * CHECKED_BLOCKS
    index = begin + tl.arange(0, CHECKED_BLOCKS)
    if tl.sum(tl.load(out_of_range + index, mask=index < blocks, other=0), 0) > 0:
        blocks_of_row = tl.cdiv(queries, QUERIES) * HEADS
        for block in range(begin, tl.minimum(begin + CHECKED_BLOCKS, blocks)):
            if tl.load(out_of_range + block) > 0:
                # row by row: this is rare, and a kernel for several rows takes four times as long to compile
                first = block // blocks_of_row * ROWS
                for row in range(first, tl.minimum(first + ROWS, batch)):
                    _attend_block(
                        row * blocks_of_row + block % blocks_of_row, projected, projected_row,
                        projected_position, gating_bias, mask, mask_row, mask_position, pair_bias, bias_head,
                        bias_query, gated, gated_row, gated_position, batch, length, queries, first_query,
                        maximum, total, bias_rows, bias_batch, RUNNING_MAX, RUNNING_MAX,
                        HEADS, WIDTH, PADDED, SUMS, 1, QUERIES, KEYS, STAGES, PRECISION,
                    )  # fmt: skip
