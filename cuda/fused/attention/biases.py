"""The Triton kernel that prepares a pair bias and the mask of keys for `hopper_core`."""

import math

import torch
import triton
import triton.language as tl

from cuda.fused.attention.reference import padded_keys
from cuda.fused.attention.triton_core import MASK_PENALTY

LOG2_E = tl.constexpr(math.log2(math.e))
# positions of a program
QUERIES, KEYS = 4, 512


@triton.jit
def load_masked(bias, bias_query, bias_key, mask, mask_position, query, key, length):
    """Load the bias [queries, keys] of one head plus the mask's penalty: float32, -inf past the last key."""
    real = (query < length)[:, None] & (key < length)[None, :]
    pointers = bias + query.to(tl.int64)[:, None] * bias_query + key[None, :] * bias_key
    value = tl.load(pointers, mask=real, other=float("-inf")).to(tl.float32)
    if mask is not None:
        keep = tl.load(mask + key * mask_position, mask=key < length, other=1.0).to(tl.float32)
        value += ((keep - 1.0) * MASK_PENALTY)[None, :]
    return value


@triton.jit(do_not_specialize=["length", "padded"])
def relate_bias(
    bias, bias_head, bias_query, bias_key, mask, mask_position, relative, maxima, length, padded,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the largest sum of bias and penalty of QUERIES queries, and all sums relative to it.

    bias is [H, L, L or more], mask [L] or None, relative [H, L, padded] in units of log2, with -inf after the
    last key, and maxima [H, L].
    """
    head = tl.program_id(1).to(tl.int64)
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    bias += head * bias_head
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    for first in range(0, length, KEYS):
        key = first + tl.arange(0, KEYS)
        value = load_masked(bias, bias_query, bias_key, mask, mask_position, query, key, length)
        largest = tl.maximum(largest, tl.max(value, 1))
    row = head * length + query
    tl.store(maxima + row, largest, mask=query < length)
    for first in range(0, padded, KEYS):
        key = first + tl.arange(0, KEYS)
        value = load_masked(bias, bias_query, bias_key, mask, mask_position, query, key, length)
        value = ((value - largest[:, None]) * LOG2_E).to(relative.dtype.element_ty)
        target = relative + row[:, None] * padded + key[None, :]
        tl.store(target, value, mask=(query < length)[:, None] & (key < padded)[None, :])


def relative_bias(pair_bias: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bias relative to each query's largest, in units of log2, and the largest.

    Rounding to float16 changes weights above 2⁻¹⁶ by at most 0.3 %, those near the largest bias by less than
    rounding them to bfloat16.

    Args:
        pair_bias: [H, L, L or more].
        mask: [M, L], the same for all rows, or None. Masked keys get the penalty of
            `cuda.fused.attention.reference` first.

    Returns:
        float16 [H, L, K], with keys rounded up as by `triton.align_keys` and -inf past the last one, and
        float32 [H, L].
    """
    heads, length, _ = pair_bias.shape
    relative = pair_bias.new_empty(heads, length, padded_keys(length), dtype=torch.float16)
    maxima = pair_bias.new_empty(heads, length, dtype=torch.float32)
    relate_bias[(triton.cdiv(length, QUERIES), heads)](
        pair_bias,
        *pair_bias.stride(),
        mask,
        0 if mask is None else mask.stride(1),
        relative,
        maxima,
        length,
        relative.shape[-1],
        QUERIES=QUERIES,
        KEYS=KEYS,
    )
    return relative, maxima
