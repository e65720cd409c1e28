"""Gated attention: a product for the projections, a kernel without logits in memory, one for the output.

A program takes a block of queries of one head, for one or two entries of axis 0: two share each tile of the
pair bias, which is most of what the kernel reads. Logits are in units of log2, so that softmax needs exp2
alone.
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
LOG2_E = tl.constexpr(math.log2(math.e))
LOWERED = tl.constexpr(MASKED * math.log2(math.e))


@triton.jit
def _key(base, position, stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Keys of one head, [PADDED, keys]: a product needs 16 terms, so narrow heads get zeros."""
    channel = tl.arange(0, PADDED)
    pointers = base + position[None, :] * stride + channel[:, None]
    if PADDED == WIDTH:
        return tl.load(pointers)
    return tl.load(pointers, mask=channel[:, None] < WIDTH, other=0.0)


@triton.jit
def _step(
    state, query, keys, stride, to_value, mask, mask_stride, bias, position, real, factor,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Online softmax over one block of keys, for one entry of axis 0; keys and mask point to its first."""
    top, total, out = state
    key = _key(keys, position, stride, WIDTH, PADDED)
    value = tl.load(keys + to_value + position[:, None] * stride + tl.arange(0, WIDTH)[None, :])
    logits = tl.dot(query, key, input_precision=PRECISION) * factor  # [queries, keys]
    if bias is not None:
        logits += bias
    if mask is not None:
        logits += ((tl.load(mask + position * mask_stride).to(tl.float32) - 1.0) * LOWERED)[None, :]
    if EDGE:
        logits = tl.where(real[None, :], logits, float("-inf"))
    new_top = tl.maximum(top, tl.max(logits, 1))
    shrink = tl.exp2(top - new_top)
    weight = tl.exp2(logits - new_top[:, None])
    total = total * shrink + tl.sum(weight, 1)
    out = tl.dot(weight.to(value.dtype), value, out * shrink[:, None], input_precision=PRECISION)
    return new_top, total, out


@triton.jit
def _block(
    states, queries, begin, position, real, keys, keys_row, keys_position, to_value, mask, mask_row,
    mask_position, bias_start, bias_offset, row, other_row, factor,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, EDGE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of keys for the one or two entries of axis 0 of a program."""
    state, other_state = states
    query, other_query = queries
    bias = None
    if bias_start is not None:
        bias = tl.load(bias_start + begin + bias_offset + position[None, :]).to(tl.float32) * LOG2_E
    keys += begin * keys_position.to(tl.int64)
    mask_begin = None
    other_mask_begin = None
    if mask is not None:
        mask_begin = mask + row * mask_row + begin * mask_position
        other_mask_begin = mask + other_row * mask_row + begin * mask_position
    state = _step(
        state, query, keys + row * keys_row, keys_position, to_value, mask_begin, mask_position, bias,
        position, real, factor, WIDTH, PADDED, EDGE, PRECISION,
    )  # fmt: skip
    if ROWS == 2:
        other_state = _step(
            other_state, other_query, keys + other_row * keys_row, keys_position, to_value,
            other_mask_begin, mask_position, bias, position, real, factor,
            WIDTH, PADDED, EDGE, PRECISION,
        )  # fmt: skip
    return state, other_state


@triton.jit
def _finish(state, gate, gating_bias, gated, here):
    """Divide by the softmax's sum, gate and store."""
    _, total, out = state
    gate = tl.sigmoid(tl.load(gate).to(tl.float32) + gating_bias)
    tl.store(gated, (out / total[:, None] * gate).to(gated.dtype.element_ty), mask=here)


@triton.jit
def _attend(
    projected, projected_row, projected_position, gating_bias, mask, mask_row, mask_position,
    pair_bias, bias_head, bias_query, gated, gated_row, gated_position, batch, length, factor,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, QUERIES: tl.constexpr,
    KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """softmax(q kᵀ · scale + bias) v ⊙ sigmoid(g + b) of a block of queries.

    projected [B, L, 4*H*D] holds q, k, v, g; gated is [B, L, H*D]; factor is scale · log2 e. What is read
    past the end is the last position again, so that no load but that of a narrow head is predicated.
    """
    # blocks of one row and head run side by side, then rows: one head's bias stays in the L2 cache
    start = tl.program_id(0) * QUERIES
    head = tl.program_id(2)
    inner = tl.num_programs(2) * WIDTH
    row = tl.program_id(1).to(tl.int64) * ROWS
    # an odd number of rows: the last program computes one twice
    other_row = tl.minimum(row + 1, batch - 1)
    projected += head * WIDTH
    keys = projected + inner
    # offsets from the block's start fit in 32 bits where those from the tensor's may not
    position = tl.minimum(tl.arange(0, QUERIES), length - 1 - start)
    channel = tl.arange(0, WIDTH)
    query_start = projected + start * projected_position.to(tl.int64)
    query = tl.trans(_key(query_start + row * projected_row, position, projected_position, WIDTH, PADDED))
    other_query = query
    if ROWS == 2:
        other_start = query_start + other_row * projected_row
        other_query = tl.trans(_key(other_start, position, projected_position, WIDTH, PADDED))
    queries = (query, other_query)
    bias_start = pair_bias
    bias_offset = None
    if pair_bias is not None:
        bias_start += head.to(tl.int64) * bias_head + start.to(tl.int64) * bias_query
        bias_offset = position[:, None] * bias_query

    state = (
        tl.full([QUERIES], float("-inf"), tl.float32),
        tl.zeros([QUERIES], tl.float32),
        tl.zeros([QUERIES, WIDTH], tl.float32),
    )
    states = (state, state)
    local = tl.arange(0, KEYS)
    whole = length // KEYS * KEYS
    for begin in tl.range(0, whole, KEYS):
        states = _block(
            states, queries, begin, local, None, keys, projected_row, projected_position, inner, mask,
            mask_row, mask_position, bias_start, bias_offset, row, other_row, factor,
            ROWS, WIDTH, PADDED, False, PRECISION,
        )  # fmt: skip
    if whole < length:
        states = _block(
            states, queries, whole, tl.minimum(local, length - 1 - whole), local < length - whole, keys,
            projected_row, projected_position, inner, mask, mask_row, mask_position, bias_start,
            bias_offset, row, other_row, factor, ROWS, WIDTH, PADDED, True, PRECISION,
        )  # fmt: skip

    gate_bias = tl.load(gating_bias + head * WIDTH + channel).to(tl.float32)[None, :]
    here = (start + tl.arange(0, QUERIES) < length)[:, None]
    gate = query_start + 3 * inner + position[:, None] * projected_position + channel[None, :]
    gated += start.to(tl.int64) * gated_position + head * WIDTH
    gated += position[:, None] * gated_position + channel[None, :]
    state, other_state = states
    _finish(state, gate + row * projected_row, gate_bias, gated + row * gated_row, here)
    if ROWS == 2:
        _finish(other_state, gate + other_row * projected_row, gate_bias, gated + other_row * gated_row, here)


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
    biased = pair_bias is not None
    options = choose_launch("attention", projected, width, biased=int(biased))["attend"]
    grid = (triton.cdiv(length, options["QUERIES"]), triton.cdiv(batch, options["ROWS"]), heads)
    if batch * length:
        _attend[grid](
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
            width**-0.5 * math.log2(math.e),
            WIDTH=width,
            PADDED=max(16, width),
            **options,
        )


def _aligned(pair_bias: torch.Tensor) -> torch.Tensor:
    """The same [H, L, L] with rows that begin at multiples of 16 elements, for wide loads."""
    length = pair_bias.shape[-1]
    if pair_bias.stride(-1) == 1 and pair_bias.stride(-2) % 16 == 0:
        return pair_bias
    room = pair_bias.new_empty(*pair_bias.shape[:-1], triton.cdiv(length, 16) * 16)
    return room[..., :length].copy_(pair_bias)
