"""Gated attention within windows as one Triton kernel: neither gathered keys nor logits are written."""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors
from cuda.fused.rows import sigmoid

MIN_WIDTH = 16
"""Terms that a product needs."""


@triton.jit(do_not_specialize=["samples", "atoms"])
def _window_attention(
    query, query_sample, query_atom, key, key_sample, key_atom, bias, starts, result, samples, atoms,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend from the queries of one window in one head, for all samples, which share the bias."""
    window = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    inner: tl.constexpr = HEADS * WIDTH
    local = tl.arange(0, QUERIES)
    local_key = tl.arange(0, KEYS)
    channel = head * WIDTH + tl.arange(0, WIDTH)
    row = window * QUERIES + local
    real = (row < atoms)[:, None]
    column = tl.minimum(tl.load(starts + window).to(tl.int32) + local_key, atoms - 1)
    base = (window * HEADS + head).to(tl.int64) * QUERIES * KEYS
    biases = tl.load(bias + base + local[:, None] * KEYS + local_key[None, :]).to(tl.float32)
    query_offsets = row.to(tl.int64)[:, None] * query_atom + channel[None, :]
    key_offsets = column.to(tl.int64)[:, None] * key_atom + channel[None, :]
    result_offsets = row.to(tl.int64)[:, None] * inner + channel[None, :]
    for _ in range(samples):
        q = tl.load(query + query_offsets, mask=real, other=0.0)
        k = tl.load(key + key_offsets)
        logits = tl.dot(q, k.T, input_precision=PRECISION) * (WIDTH**-0.5) + biases
        weights = tl.exp(logits - tl.max(logits, 1)[:, None])
        total = tl.sum(weights, 1)
        v = tl.load(key + key_offsets + inner)
        out = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        gate = sigmoid(tl.load(query + query_offsets + inner, mask=real, other=0.0).to(tl.float32))
        out = out * (1.0 / total)[:, None] * gate
        tl.store(result + result_offsets, out.to(result.dtype.element_ty), mask=real)
        query += query_sample
        key += key_sample
        result += atoms.to(tl.int64) * inner


def window_attention(
    query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """Compute gated attention within windows; see `cuda.fused.window_attention.window_attention`."""
    check_tensors("window_attention", query, key)
    windows, heads, queries, keys = bias.shape
    samples, atoms, columns = query.shape
    width = columns // (2 * heads)
    sizes = (width, queries, keys)
    if any(size < MIN_WIDTH or size & (size - 1) for size in sizes) or query.stride(2) * key.stride(2) != 1:
        raise ValueError(f"fused window_attention supports sizes that are powers of two, not {sizes}")
    result = query.new_empty(samples, atoms, columns // 2)
    if result.numel():
        _window_attention[(windows * heads,)](
            query,
            *query.stride()[:2],
            key,
            *key.stride()[:2],
            bias.contiguous(),
            starts,
            result,
            samples,
            atoms,
            HEADS=heads,
            WIDTH=width,
            QUERIES=queries,
            KEYS=keys,
            PRECISION="ieee",
            num_warps=4,
        )
    return result
