"""The pair bias as one Triton kernel that reads the pair representation once and writes only the heads."""

import torch
import triton
import triton.language as tl

from cuda.fused.attention.reference import padded_keys
from cuda.fused.launch import check_tensors, choose_launch, padded_channels
from cuda.fused.rows import load_normalised


@triton.jit(do_not_specialize=["queries", "length", "padded_keys"])
def _pair_bias(
    pair, query_stride, key_stride, norm_scale, norm_offset, weights, result, queries, length, padded_keys,
    HEADS: tl.constexpr, PADDED: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write LN(pair) W of a block of queries and keys to result [H, queries, padded_keys].

    The bias of keys past the last residue is -inf.
    """
    key_blocks = tl.cdiv(padded_keys, KEYS)
    index = tl.program_id(0)
    local = tl.arange(0, QUERIES * KEYS)
    query = index // key_blocks * QUERIES + local // KEYS
    key = index % key_blocks * KEYS + local % KEYS
    channel = tl.arange(0, BLOCK)
    head = tl.arange(0, PADDED)
    in_pair = (query < queries) & (key < length)
    rows = query.to(tl.int64) * query_stride + key.to(tl.int64) * key_stride
    mask = in_pair[:, None] & (channel < CHANNELS)[None, :]
    offsets = rows[:, None] + channel[None, :]
    normed = load_normalised(pair, offsets, mask, norm_scale, norm_offset, CHANNELS, BLOCK)
    matrix = tl.load(
        weights + channel[:, None] * HEADS + head[None, :],
        mask=(channel < CHANNELS)[:, None] & (head < HEADS)[None, :],
        other=0.0,
    )
    bias = tl.dot(normed.to(matrix.dtype), matrix, input_precision=PRECISION)  # [positions, heads]
    bias = tl.where((key < length)[:, None], bias, float("-inf"))
    head_starts = head.to(tl.int64)[None, :] * queries * padded_keys
    in_result = ((query < queries) & (key < padded_keys))[:, None] & (head < HEADS)[None, :]
    offsets = head_starts + (query.to(tl.int64) * padded_keys + key)[:, None]
    tl.store(result + offsets, bias.to(result.dtype.element_ty), mask=in_result)


def pair_bias(
    pair: torch.Tensor, norm_scale: torch.Tensor, norm_offset: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Compute LN(pair) W with heads first; same arguments as the reference.

    Pairs have at most 256 contiguous channels; axes 0 and 1 may be swapped in memory.

    Returns:
        [H, n, K], contiguous, K being N rounded up as by `padded_keys`; -inf for keys past N.

    Raises:
        ValueError: the kernel does not support these tensors.
    """
    check_tensors("pair_bias", pair, norm_scale, norm_offset, weights)
    if pair.stride(-1) != 1:
        raise ValueError(f"fused pair_bias needs contiguous channels, not strides {pair.stride()}")
    result = pair.new_empty(weights.shape[1], len(pair), padded_keys(pair.shape[1]))
    heads, queries, keys = result.shape
    channels = pair.shape[-1]
    options = choose_launch("pair_bias", pair, channels)
    blocks = triton.cdiv(queries, options["QUERIES"]) * triton.cdiv(keys, options["KEYS"])
    if blocks:
        _pair_bias[(blocks,)](
            pair,
            pair.stride(0),
            pair.stride(1),
            norm_scale.contiguous(),
            norm_offset.contiguous(),
            weights.contiguous(),
            result,
            queries,
            pair.shape[1],
            keys,
            HEADS=heads,
            PADDED=padded_channels(heads),
            CHANNELS=channels,
            BLOCK=padded_channels(channels),
            **options,
        )
    return result
