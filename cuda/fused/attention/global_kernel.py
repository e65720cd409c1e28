"""Global attention in three passes over its input, each bound by reading it: mean, softmax sum, gated result.

There is one query a head and one key and value head for all, so keys and values need not be made: the logits
of head h are x (W_k q_h), and its result is (Σ_s p_s x_s) W_v, where x is the input as each pass normalises
it. What lies between the passes has the size of one position of axis 1, and is float32.
"""

import math

import torch
import triton
import triton.language as tl

from cuda.fused.attention.reference import MASKED, AttentionWeights
from cuda.fused.blocks import check_tensors, normalised_rows, sigmoid
from cuda.fused.launch_table import choose_launch

LOWERED = tl.constexpr(MASKED * math.log2(math.e))
HEADS = 16  # the least rows of a tile of queries; fewer heads leave some empty


@triton.jit
def _rows(
    x, stride, norm, begin, length, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Positions [ROWS, BLOCK] of one entry of axis 0, normalised; LayerNorm's offset past the last."""
    channel = tl.arange(0, BLOCK)
    local = tl.arange(0, ROWS)
    present = (begin + local < length)[:, None] & (channel < CHANNELS)[None, :]
    places = local[:, None] * stride + channel[None, :]
    x += begin * stride.to(tl.int64)
    return normalised_rows(x, places, present, norm[0], norm[1], CHANNELS, BLOCK).to(x.dtype.element_ty)


@triton.jit
def _mean(
    x, x_entry, x_position, norm, mask, mask_entry, mask_position, mean, length,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Mean [B, C] of LN(x) over the positions that the mask leaves."""
    entry = tl.program_id(0).to(tl.int64)
    x += entry * x_entry
    mask += entry * mask_entry
    total = tl.zeros([BLOCK], tl.float32)
    count = 0.0
    local = tl.arange(0, ROWS)
    for begin in tl.range(0, length, ROWS):
        kept = tl.load(mask + (begin + local) * mask_position, mask=begin + local < length, other=0.0)
        kept = kept.to(tl.float32)
        part = _rows(x, x_position, norm, begin, length, CHANNELS, BLOCK, ROWS).to(tl.float32)
        total += tl.sum(part * kept[:, None], 0)
        count += tl.sum(kept, 0)
    channel = tl.arange(0, BLOCK)
    tl.store(mean + entry * CHANNELS + channel, total / (count + 1e-10), mask=channel < CHANNELS)


@triton.jit
def _softmax_sum(
    x, x_entry, x_position, norm, mask, mask_entry, mask_position, queries, summed, length,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Σ_s softmax_s(queries · x_s) x_s of x normalised, for each head.

    Queries, in units of log2, and result are [B, HEADS, C].
    """
    entry = tl.program_id(0).to(tl.int64)
    x += entry * x_entry
    mask += entry * mask_entry
    channel = tl.arange(0, BLOCK)
    places = entry * HEADS * CHANNELS + tl.arange(0, HEADS)[:, None] * CHANNELS + channel[None, :]
    there = (channel < CHANNELS)[None, :]
    query = tl.load(queries + places, mask=there, other=0.0).to(x.dtype.element_ty)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    out = tl.zeros([HEADS, BLOCK], tl.float32)
    local = tl.arange(0, ROWS)
    for begin in tl.range(0, length, ROWS):
        real = begin + local < length
        kept = tl.load(mask + (begin + local) * mask_position, mask=real, other=0.0).to(tl.float32)
        part = _rows(x, x_position, norm, begin, length, CHANNELS, BLOCK, ROWS)
        logits = tl.dot(query, tl.trans(part), input_precision=PRECISION)  # [HEADS, ROWS]
        logits += ((kept - 1.0) * LOWERED)[None, :]
        logits = tl.where(real[None, :], logits, float("-inf"))
        new_top = tl.maximum(top, tl.max(logits, 1))
        shrink = tl.exp2(top - new_top)
        weight = tl.exp2(logits - new_top[:, None])
        total = total * shrink + tl.sum(weight, 1)
        out = tl.dot(weight.to(part.dtype), part, out * shrink[:, None], input_precision=PRECISION)
        top = new_top
    tl.store(summed + places, out / total[:, None], mask=there)


@triton.jit
def _plus(product, row):
    """product + row[None, :], where the compiler would begin the product's sums with the row.

    In float32 each term would then be rounded to the row's digits.
    """
    return tl.fma(product, 1.0, row[None, :])


@triton.jit
def _gated(
    x, x_entry, x_position, norm, attended, gating, gating_bias, output, output_bias, result, result_entry,
    result_position, length, CHANNELS: tl.constexpr, INNER: tl.constexpr, OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr, INNER_BLOCK: tl.constexpr, OUTPUT_BLOCK: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """(sigmoid(LN(x) G + b) ⊙ attended) W_o + b_o of some positions of one entry; attended is [B, INNER]."""
    entry = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0) * ROWS
    channel = tl.arange(0, BLOCK)
    inner = tl.arange(0, INNER_BLOCK)
    column = tl.arange(0, OUTPUT_BLOCK)
    part = _rows(x + entry * x_entry, x_position, norm, begin, length, CHANNELS, BLOCK, ROWS)
    matrix = tl.load(
        gating + channel[:, None] * INNER + inner[None, :],
        mask=(channel < CHANNELS)[:, None] & (inner < INNER)[None, :],
        other=0.0,
    )
    gate = tl.dot(part, matrix, input_precision=PRECISION)
    gate = _plus(gate, tl.load(gating_bias + inner, mask=inner < INNER, other=0.0).to(tl.float32))
    gate = sigmoid(gate) * tl.load(attended + entry * INNER + inner, mask=inner < INNER, other=0.0)[None, :]
    matrix = tl.load(
        output + inner[:, None] * OUTPUTS + column[None, :],
        mask=(inner < INNER)[:, None] & (column < OUTPUTS)[None, :],
        other=0.0,
    )
    update = tl.dot(gate.to(part.dtype), matrix, input_precision=PRECISION)
    update = _plus(update, tl.load(output_bias + column, mask=column < OUTPUTS, other=0.0).to(tl.float32))
    local = tl.arange(0, ROWS)
    result += entry * result_entry + begin * result_position.to(tl.int64)
    places = local[:, None] * result_position + column[None, :]
    there = (begin + local < length)[:, None] & (column < OUTPUTS)[None, :]
    tl.store(result + places, update.to(result.dtype.element_ty), mask=there)


def global_attention(
    x: torch.Tensor, weights: AttentionWeights, mask: torch.Tensor, budget: int | None = None
) -> torch.Tensor:
    """Gated attention of LN(x) with one averaged query; as the reference, whose arguments it takes.

    Args:
        x: [B, L, C], channels contiguous; axes 0 and 1 may be swapped in memory and are then swapped in the
            result's memory too.
        weights: the layer's parameters, of x's dtype; key and value are [C, D]; at most 16 heads.
        mask: [B, L], 1 for keys that may be attended to.
        budget: taken for the reference's sake; there are no large intermediates to bound.

    Returns:
        [B, L, O].

    Raises:
        ValueError: no kernel takes these tensors.
    """
    check_tensors("attention", x, *weights)
    batch, length, channels = x.shape
    _, heads, width = weights.query.shape
    inner, outputs = heads * width, weights.output.shape[-1]
    if heads > HEADS or max(channels, inner, outputs) > 256 or x.stride(-1) != 1:
        raise ValueError(
            f"fused global attention takes at most {HEADS} heads and 256 contiguous channels, "
            f"not {heads} heads and {channels}, {inner} and {outputs} channels"
        )
    swapped = x.stride(0) < x.stride(1)
    shape = (length, batch, outputs) if swapped else (batch, length, outputs)
    result = x.new_empty(shape).transpose(0, 1) if swapped else x.new_empty(shape)
    if not batch * length:
        return result
    options = choose_launch("attention", x, channels, shared_key=1)
    norm = (weights.norm_scale.contiguous(), weights.norm_offset.contiguous())
    rows = (x, x.stride(0), x.stride(1), norm)
    masked = (mask, *mask.stride())
    sizes = {"CHANNELS": channels, "BLOCK": _block(channels)}

    mean = x.new_empty(batch, channels, dtype=torch.float32)
    _mean[(batch,)](*rows, *masked, mean, length, **sizes, **options)
    query = (mean @ weights.query.reshape(channels, inner).float()).view(batch, heads, width)
    queries = x.new_zeros(batch, HEADS, channels, dtype=torch.float32)
    queries[:, :heads] = query @ weights.key.float().T * (width**-0.5 * math.log2(math.e))
    summed = torch.empty_like(queries)
    _softmax_sum[(batch,)](*rows, *masked, queries, summed, length, **sizes, HEADS=HEADS, **options)
    attended = summed[:, :heads] @ weights.value.float()  # [B, H, D]
    _gated[(triton.cdiv(length, options["ROWS"]), batch)](
        *rows,
        attended,
        weights.gating.contiguous(),
        weights.gating_bias.contiguous(),
        weights.output.contiguous(),
        weights.output_bias.contiguous(),
        result,
        result.stride(0),
        result.stride(1),
        length,
        **sizes,
        INNER=inner,
        OUTPUTS=outputs,
        INNER_BLOCK=_block(inner),
        OUTPUT_BLOCK=_block(outputs),
        **options,
    )
    return result


def _block(channels: int) -> int:
    return max(16, triton.next_power_of_2(channels))
