"""Softmax with scale, mask and bias as one Triton kernel: logits are read once and written once."""

import math

import torch
import triton
import triton.language as tl

from cuda.fused.attention.reference import MASKED
from cuda.fused.blocks import check_tensors
from cuda.fused.launch_table import choose_launch

LOG2_E = tl.constexpr(math.log2(math.e))
LOWERED = tl.constexpr(MASKED * math.log2(math.e))
LONGEST = 16384


@triton.jit
def _softmax(
    logits, logits_strides, mask, mask_strides, bias, bias_strides, result, factor, count, heads, queries,
    keys, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A block of rows of logits [B, H, Q, K], in units of log2; the result is contiguous."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    key = tl.arange(0, BLOCK)
    present = (key < keys)[None, :]
    here = (row < count)[:, None] & present
    query = row % queries
    head = row // queries % heads
    entry = row // queries // heads
    entry_stride, head_stride, query_stride, key_stride = logits_strides
    start = entry * entry_stride + head * head_stride + query * query_stride
    x = tl.load(logits + start[:, None] + key[None, :] * key_stride, mask=here, other=0.0)
    x = x.to(tl.float32) * factor
    if bias is not None:
        head_stride, query_stride, key_stride = bias_strides
        start = head * head_stride + query * query_stride
        part = tl.load(bias + start[:, None] + key[None, :] * key_stride, mask=here, other=0.0)
        x += part.to(tl.float32) * LOG2_E
    if mask is not None:
        entry_stride, key_stride = mask_strides
        place = (entry * entry_stride)[:, None] + key[None, :] * key_stride
        x += (tl.load(mask + place, mask=here, other=0.0).to(tl.float32) - 1.0) * LOWERED
    x = tl.where(present, x, float("-inf"))
    x = tl.exp2(x - tl.max(x, 1)[:, None])
    x = x / tl.sum(x, 1)[:, None]
    tl.store(result + row[:, None] * keys + key[None, :], x.to(result.dtype.element_ty), mask=here)


def softmax(
    logits: torch.Tensor,
    scale: float = 1.0,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """As the reference, whose arguments it takes, strided as they come; at most 16,384 keys.

    Raises:
        ValueError: no kernel takes these tensors.
    """
    check_tensors("softmax", logits)
    entries, heads, queries, keys = logits.shape
    if keys > LONGEST:
        raise ValueError(f"fused softmax takes at most {LONGEST} keys, not {keys}")
    result = logits.new_empty(logits.shape)
    options = choose_launch("softmax", logits, keys)
    count = entries * heads * queries
    if count * keys:
        _softmax[(triton.cdiv(count, options["ROWS"]),)](
            logits,
            logits.stride(),
            mask,
            None if mask is None else mask.stride(),
            bias,
            None if bias is None else bias.stride(),
            result,
            scale * math.log2(math.e),
            count,
            heads,
            queries,
            keys,
            BLOCK=triton.next_power_of_2(keys),
            **options,
        )
    return result
