"""The pair bias as one kernel: the pair representation is read once, and only heads are written."""

import torch
import triton
import triton.language as tl

from cuda.fused.attention.kernel import ROOM
from cuda.fused.blocks import check_tensors, normalised_rows
from cuda.fused.hopper import available
from cuda.fused.launch_table import choose_launch


@triton.jit(do_not_specialize=["length", "room"])
def _pair_bias(
    pair, query_stride, key_stride, norm_scale, norm_offset, weights, result, length, room,
    HEADS: tl.constexpr, PADDED: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """LN(pair) W of a block of queries and keys, to result [H, N, room]; -inf for keys past the last."""
    across = tl.cdiv(room, KEYS)
    index = tl.program_id(0)
    local = tl.arange(0, QUERIES * KEYS)
    query = index // across * QUERIES + local // KEYS
    key = index % across * KEYS + local % KEYS
    channel = tl.arange(0, BLOCK)
    head = tl.arange(0, PADDED)
    there = (query < length) & (key < length)
    rows = query.to(tl.int64) * query_stride + key.to(tl.int64) * key_stride
    present = there[:, None] & (channel < CHANNELS)[None, :]
    places = rows[:, None] + channel[None, :]
    normed = normalised_rows(pair, places, present, norm_scale, norm_offset, CHANNELS, BLOCK)
    matrix = tl.load(
        weights + channel[:, None] * HEADS + head[None, :],
        mask=(channel < CHANNELS)[:, None] & (head < HEADS)[None, :],
        other=0.0,
    )
    bias = tl.dot(normed.to(matrix.dtype), matrix, input_precision=PRECISION)  # [positions, heads]
    bias = tl.where((key < length)[:, None], bias, float("-inf"))
    starts = head.to(tl.int64)[None, :] * length * room
    written = ((query < length) & (key < room))[:, None] & (head < HEADS)[None, :]
    places = starts + (query.to(tl.int64) * room + key)[:, None]
    tl.store(result + places, bias.to(result.dtype.element_ty), mask=written)


def pair_bias(
    pair: torch.Tensor,
    norm_scale: torch.Tensor,
    norm_offset: torch.Tensor,
    weights: torch.Tensor,
    budget: int | None = None,
) -> torch.Tensor:
    """LN(pair) W with heads first; as the reference, whose arguments it takes.

    Args:
        pair: [N, N, C] of at most 256 channels, which are contiguous; axes 0 and 1 may be swapped in memory.
        norm_scale, norm_offset: [C].
        weights: [C, H].
        budget: taken for the reference's sake; there are no intermediates to bound.

    Returns:
        [H, N, N or more]: with as many keys as attention's tiles have, those past the last -inf.

    Raises:
        ValueError: no kernel takes these tensors.
    """
    check_tensors("pair bias", pair, norm_scale, norm_offset, weights)
    length, _, channels = pair.shape
    heads = weights.shape[1]
    if pair.stride(-1) != 1:
        raise ValueError(f"fused pair bias takes contiguous channels, not strides {pair.stride()}")
    room = triton.cdiv(length, ROOM) * ROOM
    result = pair.new_empty(heads, length, room)
    if available(pair):
        # only here, since Gluon's names are not the same in all of Triton's versions
        from cuda.fused.pair_bias import hopper

        if hopper.suits(pair, heads):
            hopper.write_bias(pair, norm_scale, norm_offset, weights, result)
            return result
    options = choose_launch("pair_bias", pair, channels)
    blocks = triton.cdiv(length, options["QUERIES"]) * triton.cdiv(room, options["KEYS"])
    if blocks:
        _pair_bias[(blocks,)](
            pair,
            pair.stride(0),
            pair.stride(1),
            norm_scale.contiguous(),
            norm_offset.contiguous(),
            weights.contiguous(),
            result,
            length,
            room,
            HEADS=heads,
            PADDED=max(16, triton.next_power_of_2(heads)),
            CHANNELS=channels,
            BLOCK=max(16, triton.next_power_of_2(channels)),
            **options,
        )
    return result
