"""Global attention in three passes over its input, each limited by memory bandwidth.

The passes compute the mean, the softmax-weighted sum and the gated result. With one query per head, and one
key and value head for all, keys and values need not be computed: the logits of head h are x (W_k q_h), and
its result is (Σ_s p_s x_s) W_v, where x is the input as each pass normalises it. Data between the passes has
the size of one position of each row, and is float32.
"""

import math

import torch
import triton
import triton.language as tl

from cuda.fused.attention.reference import MASK_PENALTY, AttentionWeights
from cuda.fused.launch import check_tensors, choose_launch, padded_channels
from cuda.fused.rows import load_normalised, sigmoid

# the logits are in units of log2
MASK_PENALTY_LOG2 = tl.constexpr(MASK_PENALTY * math.log2(math.e))
# the smallest tile of queries; with fewer heads some of its rows are unused
HEADS = 16


@triton.jit
def _load_positions(
    x, stride, norm, begin, length, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, POSITIONS: tl.constexpr
):  # fmt: skip
    """Load normalised positions [POSITIONS, BLOCK] of one row; past the last one LayerNorm's offset."""
    channel = tl.arange(0, BLOCK)
    local = tl.arange(0, POSITIONS)
    mask = (begin + local < length)[:, None] & (channel < CHANNELS)[None, :]
    offsets = local[:, None] * stride + channel[None, :]
    x += begin * stride.to(tl.int64)
    return load_normalised(x, offsets, mask, norm[0], norm[1], CHANNELS, BLOCK).to(x.dtype.element_ty)


@triton.jit(do_not_specialize=["mask_row", "mask_position", "length"])
def _mean(
    x, x_row, x_position, norm, mask, mask_row, mask_position, mean, length,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, POSITIONS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the mean [B, C] of LN(x) over the unmasked positions."""
    row = tl.program_id(0).to(tl.int64)
    x += row * x_row
    mask += row * mask_row
    total = tl.zeros([BLOCK], tl.float32)
    count = 0.0
    local = tl.arange(0, POSITIONS)
    for begin in tl.range(0, length, POSITIONS):
        keep = tl.load(mask + (begin + local) * mask_position, mask=begin + local < length, other=0.0)
        keep = keep.to(tl.float32)
        tile = _load_positions(x, x_position, norm, begin, length, CHANNELS, BLOCK, POSITIONS).to(tl.float32)
        total += tl.sum(tile * keep[:, None], 0)
        count += tl.sum(keep, 0)
    channel = tl.arange(0, BLOCK)
    tl.store(mean + row * CHANNELS + channel, total / (count + 1e-10), mask=channel < CHANNELS)


@triton.jit(do_not_specialize=["mask_row", "mask_position", "length"])
def _softmax_sum(
    x, x_row, x_position, norm, mask, mask_row, mask_position, queries, summed, length,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr, POSITIONS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write Σ_s softmax_s(queries · x_s) x_s of the normalised x for each head.

    Queries (in units of log2) and result are [B, HEADS, C].
    """
    row = tl.program_id(0).to(tl.int64)
    x += row * x_row
    mask += row * mask_row
    channel = tl.arange(0, BLOCK)
    offsets = row * HEADS * CHANNELS + tl.arange(0, HEADS)[:, None] * CHANNELS + channel[None, :]
    channels = (channel < CHANNELS)[None, :]
    query = tl.load(queries + offsets, mask=channels, other=0.0).to(x.dtype.element_ty)
    maximum = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    out = tl.zeros([HEADS, BLOCK], tl.float32)
    local = tl.arange(0, POSITIONS)
    for begin in tl.range(0, length, POSITIONS):
        real = begin + local < length
        keep = tl.load(mask + (begin + local) * mask_position, mask=real, other=0.0).to(tl.float32)
        tile = _load_positions(x, x_position, norm, begin, length, CHANNELS, BLOCK, POSITIONS)
        logits = tl.dot(query, tl.trans(tile), input_precision=PRECISION)  # [HEADS, POSITIONS]
        logits += ((keep - 1.0) * MASK_PENALTY_LOG2)[None, :]
        logits = tl.where(real[None, :], logits, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(logits, 1))
        rescale = tl.exp2(maximum - new_maximum)
        weight = tl.exp2(logits - new_maximum[:, None])
        total = total * rescale + tl.sum(weight, 1)
        out = tl.dot(weight.to(tile.dtype), tile, out * rescale[:, None], input_precision=PRECISION)
        maximum = new_maximum
    tl.store(summed + offsets, out / total[:, None], mask=channels)


@triton.jit
def _add_row(product, row):
    """Return product + row[None, :] without letting the compiler start the product's sums with the row.

    In float32 that would round each term to the precision of the row.
    """
    return tl.fma(product, 1.0, row[None, :])


@triton.jit(do_not_specialize=["length"])
def _gate(
    x, x_row, x_position, norm, attended, gating, gating_bias, output, output_bias, result, result_row,
    result_position, length, CHANNELS: tl.constexpr, INNER: tl.constexpr, OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr, INNER_BLOCK: tl.constexpr, OUTPUT_BLOCK: tl.constexpr, POSITIONS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write (sigmoid(LN(x) G + b) ⊙ attended) W_o + b_o of positions of one row; attended is [B, INNER]."""
    row = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0) * POSITIONS
    channel = tl.arange(0, BLOCK)
    inner = tl.arange(0, INNER_BLOCK)
    column = tl.arange(0, OUTPUT_BLOCK)
    tile = _load_positions(x + row * x_row, x_position, norm, begin, length, CHANNELS, BLOCK, POSITIONS)
    matrix = tl.load(
        gating + channel[:, None] * INNER + inner[None, :],
        mask=(channel < CHANNELS)[:, None] & (inner < INNER)[None, :],
        other=0.0,
    )
    gate = tl.dot(tile, matrix, input_precision=PRECISION)
    gate = _add_row(gate, tl.load(gating_bias + inner, mask=inner < INNER, other=0.0).to(tl.float32))
    gate = sigmoid(gate) * tl.load(attended + row * INNER + inner, mask=inner < INNER, other=0.0)[None, :]
    matrix = tl.load(
        output + inner[:, None] * OUTPUTS + column[None, :],
        mask=(inner < INNER)[:, None] & (column < OUTPUTS)[None, :],
        other=0.0,
    )
    update = tl.dot(gate.to(tile.dtype), matrix, input_precision=PRECISION)
    update = _add_row(update, tl.load(output_bias + column, mask=column < OUTPUTS, other=0.0).to(tl.float32))
    local = tl.arange(0, POSITIONS)
    result += row * result_row + begin * result_position.to(tl.int64)
    offsets = local[:, None] * result_position + column[None, :]
    mask = (begin + local < length)[:, None] & (column < OUTPUTS)[None, :]
    tl.store(result + offsets, update.to(result.dtype.element_ty), mask=mask)


def global_attention(x: torch.Tensor, weights: AttentionWeights, mask: torch.Tensor) -> torch.Tensor:
    """Compute gated attention with one averaged query; same arguments as the reference.

    Channels are contiguous; if axes 0 and 1 are swapped in memory (MSA columns), those of the result are,
    too. Weights are of x's dtype and have at most 16 heads.
    """
    check_tensors("global_attention", x, *weights)
    batch, length, channels = x.shape
    _, heads, width = weights.query.shape
    inner, outputs = heads * width, weights.output.shape[-1]
    if heads > HEADS or max(channels, inner, outputs) > 256 or x.stride(-1) != 1:
        raise ValueError(
            f"fused global_attention needs at most {HEADS} heads and 256 contiguous channels, "
            f"not {heads} heads and {channels}, {inner} and {outputs} channels"
        )
    swapped = x.stride(0) < x.stride(1)
    shape = (length, batch, outputs) if swapped else (batch, length, outputs)
    result = x.new_empty(shape).transpose(0, 1) if swapped else x.new_empty(shape)
    if not batch * length:
        return result
    options = choose_launch("global_attention", x, channels)
    norm = (weights.norm_scale.contiguous(), weights.norm_offset.contiguous())
    rows = (x, x.stride(0), x.stride(1), norm)
    masked = (mask, *mask.stride())
    sizes = {"CHANNELS": channels, "BLOCK": padded_channels(channels)}

    mean = x.new_empty(batch, channels, dtype=torch.float32)
    _mean[(batch,)](*rows, *masked, mean, length, **sizes, **options)
    query = (mean @ weights.query.reshape(channels, inner).float()).view(batch, heads, width)
    queries = x.new_zeros(batch, HEADS, channels, dtype=torch.float32)
    queries[:, :heads] = query @ weights.key.float().T * (width**-0.5 * math.log2(math.e))
    summed = torch.empty_like(queries)
    _softmax_sum[(batch,)](*rows, *masked, queries, summed, length, **sizes, HEADS=HEADS, **options)
    attended = summed[:, :heads] @ weights.value.float()  # [B, H, D]
    _gate[(triton.cdiv(length, options["POSITIONS"]), batch)](
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
        INNER_BLOCK=padded_channels(inner),
        OUTPUT_BLOCK=padded_channels(outputs),
        **options,
    )
    return result
