"""The kernel between attention's projections, without logits in memory.

A program takes a block of queries of one head, for some entries of axis 0, which share each tile of the pair
bias. What a logit costs is what the kernel costs: the bias is what the product of queries and keys is added
to, the softmax's sum is a product with ones, and in bfloat16, whose exponents are as wide as float32's, all
logits of a query are taken relative to the largest one of its first block, without a running maximum. Sums
that leave float32's middle range that way are taken again with one.
"""

import math

import triton
import triton.language as tl

from cuda.fused.attention.reference import MASKED
from cuda.fused.blocks import sigmoid

LOG2_E = tl.constexpr(math.log2(math.e))
LOWERED = tl.constexpr(MASKED)
# sums between these have lost nothing, and values up to 2⁶⁰ times them are no infinity
LEAST = tl.constexpr(2.0**-60)
MOST = tl.constexpr(2.0**60)
# how a step treats the maximum of a query's logits
RUNNING, FIRST, FIXED = (tl.constexpr(mode) for mode in range(3))


@triton.jit
def _head(base, position, stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """One head's queries or keys, [positions, PADDED]: a product needs 16 terms, so narrow ones get zeros."""
    channel = tl.arange(0, PADDED)
    pointers = base + position[:, None] * stride + channel[None, :]
    if PADDED == WIDTH:
        return tl.load(pointers)
    return tl.load(pointers, mask=channel[None, :] < WIDTH, other=0.0)


@triton.jit
def _step(
    state, query, key, value, lowered, bias, real,
    MODE: tl.constexpr, EDGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Softmax over one more block of keys, for one entry of axis 0: (maximum, sum, weighted values)."""
    top, total, out = state
    if value.dtype == tl.float32:
        # a chain of sums that began with the bias would lose what a large bias leaves no digits for
        logits = tl.dot(query, key.T, input_precision=PRECISION) * value.shape[1] ** -0.5
        if bias is not None:
            logits += bias
    else:
        logits = tl.dot(query, key.T, bias, input_precision=PRECISION)  # [queries, keys]
    if EDGE:
        logits = tl.where(real[None, :], logits, float("-inf"))
    if MODE == FIRST:
        # masked keys count: a maximum of what they are lowered to would be far below all others
        top = tl.max(logits, 1)
    if lowered is not None:
        logits += lowered[None, :]
    if MODE == RUNNING:
        new_top = tl.maximum(top, tl.max(logits, 1))
        shrink = tl.exp2((top - new_top) * LOG2_E)
        # in this order, since masked logits are too large to be multiplied exactly
        weight = tl.exp2((logits - new_top[:, None]) * LOG2_E)
        total *= shrink[:, None]
        out *= shrink[:, None]
        top = new_top
    else:
        weight = tl.exp2(logits * LOG2_E - (top * LOG2_E)[:, None])
    narrow = weight.to(value.dtype)
    if total.shape[1] == 1:
        total += tl.sum(weight, 1)[:, None]
    else:
        ones = tl.full([key.shape[0], total.shape[1]], 1.0, value.dtype)
        total = tl.dot(narrow, ones, total, input_precision=PRECISION)
    return top, total, tl.dot(narrow, value, out, input_precision=PRECISION)


@triton.jit
def _block(
    states, queries, begin, position, real, keys, keys_row, keys_position, to_value, mask, mask_row,
    mask_position, bias_start, bias_offset, row, batch,
    MODE: tl.constexpr, EDGE: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of keys for each entry of axis 0 of a program."""
    bias = None
    if bias_start is not None:
        bias = tl.load(bias_start + begin + bias_offset + position[None, :]).to(tl.float32)
    new_states = ()
    for entry in tl.static_range(ROWS):
        this = tl.minimum(row + entry, batch - 1)
        base = keys + this * keys_row + begin * keys_position.to(tl.int64)
        key = _head(base, position, keys_position, WIDTH, PADDED)
        value = _head(base + to_value, position, keys_position, WIDTH, WIDTH)
        lowered = None
        if mask is not None:
            kept = tl.load(mask + this * mask_row + (begin + position) * mask_position)
            lowered = (kept.to(tl.float32) - 1.0) * LOWERED
        state = _step(states[entry], queries[entry], key, value, lowered, bias, real, MODE, EDGE, PRECISION)
        new_states += (state,)
    return new_states


@triton.jit
def _program(
    index, projected, projected_row, projected_position, gating_bias, mask, mask_row, mask_position,
    pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length,
    FIRST_MODE: tl.constexpr, MODE: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    PADDED: tl.constexpr, SUMS: tl.constexpr, ROWS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All work on one block of queries, one head, some entries of axis 0: returns sums out of middle range.

    What is read past the end is the last position again, so that no load but that of a narrow head is
    predicated.
    """
    # blocks of one row and head run side by side, then rows: one head's bias stays in the L2 cache
    query_blocks = tl.cdiv(length, QUERIES)
    start = index % query_blocks * QUERIES
    index //= query_blocks
    row_blocks = tl.cdiv(batch, ROWS)
    head = index // row_blocks
    inner = HEADS * WIDTH
    # a last program of fewer rows computes the last one again
    row = (index % row_blocks).to(tl.int64) * ROWS
    projected += head * WIDTH
    keys = projected + inner
    # offsets from the block's start fit in 32 bits where those from the tensor's may not
    position = tl.minimum(tl.arange(0, QUERIES), length - 1 - start)
    query_start = projected + start * projected_position.to(tl.int64)
    queries = ()
    states = ()
    for entry in tl.static_range(ROWS):
        this = tl.minimum(row + entry, batch - 1)
        query = _head(query_start + this * projected_row, position, projected_position, WIDTH, PADDED)
        if query.dtype != tl.float32:
            query = (query.to(tl.float32) * WIDTH**-0.5).to(query.dtype)
        queries += (query,)
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
        bias_offset = position[:, None] * bias_query

    # the last block first, so that all others are whole
    local = tl.arange(0, KEYS)
    last = (length - 1) // KEYS * KEYS
    left = length - last
    states = _block(
        states, queries, last, tl.minimum(local, left - 1), local < left, keys, projected_row,
        projected_position, inner, mask, mask_row, mask_position, bias_start, bias_offset, row, batch,
        FIRST_MODE, True, WIDTH, PADDED, ROWS, PRECISION,
    )  # fmt: skip
    # stages said here, not at the launch, are for the bias too
    for begin in tl.range(0, last, KEYS, num_stages=STAGES):
        states = _block(
            states, queries, begin, local, None, keys, projected_row, projected_position, inner, mask,
            mask_row, mask_position, bias_start, bias_offset, row, batch,
            MODE, False, WIDTH, PADDED, ROWS, PRECISION,
        )  # fmt: skip

    channel = tl.arange(0, WIDTH)
    gate_bias = tl.load(gating_bias + head * WIDTH + channel).to(tl.float32)[None, :]
    here = (start + tl.arange(0, QUERIES) < length)[:, None]
    gate_start = query_start + 3 * inner + position[:, None] * projected_position + channel[None, :]
    gated += start.to(tl.int64) * gated_position + head * WIDTH
    gated += position[:, None] * gated_position + channel[None, :]
    outside = 0
    for entry in tl.static_range(ROWS):
        this = tl.minimum(row + entry, batch - 1)
        _, total, out = states[entry]
        gate = sigmoid(tl.load(gate_start + this * projected_row).to(tl.float32) + gate_bias)
        result = out * (SUMS / tl.sum(total, 1))[:, None] * gate
        tl.store(gated + this * gated_row, result.to(gated.dtype.element_ty), mask=here)
        outside += tl.sum(tl.sum(1 - ((total > LEAST) & (total < MOST)).to(tl.int32), 1), 0)
    return outside


@triton.jit(do_not_specialize=["batch", "length"])
def attend_blocks(
    projected, projected_row, projected_position, gating_bias, mask, mask_row, mask_position,
    pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length, outside,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, SUMS: tl.constexpr, ROWS: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """softmax(q kᵀ · scale + bias) v ⊙ sigmoid(g + b) of one block.

    projected [B, L, 4*H*D] holds q, k, v, g; gated is [B, L, H*D]; outside, if not None, takes for each block
    how many of its sums left the middle range.
    """
    index = tl.program_id(0)
    if outside is not None:
        sums = _program(
            index, projected, projected_row, projected_position, gating_bias, mask, mask_row,
            mask_position, pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length,
            FIRST, FIXED, HEADS, WIDTH, PADDED, SUMS, ROWS, QUERIES, KEYS, STAGES, PRECISION,
        )  # fmt: skip
        tl.store(outside + index, sums)
    else:
        _program(
            index, projected, projected_row, projected_position, gating_bias, mask, mask_row,
            mask_position, pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length,
            RUNNING, RUNNING, HEADS, WIDTH, PADDED, SUMS, ROWS, QUERIES, KEYS, STAGES, PRECISION,
        )  # fmt: skip


@triton.jit(do_not_specialize=["batch", "length", "blocks"])
def attend_again(
    projected, projected_row, projected_position, gating_bias, mask, mask_row, mask_position,
    pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length, outside, blocks,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, SUMS: tl.constexpr, SHARE: tl.constexpr,
    ROWS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The same of those of SHARE blocks of which sums left the middle range, with a running maximum."""
    begin = tl.program_id(0) * SHARE
    index = begin + tl.arange(0, SHARE)
    if tl.sum(tl.load(outside + index, mask=index < blocks, other=0), 0) > 0:
        for block in range(begin, tl.minimum(begin + SHARE, blocks)):
            if tl.load(outside + block) > 0:
                _program(
                    block, projected, projected_row, projected_position, gating_bias, mask, mask_row,
                    mask_position, pair_bias, bias_head, bias_query, gated, gated_row, gated_position,
                    batch, length,
                    RUNNING, RUNNING, HEADS, WIDTH, PADDED, SUMS, ROWS, QUERIES, KEYS, STAGES, PRECISION,
                )  # fmt: skip
