"""Gated attention: LayerNorm and a product for the projections, the core, a kernel for the output."""

import torch
import triton
import triton.language as tl

from cuda.fused.attention.core import attend_again, attend_blocks
from cuda.fused.attention.reference import AttentionWeights
from cuda.fused.blocks import check_tensors, row_offsets
from cuda.fused.chunking import row_slices
from cuda.fused.hopper import available, can_be_copied
from cuda.fused.launch_table import choose_launch
from cuda.fused.layer_norm.kernel import layer_norm
from cuda.fused.packing import side_by_side

WIDTHS = (8, 16, 32, 64)
# dtypes of which weights are as precise whatever logit they are relative to
ONE_MAXIMUM = (torch.bfloat16,)
# keys below which the kernel for Hopper has too little to do, as measured
SHORTEST_ON_HOPPER = 384
# the bias' keys are a multiple of it, so that Hopper's tiles are whole
ROOM = 32
# blocks that one program looks at, which seldom has to compute one of them
SHARE = 32


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
    """Gated multi-head self-attention along axis 1 of LN(x); as the reference, whose arguments it takes.

    Args:
        x: [B, L, C]; axes 0 and 1 may be swapped in memory (MSA columns, ending node) and are then swapped in
            the result's memory too, so that neither is copied.
        weights: the layer's parameters; heads 8, 16, 32 or 64 wide.
        mask: [B, L], 1 for keys that may be attended to, or None for all.
        pair_bias: [H, L, L], read for all entries of axis 0, or with more keys as `pair_bias` gives it, or
            None.
        budget: elements of normalised rows and projections alive at once; the result does not depend on it.

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
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """Add to a representation in place what `attention` gives for it, rounded once.

    Args:
        representation: [B, L, C], channels contiguous, axes 0 and 1 in any order in memory.

    Returns:
        representation.
    """
    _attention(representation, representation, weights, mask, pair_bias, budget, add=True)
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
    check_tensors("attention", x, *weights)
    inner = weights.query[0].numel()
    bias = None if pair_bias is None else _aligned(pair_bias)
    swapped = x.stride(0) < x.stride(1)
    for rows in row_slices(x, x.shape[1] * (4 * inner + max(inner, x.shape[-1])), budget):
        # intermediates have their two long axes in the order in which the input has them in memory
        part = x[rows].transpose(0, 1) if swapped else x[rows]
        projected = _projected(part, weights)
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


def _projected(x: torch.Tensor, weights: AttentionWeights) -> torch.Tensor:
    """Queries, keys, values and gates [..., 4*H*D] of LN(x [..., C]), contiguous."""
    if available(x):
        # only here, since Gluon's names are not the same in all of Triton's versions
        from cuda.fused.attention import hopper_projections

        if hopper_projections.suits(x, 4 * weights.query[0].numel()):
            return hopper_projections.project(x, weights)
    projection = side_by_side(weights.query, weights.key, weights.value, weights.gating)  # [C, 4*H*D]
    return layer_norm(x, weights.norm_scale, weights.norm_offset) @ projection


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
        pair_bias: [H, L, L], or as `_aligned` gives it, or None.
        gated: [B, L, H*D], written.

    Raises:
        ValueError: a head has no width of 8, 16, 32 or 64, or no kernel runs on this device or dtype.
    """
    check_tensors("attention", projected, gating_bias, gated)
    batch, length, _ = projected.shape
    heads, width = gating_bias.shape
    if width not in WIDTHS:
        raise ValueError(f"fused attention takes heads {WIDTHS} wide, not {width}")
    options = choose_launch("attention", projected, width, shared_key=0, biased=int(pair_bias is not None))
    launch = dict(options["attend"])
    # float32's products are no cheaper than its sums
    sums = 1 if projected.dtype == torch.float32 else 8
    sizes = {"HEADS": heads, "WIDTH": width, "PADDED": max(16, width), "SUMS": sums}
    if min(batch, length) == 0:
        return
    gating_bias = gating_bias.contiguous()
    if pair_bias is not None:
        pair_bias = _aligned(pair_bias)
    on_hopper = _on_hopper(projected, width, mask, pair_bias)
    if on_hopper:
        # only here, since Gluon's names are not the same in all of Triton's versions
        from cuda.fused.attention import hopper

        launch |= {"ROWS": hopper.ENTRIES.value, "QUERIES": hopper.QUERIES.value}
    blocks = triton.cdiv(length, launch["QUERIES"]) * triton.cdiv(batch, launch["ROWS"]) * heads
    outside = projected.new_empty(blocks, dtype=torch.int32) if projected.dtype in ONE_MAXIMUM else None
    arguments = (
        projected,
        projected.stride(0),
        projected.stride(1),
        gating_bias,
        mask,
        *((0, 0) if mask is None else mask.stride()),
        pair_bias,
        *((0, 0) if pair_bias is None else pair_bias.stride()[:2]),
        gated,
        gated.stride(0),
        gated.stride(1),
        batch,
        length,
        outside,
    )
    if on_hopper:
        hopper.attend(projected, gating_bias, pair_bias, gated, outside)
    else:
        attend_blocks[(blocks,)](*arguments, **sizes, **launch)
    if outside is not None:
        # with fewer registers than it wants it spills, and it seldom shares a multiprocessor
        uncapped = {name: value for name, value in launch.items() if name != "maxnreg"}
        attend_again[(triton.cdiv(blocks, SHARE),)](*arguments, blocks, **sizes, SHARE=SHARE, **uncapped)


def _on_hopper(
    projected: torch.Tensor, width: int, mask: torch.Tensor | None, pair_bias: torch.Tensor | None
) -> bool:
    """Whether the kernel for Hopper takes these."""
    return (
        available(projected)
        and projected.dtype == torch.bfloat16
        and can_be_copied(projected)
        and width == 32
        and mask is None
        and pair_bias is not None
        and projected.shape[1] >= SHORTEST_ON_HOPPER
    )


def _aligned(pair_bias: torch.Tensor) -> torch.Tensor:
    """The bias [H, L, ...] of as many keys as whole tiles have, for wide loads and copies.

    Keys past the last get no weight. What is aligned already is returned as it is.
    """
    keys = pair_bias.shape[-1]
    room = triton.cdiv(keys, ROOM) * ROOM
    if room == keys and pair_bias.stride(-2) % 16 == 0 and can_be_copied(pair_bias):
        return pair_bias
    result = pair_bias.new_full((*pair_bias.shape[:-1], room), float("-inf"))
    result[..., :keys] = pair_bias
    return result
