"""A Triton kernel that adds the mask of keys to a pair bias, for the kernels of attention that take none."""

import torch
import triton
import triton.language as tl

from cuda.fused.attention.reference import padded_keys
from cuda.fused.attention.triton_core import MASK_PENALTY

QUERIES, KEYS = 16, 128


@triton.jit(do_not_specialize=["length", "padded"])
def mask_bias(
    bias, bias_batch, bias_head, bias_query, bias_key, mask, mask_position, masked, transposed, maxima,
    length, padded, HEADS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the bias [S, H, L, L or more] plus the penalty of a mask [L], for QUERIES queries.

    masked is [S, H, L, padded], with -inf after the last key, transposed [S, H, L, L] with queries last, and
    maxima [S, H, L], the largest of each query. Any of these, and the mask, may be None.
    """
    group = tl.program_id(1)
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    real_query = (query < length)[:, None]
    bias += (group // HEADS).to(tl.int64) * bias_batch + (group % HEADS).to(tl.int64) * bias_head
    row = group.to(tl.int64) * length
    highest = tl.full([QUERIES], float("-inf"), tl.float32)
    for first in range(0, padded, KEYS):
        key = first + tl.arange(0, KEYS)
        real = real_query & (key < length)[None, :]
        pointers = bias + query.to(tl.int64)[:, None] * bias_query + key[None, :] * bias_key
        value = tl.load(pointers, mask=real, other=float("-inf"))
        if mask is not None:
            keep = tl.load(mask + key * mask_position, mask=key < length, other=1.0).to(tl.float32)
            penalty = ((keep - 1.0) * MASK_PENALTY).to(value.dtype)
            value = (value.to(tl.float32) + penalty.to(tl.float32)[None, :]).to(value.dtype)
        if masked is not None:
            target = masked + (row + query)[:, None] * padded + key[None, :]
            tl.store(target, value, mask=real_query & (key < padded)[None, :])
        if transposed is not None:
            target = transposed + (row + key)[:, None] * length + query[None, :]
            tl.store(target, value.T, mask=real.T)
        if maxima is not None:
            highest = tl.maximum(highest, tl.max(value.to(tl.float32), 1))
    if maxima is not None:
        tl.store(maxima + row + query, highest.to(maxima.dtype.element_ty), mask=query < length)


def masked_with_maxima(pair_bias: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bias plus the penalty of a mask, and the largest sum of each query.

    Args:
        pair_bias: [H, L, L or more].
        mask: [M, L], the same for all rows.

    Returns:
        [H, L, K] with keys rounded up as by `triton.align_keys`, and [H, L].
    """
    length = mask.shape[1]
    masked = pair_bias.new_empty(len(pair_bias), length, padded_keys(length))
    maxima = pair_bias.new_empty(len(pair_bias), length)
    _launch(pair_bias[None], mask, masked, None, maxima)
    return masked, maxima


def masked_and_transposed(
    pair_bias: torch.Tensor, mask: torch.Tensor | None, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the bias [S, H, L, L] plus the penalty of a mask, contiguous, and the same with queries last.

    Args:
        pair_bias: [S, H, L, L].
        mask: [M, L], the same for all rows, or None.
        transpose: whether the second is wanted.
    """
    keep = mask is None and pair_bias.is_contiguous()
    masked = pair_bias if keep else torch.empty_like(pair_bias, memory_format=torch.contiguous_format)
    transposed = torch.empty_like(masked) if transpose else None
    if transpose or not keep:
        _launch(pair_bias, mask, None if keep else masked, transposed, None)
    return masked, transposed


def _launch(
    pair_bias: torch.Tensor,
    mask: torch.Tensor | None,
    masked: torch.Tensor | None,
    transposed: torch.Tensor | None,
    maxima: torch.Tensor | None,
) -> None:
    """Launch the kernel; pair_bias is [S, H, L, L or more]."""
    batch, heads, length, _ = pair_bias.shape
    padded = length if masked is None else masked.shape[-1]
    mask_bias[(triton.cdiv(length, QUERIES), batch * heads)](
        pair_bias,
        *pair_bias.stride(),
        mask,
        0 if mask is None else mask.stride(1),
        masked,
        transposed,
        maxima,
        length,
        padded,
        HEADS=heads,
        QUERIES=QUERIES,
        KEYS=KEYS,
    )
