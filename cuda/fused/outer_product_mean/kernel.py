"""The outer product mean in two Triton kernels: the factors, then outer products and their contraction.

The N × N × E² outer products never lie in memory as a whole. A program of the second kernel takes a strip of
residue pairs: tile by tile it sums a_i ⊗ b_j over the sequences on the tensor cores, leaves the
tile, rounded to the tensors' dtype, in a scratch of its own that stays in the L2 cache, and then contracts
the strip with the output weights. These are read once for each strip, so a strip has several tiles.
On Hopper GPUs another kernel takes its place for the model's MSA, in hopper.py.
"""

import torch
import triton
import triton.language as tl

from cuda.fused.blocks import check_tensors, matrix_tiles, normalised_rows, programs
from cuda.fused.hopper import available
from cuda.fused.launch_table import choose_launch
from cuda.fused.outer_product_mean.reference import EPSILON, OuterProductMeanWeights

# what is added to how many sequences two residues share
NO_COUNT = tl.constexpr(EPSILON)


@triton.jit
def _factor(
    normed,
    weights,
    bias,
    mask,
    result,
    residues,
    length,
    across,
    INNER: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One factor of a sequence's residues: project [ROWS, BLOCK], add the bias, mask, store.

    The result is the sequence's [N, INNER] or, with `across` residues to a row, [INNER, across].
    """
    real = residues < length
    for first in range(0, INNER, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        inner = columns < INNER
        factor = tl.dot(normed, weights.load([0, first]), input_precision=PRECISION)
        factor += tl.load(bias + columns, mask=inner, other=0.0).to(tl.float32)[None, :]
        if mask is not None:
            factor *= mask[:, None]
        factor = factor.to(result.dtype.element_ty)
        if across is not None:
            places = columns[:, None] * across + residues[None, :]
            tl.store(result + places, factor.T, mask=inner[:, None] & real[None, :])
        else:
            places = residues[:, None] * INNER + columns[None, :]
            tl.store(result + places, factor, mask=real[:, None] & inner[None, :])


@triton.jit
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
    left_across,
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
    """Both factors [S, N, INNER] of residues of one sequence, or the left one as [S, INNER, left_across]."""
    blocks = tl.cdiv(length, ROWS)
    sequence = (tl.program_id(0) // blocks).to(tl.int64)
    residues = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    real = residues < length
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    present = real[:, None] & channels[None, :]
    places = residues.to(tl.int64)[:, None] * residue_stride + columns[None, :] * channel_stride
    msa += sequence * sequence_stride
    normed = normalised_rows(msa, places, present, norm_scale, norm_offset, CHANNELS, BLOCK).to(
        msa.dtype.element_ty
    )
    kept = None
    if mask is not None:
        kept = tl.load(mask + sequence * length + residues, mask=real, other=0.0)
    right_result += sequence * length * INNER
    if left_across is not None:
        left_result += sequence * left_across * INNER
    else:
        left_result += sequence * length * INNER
    _factor(
        normed, left, left_bias, kept, left_result, residues, length, left_across, INNER, COLUMNS, PRECISION
    )
    _factor(normed, right, right_bias, kept, right_result, residues, length, None, INNER, COLUMNS, PRECISION)


@triton.jit
def _outer(
    left,
    right,
    output,
    output_bias,
    counts,
    scratch,
    result,
    sequences,
    length,
    strips,
    PAIR: tl.constexpr,
    INNER: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    TILES: tl.constexpr,
    SEQUENCES: tl.constexpr,
    DEPTH: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The update [N, N, PAIR], strip by strip, written to the result or added to it.

    left and right are descriptors of tiles [SEQUENCES, LEFT * INNER] and [SEQUENCES, RIGHT * INNER] of
    [S, N * INNER], output of tiles [DEPTH, PAIR_BLOCK] of [INNER², PAIR]. The scratch is
    [TILES * LEFT * RIGHT, INNER²] for each program.
    """
    OUTER: tl.constexpr = INNER * INNER
    PAIRS: tl.constexpr = TILES * LEFT * RIGHT
    dtype = scratch.dtype.element_ty
    scratch += tl.program_id(0).to(tl.int64) * (PAIRS * OUTER)
    across = tl.cdiv(length, TILES * RIGHT)
    # where element (i, c), (j, e) of a tile lies in the scratch: pair i * RIGHT + j, element c * INNER + e
    row = tl.arange(0, LEFT * INNER)
    column = tl.arange(0, RIGHT * INNER)
    row_places = (row // INNER) * (RIGHT * OUTER) + (row % INNER) * INNER
    places = row_places[:, None] + ((column // INNER) * OUTER + column % INNER)[None, :]
    pair = tl.arange(0, PAIRS)
    depth = tl.arange(0, DEPTH)
    channel = tl.arange(0, PAIR_BLOCK)
    bias = tl.load(output_bias + channel, mask=channel < PAIR, other=0.0).to(tl.float32)
    for strip in range(tl.program_id(0), strips, tl.num_programs(0)):
        first_i = (strip // across) * LEFT
        first_j = (strip % across) * (TILES * RIGHT)
        for tile in range(TILES):
            total = tl.zeros((LEFT * INNER, RIGHT * INNER), tl.float32)
            for s in range(0, sequences, SEQUENCES):
                a = left.load([s, first_i * INNER])
                b = right.load([s, (first_j + tile * RIGHT) * INNER])
                total = tl.dot(a.T, b, total, input_precision=PRECISION)
            tl.store(scratch + tile * (LEFT * RIGHT * OUTER) + places, total.to(dtype))
        # other threads of the program read what this one wrote, and write again after all have read
        tl.debug_barrier()
        update = tl.zeros((PAIRS, PAIR_BLOCK), tl.float32)
        for first in range(0, OUTER, DEPTH):
            outer = tl.load(scratch + pair[:, None] * OUTER + (first + depth)[None, :])
            update = tl.dot(outer, output.load([first, 0]), update, input_precision=PRECISION)
        tl.debug_barrier()
        i = first_i + (pair // RIGHT) % LEFT
        j = first_j + (pair // (LEFT * RIGHT)) * RIGHT + pair % RIGHT
        real = (i < length) & (j < length)
        cell = i.to(tl.int64) * length + j
        update += bias[None, :]
        if counts is not None:
            update /= tl.load(counts + cell, mask=real, other=1.0)[:, None]
        else:
            update *= 1.0 / (sequences + NO_COUNT)
        present = real[:, None] & (channel < PAIR)[None, :]
        target = result + cell[:, None] * PAIR + channel[None, :]
        if ADD:
            update += tl.load(target, mask=present, other=0.0).to(tl.float32)
        tl.store(target, update.to(dtype), mask=present)


def outer_product_mean(
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """`cuda.fused.outer_product_mean.outer_product_mean` with neither the outer products nor their copies.

    Args:
        msa: [S, N, C] of at most 256 channels, strided as it comes.
        weights: the layer's parameters, of msa's dtype; E is a power of two up to 32, Z at most 128.
        mask: [S, N], 1 for real positions, or None for all.
        budget: taken for the reference's sake; the intermediates beside the factors do not grow with N.

    Returns:
        [N, N, Z], the update.

    Raises:
        ValueError: no kernel takes these tensors.
    """
    return _outer_product_mean(None, msa, weights, mask)


def add_outer_product_mean(
    pair: torch.Tensor,
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
    budget: int | None = None,
) -> torch.Tensor:
    """Add the update to pair [N, N, Z], contiguous, in place; the sum is rounded once.

    The other arguments and what is raised are those of `outer_product_mean`.

    Returns:
        pair.
    """
    check_tensors("outer_product_mean", pair, msa)
    if not pair.is_contiguous():
        raise ValueError("fused outer_product_mean adds to contiguous pair representations alone")
    return _outer_product_mean(pair, msa, weights, mask)


def _outer_product_mean(
    added_to: torch.Tensor | None,
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    check_tensors("outer_product_mean", msa, *weights)
    sequences, length, channels = msa.shape
    inner, _, pair = weights.output.shape
    if inner not in (4, 8, 16, 32) or pair > 128:
        raise ValueError(f"fused outer_product_mean takes no factors of {inner} channels to {pair} of pairs")
    options = choose_launch("outer_product_mean", msa, channels)
    counts = None
    if mask is not None:
        mask = mask.float().contiguous()
        counts = mask.T @ mask + EPSILON  # [N, N]
    result = msa.new_empty(length, length, pair) if added_to is None else added_to
    if available(msa):
        # needs the Triton that it is for
        from cuda.fused.outer_product_mean import hopper

        if hopper.suits(sequences, inner, pair):
            across = hopper.left_across(length)
            left, right = _both_factors(msa, weights, mask, options["factors"], across)
            hopper.write_update(left, right, weights, counts, result, added_to is not None)
            return result
    left, right = _both_factors(msa, weights, mask, options["factors"])
    outer = dict(options["outer"])
    # launches are for factors of 32 channels: narrower ones make more pairs a tile, so fewer tiles a strip
    tile_i, tile_j = outer["LEFT"] * 32 // inner, outer["RIGHT"] * 32 // inner
    outer["TILES"] = max(1, outer["TILES"] * inner**2 // 32**2)
    strips = triton.cdiv(length, tile_i) * triton.cdiv(length, outer["TILES"] * tile_j)
    count = programs(msa, strips, outer.pop("resident"))
    pair_block = max(16, triton.next_power_of_2(pair))
    depth = min(outer["DEPTH"], inner * inner)
    _outer[(count,)](
        matrix_tiles(left, outer["SEQUENCES"], tile_i * inner),
        matrix_tiles(right, outer["SEQUENCES"], tile_j * inner),
        matrix_tiles(weights.output.reshape(inner * inner, pair), depth, pair_block),
        weights.output_bias.contiguous(),
        counts,
        msa.new_empty(count, outer["TILES"] * tile_i * tile_j, inner * inner),
        result,
        sequences,
        length,
        strips,
        PAIR=pair,
        INNER=inner,
        PAIR_BLOCK=pair_block,
        ADD=added_to is not None,
        **(outer | {"LEFT": tile_i, "RIGHT": tile_j, "DEPTH": depth}),
    )
    return result


def _both_factors(
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None,
    options: dict[str, int],
    left_across: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Left and right factor [S, N * E] of a mask that is float32 and contiguous, or of all.

    Args:
        left_across: makes the left one [S, E * left_across], of which N in each left_across are written.
    """
    sequences, length, channels = msa.shape
    inner = weights.left.shape[1]
    block = max(16, triton.next_power_of_2(channels))
    left = msa.new_empty(sequences, (left_across or length) * inner)
    right = msa.new_empty(sequences, length * inner)
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
        left_across,
        *msa.stride(),
        CHANNELS=channels,
        INNER=inner,
        BLOCK=block,
        **options,
    )
    return left, right
