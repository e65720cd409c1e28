"""Gated attention within windows as one Triton kernel: neither gathered keys nor logits are written."""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors
from cuda.fused.rows import sigmoid

MIN_WIDTH = 16
"""Terms that a product needs."""
SUMMED_ROWS = 16
"""Keys of a program that sums gradients over windows."""


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


@triton.jit(do_not_specialize=["samples", "atoms"])
def _window_attention_backward(
    gradient, query, query_sample, query_atom, key, key_sample, key_atom, bias, starts, query_gradient,
    key_parts, bias_gradient, samples, atoms, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one window and head: of keys by window, of the bias as a sum over samples."""
    window = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    inner: tl.constexpr = HEADS * WIDTH
    scale: tl.constexpr = WIDTH**-0.5
    local = tl.arange(0, QUERIES)
    local_key = tl.arange(0, KEYS)
    channel = head * WIDTH + tl.arange(0, WIDTH)
    row = window * QUERIES + local
    real = (row < atoms)[:, None]
    column = tl.minimum(tl.load(starts + window).to(tl.int32) + local_key, atoms - 1)
    tile = (window * HEADS + head).to(tl.int64) * QUERIES * KEYS + local[:, None] * KEYS + local_key[None, :]
    biases = tl.load(bias + tile).to(tl.float32)
    bias_sum = tl.zeros([QUERIES, KEYS], tl.float32)
    query_offsets = row.to(tl.int64)[:, None] * query_atom + channel[None, :]
    key_offsets = column.to(tl.int64)[:, None] * key_atom + channel[None, :]
    result_offsets = row.to(tl.int64)[:, None] * inner + channel[None, :]
    gradient_offsets = row.to(tl.int64)[:, None] * (2 * inner) + channel[None, :]
    part_offsets = (window.to(tl.int64) * KEYS + local_key)[:, None] * (2 * inner) + channel[None, :]
    windows = tl.num_programs(0) // HEADS
    for _ in range(samples):
        q = tl.load(query + query_offsets, mask=real, other=0.0)
        k = tl.load(key + key_offsets)
        v = tl.load(key + key_offsets + inner)
        logits = tl.dot(q, k.T, input_precision=PRECISION) * scale + biases
        weights = tl.exp(logits - tl.max(logits, 1)[:, None])
        weights *= (1.0 / tl.sum(weights, 1))[:, None]
        out = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        gate = sigmoid(tl.load(query + query_offsets + inner, mask=real, other=0.0).to(tl.float32))
        upstream = tl.load(gradient + result_offsets, mask=real, other=0.0).to(tl.float32)
        gate_gradient = upstream * out * gate * (1 - gate)
        upstream *= gate
        delta = tl.sum(upstream * out, 1)
        scaled = upstream.to(v.dtype)
        logit_gradient = weights * (tl.dot(scaled, v.T, input_precision=PRECISION) - delta[:, None])
        bias_sum += logit_gradient
        rounded = logit_gradient.to(q.dtype)
        of_query = tl.dot(rounded, k, input_precision=PRECISION) * scale
        of_key = tl.dot(rounded.T, q, input_precision=PRECISION) * scale
        of_value = tl.dot(weights.to(v.dtype).T, scaled, input_precision=PRECISION)
        tl.store(query_gradient + gradient_offsets, of_query.to(q.dtype), mask=real)
        tl.store(query_gradient + gradient_offsets + inner, gate_gradient.to(q.dtype), mask=real)
        tl.store(key_parts + part_offsets, of_key.to(q.dtype))
        tl.store(key_parts + part_offsets + inner, of_value.to(q.dtype))
        query += query_sample
        key += key_sample
        gradient += atoms.to(tl.int64) * inner
        query_gradient += atoms.to(tl.int64) * (2 * inner)
        key_parts += windows.to(tl.int64) * KEYS * (2 * inner)
    tl.store(bias_gradient + tile, bias_sum)


@triton.jit(do_not_specialize=["windows", "atoms"])
def _sum_windows(
    parts, starts, first, last, result, windows, atoms,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the sum of the parts of ROWS keys of a sample, which are keys of windows from first to last."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sample = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = (row < atoms)[:, None] & (column < COLUMNS)[None, :]
    begin = tl.min(tl.load(first + row, mask=row < atoms, other=windows), 0).to(tl.int32)
    end = tl.max(tl.load(last + row, mask=row < atoms, other=0), 0).to(tl.int32)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for window in range(begin, end):
        local = row - tl.load(starts + window).to(tl.int32)
        offsets = (sample * windows + window) * KEYS + local
        present = inside & ((local >= 0) & (local < KEYS))[:, None]
        part = tl.load(parts + offsets[:, None] * COLUMNS + column[None, :], mask=present, other=0.0)
        total += part.to(tl.float32)
    offsets = (sample * atoms + row)[:, None] * COLUMNS + column[None, :]
    tl.store(result + offsets, total.to(result.dtype.element_ty), mask=inside)


def window_attention_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor, starts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and bias (float32), given that of `window_attention` [S, A, H D]."""
    windows, heads, queries, keys = bias.shape
    samples, atoms, columns = query.shape
    query_gradient, key_gradient = (query.new_empty(query.shape) for _ in range(2))
    parts = query.new_empty(samples, windows, keys, columns)
    bias_gradient = torch.empty(bias.shape, dtype=torch.float32, device=bias.device)
    sizes = {"HEADS": heads, "WIDTH": columns // (2 * heads), "QUERIES": queries, "KEYS": keys}
    _window_attention_backward[(windows * heads,)](
        gradient.contiguous(), query, *query.stride()[:2], key, *key.stride()[:2], bias.contiguous(), starts,
        query_gradient, parts, bias_gradient, samples, atoms, **sizes, PRECISION="ieee", num_warps=8,
    )  # fmt: skip
    index = torch.arange(atoms, device=starts.device)
    first, last = (torch.searchsorted(starts, x, right=True) for x in (index - keys, index))
    _sum_windows[(triton.cdiv(atoms, SUMMED_ROWS), samples)](
        parts, starts, first, last, key_gradient, windows, atoms,
        COLUMNS=columns, BLOCK=triton.next_power_of_2(columns), KEYS=keys, ROWS=SUMMED_ROWS, num_warps=4,
    )  # fmt: skip
    return query_gradient, key_gradient, bias_gradient
