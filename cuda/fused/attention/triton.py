"""Gated attention on any CUDA GPU: LayerNorm and projections, the core kernel, the output projection."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from cuda.fused.attention.reference import AttentionWeights, padded_keys
from cuda.fused.attention.triton_core import attend_blocks, recompute_blocks
from cuda.fused.chunking import row_slices
from cuda.fused.launch import check_tensors, choose_launch, tma_aligned
from cuda.fused.layer_norm.triton import layer_norm
from cuda.fused.rows import row_offsets
from cuda.fused.weights import concatenate_columns

WIDTHS = (8, 16, 32, 64)
# dtypes with float32's range of exponents: softmax weights may be relative to any logit of their query
FIXED_MAX_DTYPES = (torch.bfloat16,)
# blocks that one program of `recompute_blocks` checks; few of them need to be recomputed
CHECKED_BLOCKS = 32

Project = Callable[[torch.Tensor, AttentionWeights], torch.Tensor]
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor], None]


@triton.jit(do_not_specialize=["count", "inner"])
def _output(
    gated, weights, bias, result, count, inner, outer_stride, inner_stride,
    DEPTH: tl.constexpr, CHANNELS: tl.constexpr, ADD: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write gated [R, DEPTH] W + b to rows of the result (see `cuda.fused.rows.Rows`), or add it if ADD."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, STEP)
    row_pointers = gated + row.to(tl.int64)[:, None] * DEPTH
    out = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in tl.range(0, DEPTH, STEP):
        term = begin + depth
        mask = (row < count)[:, None] & (term < DEPTH)[None, :]
        matrix_mask = (term < DEPTH)[:, None] & (column < CHANNELS)[None, :]
        tile = tl.load(row_pointers + term[None, :], mask=mask, other=0.0)
        matrix = tl.load(weights + term[:, None] * CHANNELS + column[None, :], mask=matrix_mask, other=0.0)
        out = tl.dot(tile, matrix, out, input_precision=PRECISION)
    out += tl.load(bias + column, mask=column < CHANNELS, other=0.0).to(tl.float32)[None, :]
    starts = row_offsets(row, inner, outer_stride, inner_stride)
    mask = (row < count)[:, None] & (column < CHANNELS)[None, :]
    target = result + starts[:, None] + column[None, :]
    if ADD:
        out += tl.load(target, mask=mask, other=0.0).to(tl.float32)
    tl.store(target, out.to(result.dtype.element_ty), mask=mask)


def _empty_result(x: torch.Tensor, weights: AttentionWeights, swapped: bool) -> torch.Tensor:
    """Return an uninitialised result [B, L, O], in memory [L, B, O] if axes are swapped."""
    batch, length, _ = x.shape
    outputs = weights.output.shape[-1]
    if swapped:
        return x.new_empty(length, batch, outputs).transpose(0, 1)
    return x.new_empty(batch, length, outputs)


def project(x: torch.Tensor, weights: AttentionWeights) -> torch.Tensor:
    """Compute queries, keys, values and gates of LN(x): [A, B, C] to [A, B, 4*H*D], contiguous."""
    projection = concatenate_columns(weights.query, weights.key, weights.value, weights.gating)  # [C, 4*H*D]
    return layer_norm(x, weights.norm_scale, weights.norm_offset) @ projection


def _project_output(gated: torch.Tensor, weights: AttentionWeights, result: torch.Tensor, add: bool) -> None:
    """Write the output projection of gated [A, B, H*D], contiguous, to result [A, B, O], or add it."""
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


class CoreLaunch(NamedTuple):
    """A launch of the core kernel: its positional arguments, sizes, tuned options and number of blocks."""

    arguments: tuple[Any, ...]
    sizes: dict[str, int]
    options: dict[str, Any]
    blocks: int


def attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    gated: torch.Tensor,
    statistics: tuple[torch.Tensor, torch.Tensor] | None = None,
    first_query: int = 0,
) -> None:
    """Compute gated attention of projected inputs: softmax(q kᵀ · scale + bias) v ⊙ sigmoid(g + b).

    Args:
        projected: [B, L, 4*H*D], queries, keys, values and gates, with any strides of the first two axes.
        gating_bias: [H, D].
        mask: [B, L] or None.
        pair_bias: [H, L, L], or as `align_keys` returns it, or None. With an additional first axis,
            [S, H, L, L], each of S equal parts of the rows has its own bias.
        gated: [B, Q, H*D], written.
        statistics: two tensors [B, H, L] float32 that receive the logit that each query's weights are
            relative to, and the sum of the weights; or None.
        first_query: position of the first of Q queries, which the bias [H, Q, L] has, too.

    Raises:
        ValueError: heads do not have 8, 16, 32 or 64 channels, or the device or dtype is not supported.
    """
    launch = prepare_core(projected, gating_bias, mask, pair_bias, gated, statistics, first_query)
    if launch.blocks:
        attend_blocks[(launch.blocks,)](*launch.arguments, **launch.sizes, **launch.options)
        recompute_out_of_range(launch)


def prepare_core(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    gated: torch.Tensor,
    statistics: tuple[torch.Tensor, torch.Tensor] | None = None,
    first_query: int = 0,
    **tile: int,
) -> CoreLaunch:
    """Return the launch of the core kernel; same arguments and errors as `attend`.

    `tile` has ROWS and QUERIES of a block, if not those of the launch table.
    """
    check_tensors("attention", projected, gating_bias, gated)
    batch, length, _ = projected.shape
    heads, width = gating_bias.shape
    if width not in WIDTHS:
        raise ValueError(f"fused attention supports heads of {WIDTHS} channels, not {width}")
    options = choose_launch("attention", projected, width, biased=int(pair_bias is not None))["attend"] | tile
    bias_rows, bias_strides = batch, (0, 0, 0)
    if pair_bias is not None:
        pair_bias = align_keys(pair_bias)
        if pair_bias.dim() == 4:
            bias_rows = batch // pair_bias.shape[0]
            bias_strides = pair_bias.stride()[:3]
        else:
            bias_strides = (0, *pair_bias.stride()[:2])
    if bias_rows % options["ROWS"] and bias_rows < batch:
        options["ROWS"] = 1  # the rows of a program share the bias
    queries = gated.shape[1]
    blocks = triton.cdiv(queries, options["QUERIES"]) * triton.cdiv(batch, options["ROWS"]) * heads
    fixed_max = projected.dtype in FIXED_MAX_DTYPES
    arguments = (
        projected,
        projected.stride(0),
        projected.stride(1),
        gating_bias.contiguous(),
        mask,
        *((0, 0) if mask is None else mask.stride()),
        pair_bias,
        *bias_strides[1:],
        gated,
        gated.stride(0),
        gated.stride(1),
        batch,
        length,
        queries,
        first_query,
        *(statistics or (None, None)),
        bias_rows,
        bias_strides[0],
        projected.new_empty(blocks, dtype=torch.int32) if fixed_max else None,
    )
    # in float32 a product with ones costs more than a sum
    sums = 1 if projected.dtype == torch.float32 else 8
    sizes = {"HEADS": heads, "WIDTH": width, "PADDED": max(16, width), "SUMS": sums}
    return CoreLaunch(arguments, sizes, options, blocks)


def recompute_out_of_range(launch: CoreLaunch) -> None:
    """Recompute the blocks in which sums left the middle range, if the launch reports those."""
    if launch.arguments[-1] is not None:
        # with a cap on its registers this kernel would spill; it rarely shares a multiprocessor
        options = {name: value for name, value in launch.options.items() if name != "maxnreg"}
        recompute_blocks[(triton.cdiv(launch.blocks, CHECKED_BLOCKS),)](
            *launch.arguments, launch.blocks, **launch.sizes, CHECKED_BLOCKS=CHECKED_BLOCKS, **options
        )


def is_shared(mask: torch.Tensor | None) -> bool:
    """Return True if all rows have the same mask [M, L], with a stride of 0, or none."""
    return mask is None or mask.stride(0) == 0


def align_keys(pair_bias: torch.Tensor) -> torch.Tensor:
    """Return the bias [..., H, L, K] with keys rounded up to whole tiles, aligned for wide loads and copies.

    The bias of keys past the last one is -inf. A bias that is already aligned is returned as it is.
    """
    keys = pair_bias.shape[-1]
    if padded_keys(keys) == keys and pair_bias.stride(-2) % 16 == 0 and tma_aligned(pair_bias):
        return pair_bias
    result = pair_bias.new_full((*pair_bias.shape[:-1], padded_keys(keys)), float("-inf"))
    result[..., :keys] = pair_bias
    return result


def attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    *,
    add: bool = False,
    project: Project = project,
    attend: Attend = attend,
) -> torch.Tensor:
    """Compute gated self-attention along axis 1; see `cuda.fused.attention.reference.attention`.

    Args:
        x: [B, L, C]. If axes 0 and 1 are swapped in memory (MSA columns, ending node), so are those of the
            result, and neither tensor is copied.
        weights: the layer's parameters, of x's dtype; heads have 8, 16, 32 or 64 channels.
        mask: [B, L], 1 for keys that may be attended to, or None for all.
        pair_bias: [H, L, L], or [H, L, K] as the kernels of `cuda.fused.pair_bias` return it, or None.
        add: add the update to x, whose channels must be contiguous, in place; the sum is rounded once.
        project: function that computes the projections, like this module's `project`.
        attend: function that computes gated attention of projected inputs, like this module's `attend`.

    Returns:
        [B, L, O], or x.

    Raises:
        ValueError: the kernels do not support these tensors.
    """
    check_tensors("attention", x, *weights)
    inner = weights.query[0].numel()
    bias = None if pair_bias is None else align_keys(pair_bias)
    # contiguous keys, as a kernel is compiled for each kind of stride
    mask = None if mask is None else mask.contiguous()
    swapped = x.stride(0) < x.stride(1)
    result = x if add else _empty_result(x, weights, swapped)
    for rows in row_slices(x, x.shape[1] * (4 * inner + max(inner, x.shape[-1]))):
        # the first two axes of intermediates have the same order in memory as those of the input
        chunk = x[rows].transpose(0, 1) if swapped else x[rows]
        projected = project(chunk, weights)
        gated = projected.new_empty(*projected.shape[:2], inner)
        attend(
            projected.transpose(0, 1) if swapped else projected,
            weights.gating_bias,
            None if mask is None else mask[rows],
            bias,
            gated.transpose(0, 1) if swapped else gated,
        )
        _project_output(gated, weights, result[rows].transpose(0, 1) if swapped else result[rows], add)
        del projected, gated  # free this chunk's memory before the next one needs it
    return result
