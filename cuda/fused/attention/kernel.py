"""Gated attention: a product for the projections, a kernel without logits in memory, one for the output.

A program takes a block of queries of one head, for some entries of axis 0, which share each tile of the pair
bias. What a logit costs is what the kernel costs: the bias is what the product of queries and keys is added
to, the softmax's sum is a product with ones, and in bfloat16, whose exponents are as wide as float32's, all
logits of a query are taken relative to the largest one of its first block, without a running maximum. Sums
that leave float32's middle range that way are taken again with one.
"""

import math

import torch
import triton
import triton.language as tl

from cuda.fused.attention.reference import MASKED, AttentionWeights
from cuda.fused.blocks import check_tensors, row_offsets
from cuda.fused.chunking import row_slices
from cuda.fused.launch_table import choose_launch
from cuda.fused.packing import side_by_side

WIDTHS = (8, 16, 32, 64)
# of which weights are as precise whatever logit they are relative to
ONE_MAXIMUM = (torch.bfloat16,)
LOG2_E = tl.constexpr(math.log2(math.e))
LOWERED = tl.constexpr(MASKED)
# sums between these have lost nothing, and values up to 2⁶⁰ times them are no infinity
LEAST = tl.constexpr(2.0**-60)
MOST = tl.constexpr(2.0**60)
# blocks that one program looks at, which seldom has to compute one of them
SHARE = 32
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
        gate = tl.sigmoid(tl.load(gate_start + this * projected_row).to(tl.float32) + gate_bias)
        result = out / (tl.sum(total, 1) / SUMS)[:, None] * gate
        tl.store(gated + this * gated_row, result.to(gated.dtype.element_ty), mask=here)
        outside += tl.sum(tl.sum(1 - ((total > LEAST) & (total < MOST)).to(tl.int32), 1), 0)
    return outside


@triton.jit(do_not_specialize=["batch", "length"])
def _attend(
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
def _attend_again(
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


@triton.jit
def _output(
    gated, weights, bias, result, count, per_outer, outer_stride, inner_stride,
    DEPTH: tl.constexpr, CHANNELS: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """gated [R, DEPTH] W + b, written to rows of the result wherever they lie, or added to them."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, STEP)
    places = gated + row.to(tl.int64)[:, None] * DEPTH
    out = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in tl.range(0, DEPTH, STEP):
        term = begin + depth
        here = (row < count)[:, None] & (term < DEPTH)[None, :]
        matrix_here = (term < DEPTH)[:, None] & (column < CHANNELS)[None, :]
        part = tl.load(places + term[None, :], mask=here, other=0.0)
        matrix = tl.load(weights + term[:, None] * CHANNELS + column[None, :], mask=matrix_here, other=0.0)
        out = tl.dot(part, matrix, out, input_precision=PRECISION)
    out += tl.load(bias + column, mask=column < CHANNELS, other=0.0).to(tl.float32)[None, :]
    starts = row_offsets(row, per_outer, outer_stride, inner_stride)
    here = (row < count)[:, None] & (column < CHANNELS)[None, :]
    target = result + starts[:, None] + column[None, :]
    if ADD:
        out += tl.load(target, mask=here, other=0.0).to(tl.float32)
    tl.store(target, out.to(result.dtype.element_ty), mask=here)


def attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """Gated multi-head self-attention along axis 1; as the reference, whose arguments it takes.

    Args:
        x: [B, L, C], already normalised; axes 0 and 1 may be swapped in memory (MSA columns, ending node) and
            are then swapped in the result's memory too, so that neither is copied.
        weights: the layer's projections; heads 8, 16, 32 or 64 wide.
        mask: [B, L], 1 for keys that may be attended to, or None for all.
        pair_bias: [H, L, L], read for all entries of axis 0, or None.
        budget: elements of projections alive at once; the result does not depend on it.

    Returns:
        [B, L, O].

    Raises:
        ValueError: a head has another width, or no kernel runs on this device or dtype.
    """
    batch, length, _ = x.shape
    outputs = weights.output.shape[-1]
    if x.stride(0) < x.stride(1):
        result = x.new_empty(length, batch, outputs).transpose(0, 1)
    else:
        result = x.new_empty(batch, length, outputs)
    _attention(result, x, weights, mask, pair_bias, budget, add=False)
    return result


def add_attention(
    representation: torch.Tensor,
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """Add what `attention` gives for the other arguments to a representation in place, rounded once.

    Args:
        representation: [B, L, O], channels contiguous, axes 0 and 1 in any order in memory.

    Returns:
        representation.
    """
    _attention(representation, x, weights, mask, pair_bias, budget, add=True)
    return representation


def _attention(
    result: torch.Tensor,
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    budget: int | None,
    *,
    add: bool,
) -> None:
    check_tensors("attention", x, result, *weights)
    inner = weights.query[0].numel()
    projection = side_by_side(weights.query, weights.key, weights.value, weights.gating)  # [C, 4*H*D]
    bias = None if pair_bias is None else _aligned(pair_bias)
    swapped = x.stride(0) < x.stride(1)
    for rows in row_slices(x, 5 * x.shape[1] * inner, budget):
        # intermediates have their two long axes in the order in which the input has them in memory
        projected = (x[rows].transpose(0, 1) if swapped else x[rows]) @ projection
        gated = projected.new_empty(*projected.shape[:2], inner)
        attend(
            projected.transpose(0, 1) if swapped else projected,
            weights.gating_bias,
            None if mask is None else mask[rows],
            bias,
            gated.transpose(0, 1) if swapped else gated,
        )
        target = result[rows].transpose(0, 1) if swapped else result[rows]
        _project(gated, weights, target, add)
        del projected, gated  # before there are those of the next rows


def _project(gated: torch.Tensor, weights: AttentionWeights, result: torch.Tensor, add: bool) -> None:
    """The output projection of gated [..., ..., H*D], contiguous, to result [..., ..., O]."""
    heads, width, channels = weights.output.shape
    options = choose_launch("attention", gated, width)["output"]
    count = gated.shape[0] * gated.shape[1]
    if count:
        _output[(triton.cdiv(count, options["ROWS"]), triton.cdiv(channels, options["COLUMNS"]))](
            gated,
            weights.output.contiguous(),
            weights.output_bias.contiguous(),
            result,
            count,
            result.shape[1],
            result.stride(0),
            result.stride(1),
            DEPTH=heads * width,
            CHANNELS=channels,
            ADD=add,
            **options,
        )


def attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    gated: torch.Tensor,
) -> None:
    """The kernel between the projections.

    Args:
        projected: [B, L, 4*H*D], queries, keys, values and gates; any strides of the first two axes.
        gating_bias: [H, D], contiguous.
        mask: [B, L] or None.
        pair_bias: [H, L, L] or None, its last axis contiguous.
        gated: [B, L, H*D], written.

    Raises:
        ValueError: a head has no width of 8, 16, 32 or 64, or no kernel runs on this device or dtype.
    """
    check_tensors("attention", projected, gating_bias, gated)
    batch, length, _ = projected.shape
    heads, width = gating_bias.shape
    if width not in WIDTHS:
        raise ValueError(f"fused attention takes heads {WIDTHS} wide, not {width}")
    options = choose_launch("attention", projected, width)["attend"]
    blocks = triton.cdiv(length, options["QUERIES"]) * triton.cdiv(batch, options["ROWS"]) * heads
    outside = projected.new_empty(blocks, dtype=torch.int32) if projected.dtype in ONE_MAXIMUM else None
    arguments = (
        projected,
        projected.stride(0),
        projected.stride(1),
        gating_bias.contiguous(),
        mask,
        *((0, 0) if mask is None else mask.stride()),
        pair_bias,
        *((0, 0) if pair_bias is None else pair_bias.stride()[:2]),
        gated,
        gated.stride(0),
        gated.stride(1),
        batch,
        length,
        outside,
    )
    # float32's products are no cheaper than its sums
    sums = 1 if projected.dtype == torch.float32 else 8
    sizes = {"HEADS": heads, "WIDTH": width, "PADDED": max(16, width), "SUMS": sums}
    if blocks:
        _attend[(blocks,)](*arguments, **sizes, **options)
        if outside is not None:
            # with fewer registers than it wants it spills, and it seldom shares a multiprocessor
            uncapped = {name: value for name, value in options.items() if name != "maxnreg"}
            _attend_again[(triton.cdiv(blocks, SHARE),)](*arguments, blocks, **sizes, SHARE=SHARE, **uncapped)


def _aligned(pair_bias: torch.Tensor) -> torch.Tensor:
    """The same [H, L, L] with rows that begin at multiples of 16 elements, for wide loads."""
    length = pair_bias.shape[-1]
    if pair_bias.stride(-1) == 1 and pair_bias.stride(-2) % 16 == 0:
        return pair_bias
    room = pair_bias.new_empty(*pair_bias.shape[:-1], triton.cdiv(length, 16) * 16)
    return room[..., :length].copy_(pair_bias)
