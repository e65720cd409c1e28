"""The outer product mean in two Triton kernels: the factors, then outer products and their contraction.

The N × N × E² outer products are never all in memory. A program of the second kernel processes a strip
of residue pairs: tile by tile it sums a_i ⊗ b_j over the sequences on the tensor cores and writes the tile,
rounded to the tensors' dtype, to its own scratch memory, which stays in the L2 cache. It then contracts the
strip with the output weights. These are read once per strip, which is why a strip has several tiles.
"""

import torch
import triton
import triton.language as tl

from cuda.fused.launch import choose_launch, matrix_tiles, padded_channels, program_count
from cuda.fused.outer_product_mean.kernel_arguments import check_block, check_pair, check_sizes, shared_counts
from cuda.fused.outer_product_mean.reference import EPSILON, OuterProductMeanWeights
from cuda.fused.rows import load_normalised

COUNT_EPSILON = tl.constexpr(EPSILON)


@triton.jit
def _write_factor(
    normed,
    weights,
    bias,
    mask,
    result,
    residues,
    length,
    padded_length,
    INNER: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Project normalised residues [ROWS, BLOCK] of one sequence to a factor, add the bias, mask and store.

    The result is the sequence's [N, INNER] or, if a padded length is given, [INNER, padded_length].
    """
    # rows of a padded factor are stored up to their padded length, so that stores are wide for every length
    stored = residues < (length if padded_length is None else padded_length)
    for first in range(0, INNER, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inner = columns < INNER
        factor = tl.dot(normed, weights.load([0, first]), input_precision=PRECISION)
        factor += tl.load(bias + columns, mask=inner, other=0.0).to(tl.float32)[None, :]
        if mask is not None:
            factor *= mask[:, None]
        factor = factor.to(result.dtype.element_ty)
        if padded_length is not None:
            offsets = columns[:, None] * padded_length + residues[None, :]
            tl.store(result + offsets, factor.T, mask=inner[:, None] & stored[None, :])
        else:
            offsets = residues[:, None] * INNER + columns[None, :]
            tl.store(result + offsets, factor, mask=stored[:, None] & inner[None, :])


@triton.jit(do_not_specialize=["length"])
def _factors(
    msa,
    norm_scale,
    norm_offset,
    left,
    left_bias,
    right,
    right_bias,
    mask,
    left_result,
    right_result,
    length,
    padded_length,
    sequence_stride,
    residue_stride,
    channel_stride,
    CHANNELS: tl.constexpr,
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write both factors [S, N, INNER] of ROWS residues of one sequence.

    If a padded length is given, the left factor is [S, INNER, padded_length] instead.
    """
    blocks = tl.cdiv(length, ROWS)
    sequence = (tl.program_id(0) // blocks).to(tl.int64)
    residues = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    real = residues < length
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    in_msa = real[:, None] & channels[None, :]
    offsets = residues.to(tl.int64)[:, None] * residue_stride + columns[None, :] * channel_stride
    msa += sequence * sequence_stride
    normed = load_normalised(msa, offsets, in_msa, norm_scale, norm_offset, CHANNELS, BLOCK).to(
        msa.dtype.element_ty
    )
    row_mask = None
    if mask is not None:
        row_mask = tl.load(mask + sequence * length + residues, mask=real, other=0.0)
    right_result += sequence * length * INNER
    if padded_length is not None:
        left_result += sequence * padded_length * INNER
    else:
        left_result += sequence * length * INNER
    _write_factor(
        normed, left, left_bias, row_mask, left_result, residues, length, padded_length,
        INNER, COLUMNS, PRECISION,
    )  # fmt: skip
    _write_factor(
        normed, right, right_bias, row_mask, right_result, residues, length, None, INNER, COLUMNS, PRECISION
    )


@triton.jit(do_not_specialize=["sequences", "rows", "length", "stride", "strips"])
def _outer(
    left,
    right,
    output,
    output_bias,
    counts,
    scratch,
    result,
    sequences,
    rows,
    length,
    stride,
    strips,
    PAIR: tl.constexpr,
    INNER: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TILES: tl.constexpr,
    SEQUENCES: tl.constexpr,
    DEPTH: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add the update [rows, N, PAIR] to the result, strip by strip.

    In the result and the counts, `stride` pairs are between two rows.

    Descriptors: left [S, rows * INNER] and right [S, N * INNER] in tiles [SEQUENCES, LEFT * INNER] and
    [SEQUENCES, RIGHT * INNER], output [INNER², PAIR] in tiles [DEPTH, PAIR_BLOCK]. The scratch memory of
    each program is [TILES * LEFT * RIGHT, INNER²].
    """
    OUTER: tl.constexpr = INNER * INNER
    PAIRS: tl.constexpr = TILES * LEFT * RIGHT
    dtype = scratch.dtype.element_ty
    scratch += tl.program_id(0).to(tl.int64) * (PAIRS * OUTER)
    strips_per_row = tl.cdiv(length, TILES * RIGHT)
    # element ((i, c), (j, e)) of a tile is element c * INNER + e of pair i * RIGHT + j in the scratch memory
    row = tl.arange(0, LEFT * INNER)
    column = tl.arange(0, RIGHT * INNER)
    row_offsets = (row // INNER) * (RIGHT * OUTER) + (row % INNER) * INNER
    offsets = row_offsets[:, None] + ((column // INNER) * OUTER + column % INNER)[None, :]
    pair = tl.arange(0, PAIRS)
    depth = tl.arange(0, DEPTH)
    channel = tl.arange(0, PAIR_BLOCK)
    bias = tl.load(output_bias + channel, mask=channel < PAIR, other=0.0).to(tl.float32)
    for strip in range(tl.program_id(0), strips, tl.num_programs(0)):
        first_i = (strip // strips_per_row) * LEFT
        first_j = (strip % strips_per_row) * (TILES * RIGHT)
        for tile in range(TILES):
            total = tl.zeros((LEFT * INNER, RIGHT * INNER), tl.float32)
            for s in range(0, sequences, SEQUENCES):
                a = left.load([s, first_i * INNER])
                b = right.load([s, (first_j + tile * RIGHT) * INNER])
                total = tl.dot(a.T, b, total, input_precision=PRECISION)
            tl.store(scratch + tile * (LEFT * RIGHT * OUTER) + offsets, total.to(dtype))
        # threads read what other threads of the program wrote, and write again only after all have read
        tl.debug_barrier()
        update = tl.zeros((PAIRS, PAIR_BLOCK), tl.float32)
        for first in range(0, OUTER, DEPTH):
            outer = tl.load(scratch + pair[:, None] * OUTER + (first + depth)[None, :])
            update = tl.dot(outer, output.load([first, 0]), update, input_precision=PRECISION)
        tl.debug_barrier()
        i = first_i + (pair // RIGHT) % LEFT
        j = first_j + (pair // (LEFT * RIGHT)) * RIGHT + pair % RIGHT
        real = (i < rows) & (j < length)
        cell = i.to(tl.int64) * stride + j
        update += bias[None, :]
        if counts is not None:
            update /= tl.load(counts + cell, mask=real, other=1.0)[:, None]
        else:
            update *= 1.0 / (sequences + COUNT_EPSILON)
        mask = real[:, None] & (channel < PAIR)[None, :]
        target = result + cell[:, None] * PAIR + channel[None, :]
        update += tl.load(target, mask=mask, other=0.0).to(tl.float32)
        tl.store(target, update.to(dtype), mask=mask)


def add_outer_product_mean(
    pair: torch.Tensor,
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Add the update of every pair; same arguments as the reference.

    The pair is contiguous, and the sum rounded once. The MSA has any strides, weights have its dtype.
    """
    check_pair(pair, msa)
    check_sizes(msa, weights)
    mask, counts = shared_counts(mask)
    left, right = project_factors(msa, weights, mask)
    _add_contraction(pair, left, right, weights, counts, msa.shape[-1])
    return pair


def project_residues(
    msa: torch.Tensor, weights: OuterProductMeanWeights, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the left factor [S, n * E] and the right one [S, n, E] of some residues; see the reference.

    The MSA has at most 256 channels, any strides, and the dtype of the weights.

    Raises:
        ValueError: the kernels do not support these tensors.
    """
    check_sizes(msa, weights)
    left, right = project_factors(msa, weights, None if mask is None else mask.float().contiguous())
    return left, right.view(*msa.shape[:2], weights.right.shape[1])


def add_contraction(
    pair: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    weights: OuterProductMeanWeights,
    counts: torch.Tensor | None,
) -> torch.Tensor:
    """Add the update to a block of the pair representation in place.

    Args:
        pair: [n, m, Z], contiguous, or a block of columns of a contiguous tensor.
        left: [S, n * E], of the rows.
        right: [S, m, E], of the columns.
        weights: the layer's parameters.
        counts: float32 [n, m], what the update is divided by, with the same rows in memory as pair; None for
            S + ε.

    Returns:
        pair.

    Raises:
        ValueError: the kernels do not support these tensors.
    """
    check_block(pair, right, counts)
    channels = weights.left.shape[0]
    _add_contraction(pair, left, right.flatten(1), weights, counts, channels)
    return pair


def _add_contraction(
    result: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    weights: OuterProductMeanWeights,
    counts: torch.Tensor | None,
    channels: int,
) -> None:
    """Add the update to rows of the result [n, N, Z]; channels are those of the MSA."""
    sequences, (rows, length, pair), inner = left.shape[0], result.shape, weights.output.shape[0]
    if not result.numel():
        return
    options = choose_launch("outer_product_mean", left, channels)
    outer = dict(options["outer"])
    # the table is for factors of 32 channels: with narrower ones a tile has more pairs, so a strip fewer
    # tiles
    tile_i, tile_j = outer["LEFT"] * 32 // inner, outer["RIGHT"] * 32 // inner
    outer["TILES"] = max(1, outer["TILES"] * inner**2 // 32**2)
    strips = triton.cdiv(rows, tile_i) * triton.cdiv(length, outer["TILES"] * tile_j)
    count = program_count(left, strips, outer.pop("resident"))
    pair_block = padded_channels(pair)
    depth = min(outer["DEPTH"], inner * inner)
    _outer[(count,)](
        matrix_tiles(left, outer["SEQUENCES"], tile_i * inner),
        matrix_tiles(right, outer["SEQUENCES"], tile_j * inner),
        matrix_tiles(weights.output.reshape(inner * inner, pair), depth, pair_block),
        weights.output_bias.contiguous(),
        counts,
        left.new_empty(count, outer["TILES"] * tile_i * tile_j, inner * inner),
        result,
        sequences,
        rows,
        length,
        result.stride(0) // pair,
        strips,
        PAIR=pair,
        INNER=inner,
        PAIR_BLOCK=pair_block,
        **(outer | {"LEFT": tile_i, "RIGHT": tile_j, "DEPTH": depth}),
    )


def project_factors(
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None,
    padded_length: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute both factors; the mask [S, N] is float32 and contiguous, or None for all positions.

    If `padded_length` is given, the left factor is stored channel by channel, each of this length.

    Returns:
        Left factor [S, N * E], or [S, E * padded_length], of which the first N of each padded_length elements
        belong to residues; and right factor [S, N * E].
    """
    sequences, length, channels = msa.shape
    inner = weights.left.shape[1]
    options = choose_launch("outer_product_mean", msa, channels)["factors"]
    block = padded_channels(channels)
    left = msa.new_empty(sequences, (padded_length or length) * inner)
    right = msa.new_empty(sequences, length * inner)
    if not left.numel():
        return left, right
    _factors[(sequences * triton.cdiv(length, options["ROWS"]),)](
        msa,
        weights.norm_scale.contiguous(),
        weights.norm_offset.contiguous(),
        matrix_tiles(weights.left, block, options["COLUMNS"]),
        weights.left_bias.contiguous(),
        matrix_tiles(weights.right, block, options["COLUMNS"]),
        weights.right_bias.contiguous(),
        mask,
        left,
        right,
        length,
        padded_length,
        *msa.stride(),
        CHANNELS=channels,
        INNER=inner,
        BLOCK=block,
        **options,
    )
    return left, right
