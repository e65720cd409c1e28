"""The outer products and their contraction on Hopper's tensor cores; outer products stay in registers.

A tile of pairs is 64 residues i × 4 residues j, and a program loops over the left factor's channels c. For
one c, the sum over sequences of a_ic ⊗ b_j is a matrix [64, E] for each j. It is already in the registers
from which the next product takes its left operand: rounded to the tensors' dtype, it is multiplied with the
output weights [E, Z] of that c and added to the update [64, Z] of that j. Thus the right factor's columns
stay in shared memory for a whole tile, the left factor is streamed, and the output weights are read once per
256 pairs.

Two warpgroups process two j each, and a loading warp copies to shared memory ahead of them.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.hopper_tiles import (
    allocate_barriers,
    allocate_buffers,
    load_tile,
    next_stage,
    previous_stage,
    tile_descriptor,
)
from cuda.fused.launch import program_count, tma_readable
from cuda.fused.outer_product_mean import triton
from cuda.fused.outer_product_mean.kernel_arguments import check_block, check_pair, check_sizes, shared_counts
from cuda.fused.outer_product_mean.reference import EPSILON, OuterProductMeanWeights

BLOCK_I, BLOCK_J, INNER, PAIR = (gl.constexpr(size) for size in (64, 4, 32, 128))
# columns of a loaded tile: 128 bytes, the width of shared memory's swizzle; they are 64 residues i of one
# channel c, or all channels of two residues j
COLUMNS = gl.constexpr(64)
# maximum number of sequences, as the right factor of a tile stays in shared memory
SEQUENCES = 512
# residues per row of the left factor are rounded up to a multiple of this, so that copies start at 16 bytes
ALIGNMENT = 16
# SLICE: sequences of a loaded tile. STAGES, OUTPUTS: tiles of the left factor and of the output weights in
# shared memory. GROUP_SIZE: blocks of i that consecutive tiles alternate between, to stay in the L2 cache.
LAUNCH = {"SLICE": 128, "STAGES": 5, "OUTPUTS": 1, "GROUP_SIZE": 8}


@gluon.jit
def _tile_start(tile, lengths, GROUP_SIZE: gl.constexpr):
    """Return the first i and the first j of a tile."""
    rows, columns, _ = lengths
    blocks = gl.cdiv(rows, BLOCK_I)
    tiles = GROUP_SIZE * gl.cdiv(columns, BLOCK_J)
    first = tile // tiles * GROUP_SIZE
    within = tile % tiles
    size = gl.minimum(blocks - first, GROUP_SIZE)
    return (first + within % size) * BLOCK_I, within // size * BLOCK_J


@gluon.jit
def _load_tiles(left, right, output, buffers, full, empty, sizes, padded_length, GROUP_SIZE: gl.constexpr):
    """Load factors and output weights in the order in which the warpgroups use them."""
    lefts, rights, outputs = buffers
    left_full, right_full, output_full = full
    left_empty, right_empty, output_empty = empty
    sequences, lengths, tiles = sizes
    slices = gl.cdiv(sequences, lefts.shape[1])
    stage = 0
    stage_phase = 1
    slot = 0
    slot_phase = 1
    right_phase = 1
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        i, j = _tile_start(tile, lengths, GROUP_SIZE)
        for c in range(INNER):
            for k in range(slices):
                row = k * lefts.shape[1]
                if c == 0:
                    mbarrier.wait(right_empty.index(k), right_phase)
                    for group in gl.static_range(2):
                        column = j * INNER + group * COLUMNS
                        load_tile(right, (row, column), right_full.index(k), rights.index(2 * k + group))
                mbarrier.wait(left_empty.index(stage), stage_phase)
                load_tile(left, (row, c * padded_length + i), left_full.index(stage), lefts.index(stage))
                stage, stage_phase = next_stage(stage, stage_phase, lefts.shape[0])
            mbarrier.wait(output_empty.index(slot), slot_phase)
            load_tile(output, (c * INNER, 0), output_full.index(slot), outputs.index(slot))
            slot, slot_phase = next_stage(slot, slot_phase, outputs.shape[0])
        right_phase ^= 1


@gluon.jit
def _store(update, bias, counts, reciprocal, result, i, j, lengths, ADD: gl.constexpr):
    """Add the bias if any, divide by the counts, and write or add the update [BLOCK_I, PAIR] of one j."""
    # each thread writes eight channels, 16 bytes of the result; rows stay in their warps
    LAYOUT: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [0, 32], [0, 64], [8, 0]],
        [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 128],
    )
    length, columns, stride = lengths
    update = gl.convert_layout(update, LAYOUT)
    rows = i + gl.arange(0, BLOCK_I, gl.SliceLayout(1, LAYOUT))
    channels = gl.arange(0, PAIR, gl.SliceLayout(0, LAYOUT))
    real = (rows < length) & (j < columns)
    cells = rows.to(gl.int64) * stride + j
    if bias is not None:
        update += gl.load(bias + channels).to(gl.float32)[None, :]
    if counts is not None:
        update /= gl.load(counts + cells, mask=real, other=1.0)[:, None]
    else:
        update *= reciprocal
    target = result + (cells[:, None] * PAIR + channels[None, :])
    mask = real[:, None] & (channels < PAIR)[None, :]
    if ADD:
        update += gl.load(target, mask=mask, other=0.0).to(gl.float32)
    gl.store(target, update.to(result.dtype.element_ty), mask=mask)


@gluon.jit
def _compute_group(
    WARPGROUP: gl.constexpr, buffers, full, empty, sizes, target, GROUP_SIZE: gl.constexpr, ADD: gl.constexpr
):
    """Compute the updates of two j of each tile in warpgroup WARPGROUP."""
    lefts, rights, outputs = buffers
    left_full, right_full, output_full = full
    left_empty, right_empty, output_empty = empty
    sequences, lengths, tiles = sizes
    bias, counts, reciprocal, result = target
    OUTER: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    UPDATE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PAIR, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, UPDATE, 2)
    STAGES: gl.constexpr = lefts.shape[0]
    slices = gl.cdiv(sequences, lefts.shape[1])
    stage = 0
    stage_phase = 0
    slot = 0
    slot_phase = 0
    right_phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        update_0 = gl.zeros([BLOCK_I, PAIR], gl.float32, UPDATE)
        update_1 = gl.zeros([BLOCK_I, PAIR], gl.float32, UPDATE)
        # not cleared for each c: the first product of each c overwrites it
        outer = gl.zeros([BLOCK_I, COLUMNS], gl.float32, OUTER)
        for c in range(INNER):
            for k in range(slices):
                mbarrier.wait(right_full.index(k), right_phase, pred=c == 0)
                mbarrier.wait(left_full.index(stage), stage_phase)
                a = lefts.index(stage).permute((1, 0))
                b = rights.index(2 * k + WARPGROUP)
                outer = warpgroup_mma(a, b, outer, use_acc=k > 0, is_async=True)
                # this product is in flight while the buffer of the previous one is released
                outer = warpgroup_mma_wait(1, deps=[outer])
                if k > 0:
                    mbarrier.arrive(left_empty.index(previous_stage(stage, STAGES)))
                    if c == INNER - 1:
                        mbarrier.arrive(right_empty.index(k - 1))
                stage, stage_phase = next_stage(stage, stage_phase, STAGES)
            outer = warpgroup_mma_wait(0, deps=[outer])
            mbarrier.arrive(left_empty.index(previous_stage(stage, STAGES)))
            if c == INNER - 1:
                mbarrier.arrive(right_empty.index(slices - 1))
            outer_0, outer_1 = outer.to(lefts.dtype).reshape([BLOCK_I, 2, INNER]).permute((0, 2, 1)).split()
            outer_0 = gl.convert_layout(outer_0, OPERAND)
            outer_1 = gl.convert_layout(outer_1, OPERAND)
            mbarrier.wait(output_full.index(slot), slot_phase)
            update_0 = warpgroup_mma(outer_0, outputs.index(slot), update_0, is_async=True)
            update_1 = warpgroup_mma(outer_1, outputs.index(slot), update_1, is_async=True)
            update_0, update_1, outer_0, outer_1 = warpgroup_mma_wait(
                0, deps=[update_0, update_1, outer_0, outer_1]
            )
            mbarrier.arrive(output_empty.index(slot))
            slot, slot_phase = next_stage(slot, slot_phase, outputs.shape[0])
        right_phase ^= 1
        i, j = _tile_start(tile, lengths, GROUP_SIZE)
        j += 2 * WARPGROUP
        _store(update_0, bias, counts, reciprocal, result, i, j, lengths, ADD)
        _store(update_1, bias, counts, reciprocal, result, i, j + 1, lengths, ADD)


@gluon.jit(do_not_specialize=["sequences", "rows", "columns", "stride", "padded_length", "tiles"])
def outer_product_kernel(
    left,
    right,
    output,
    bias,
    counts,
    reciprocal,
    result,
    sequences,
    rows,
    columns,
    stride,
    padded_length,
    tiles,
    ADD: gl.constexpr,
    SLICES: gl.constexpr,
    STAGES: gl.constexpr,
    OUTPUTS: gl.constexpr,
    GROUP_SIZE: gl.constexpr,
):
    """Write the update [rows, columns, PAIR] to the result, or add it if ADD, tile by tile.

    Descriptors: left [S, INNER * padded_length] and right [S, columns * INNER] in tiles [SLICE, COLUMNS],
    output [INNER², PAIR] in tiles [INNER, PAIR]. There are at most SLICES * SLICE sequences. Updates are
    divided by counts [rows, columns] or, if that is None, multiplied by the reciprocal. In the result and the
    counts, `stride` pairs are between two rows.
    """
    buffers = (
        allocate_buffers(left, STAGES),
        allocate_buffers(right, 2 * SLICES),
        allocate_buffers(output, OUTPUTS),
    )
    # tiles of the right factor are two copies, each of which announces its bytes
    full = (allocate_barriers(STAGES, 1), allocate_barriers(SLICES, 2), allocate_barriers(OUTPUTS, 1))
    empty = (allocate_barriers(STAGES, 2), allocate_barriers(SLICES, 2), allocate_barriers(OUTPUTS, 2))
    fence_async_shared()
    sizes = (sequences, (rows, columns, stride), tiles)
    target = (bias, counts, reciprocal, result)
    gl.warp_specialize(
        [
            (_compute_group, (0, buffers, full, empty, sizes, target, GROUP_SIZE, ADD)),
            (_compute_group, (1, buffers, full, empty, sizes, target, GROUP_SIZE, ADD)),
            (_load_tiles, (left, right, output, buffers, full, empty, sizes, padded_length, GROUP_SIZE)),
        ],
        [4, 1],
        [240, 24],
    )


def add_outer_product_mean(
    pair: torch.Tensor,
    msa: torch.Tensor,
    weights: OuterProductMeanWeights,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Add the update of every pair in place.

    Same arguments, result and errors as `cuda.fused.outer_product_mean.triton.add_outer_product_mean`, which
    handles other dtypes and sizes.
    """
    if not supports(msa, weights):
        return triton.add_outer_product_mean(pair, msa, weights, mask)
    check_pair(pair, msa)
    check_sizes(msa, weights)
    mask, counts = shared_counts(mask)
    left, right = triton.project_factors(msa, weights, mask, padded_length(msa.shape[1]))
    contract_factors(left, right, weights, counts, pair)
    return pair


def project_residues(
    msa: torch.Tensor, weights: OuterProductMeanWeights, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the left and the right factor of some residues.

    Same arguments and errors as `cuda.fused.outer_product_mean.triton.project_residues`.

    Returns:
        The left factor in the form that `add_contraction` takes, and the right one [S, n, E].
    """
    if not supports(msa, weights):
        return triton.project_residues(msa, weights, mask)
    check_sizes(msa, weights)
    mask = None if mask is None else mask.float().contiguous()
    left, right = triton.project_factors(msa, weights, mask, padded_length(msa.shape[1]))
    return left, right.view(*msa.shape[:2], INNER.value)


def add_contraction(
    pair: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    weights: OuterProductMeanWeights,
    counts: torch.Tensor | None,
) -> torch.Tensor:
    """Add the update to a block of the pair representation in place, and return the block.

    Same arguments as `cuda.fused.outer_product_mean.triton.add_contraction`, with the left factor of this
    module's `project_residues`.
    """
    if not supports(left, weights):
        return triton.add_contraction(pair, left, right, weights, counts)
    check_block(pair, right, counts)
    contract_factors(left, right.flatten(1), weights, counts, pair)
    return pair


def supports(msa: torch.Tensor, weights: OuterProductMeanWeights) -> bool:
    """Return whether the Hopper kernel supports an MSA or its left factor [S, ...], and weights."""
    inner, _, pair = weights.output.shape
    return supports_sizes(msa.dtype, msa.shape[0], inner, pair)


def supports_sizes(dtype: torch.dtype, sequences: int, inner: int, pair: int) -> bool:
    """Return whether the Hopper kernel supports a dtype and numbers of sequences and channels."""
    return dtype.itemsize == 2 and sequences <= SEQUENCES and inner == INNER.value and pair == PAIR.value


def padded_length(length: int) -> int:
    """Return the number of residues that a row of the left factor is allocated for."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def contract_factors(
    left: torch.Tensor,
    right: torch.Tensor,
    weights: OuterProductMeanWeights,
    counts: torch.Tensor | None,
    result: torch.Tensor,
) -> None:
    """Contract the outer products of two factors, and add the update to the result [n, N, Z].

    The left factor [S, E * padded_length(n)] is stored channel by channel, the right one is [S, N * E].
    Counts, float32 [n, N], have the strides of the result's pairs; None stands for the number of sequences.
    The result is contiguous, or a block of columns of a contiguous tensor.
    """
    reciprocal = 1 / (left.shape[0] + EPSILON)
    output = weights.output.reshape(-1, PAIR.value)
    _launch(left, right, output, weights.output_bias.contiguous(), counts, reciprocal, result, add=True)


def project_outer(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Compute `cuda.fused.outer_product_mean.differentiable.project_outer` of supported factors.

    Returns:
        [B, N, N, Z].
    """
    batch, sequences, length, inner = left.shape
    # residues beyond the last have any values, and their pairs are not written
    padded = left.new_empty(batch, sequences, inner, padded_length(length))
    padded[..., :length] = left.transpose(2, 3)
    right = right.contiguous()
    result = left.new_empty(batch, length, length, PAIR.value)
    for k in range(batch):
        _launch(padded[k].flatten(1), right[k].flatten(1), output, None, None, 1.0, result[k], add=False)
    return result


def _launch(
    left: torch.Tensor,
    right: torch.Tensor,
    output: torch.Tensor,
    bias: torch.Tensor | None,
    counts: torch.Tensor | None,
    reciprocal: float,
    result: torch.Tensor,
    add: bool,
) -> None:
    """Launch the kernel; output is [E*E, Z]. Without counts, updates are multiplied by the reciprocal."""
    sequences, (rows, columns, _) = left.shape[0], result.shape
    launch = dict(LAUNCH)
    loaded = launch.pop("SLICE")
    tiles = -(-rows // BLOCK_I.value) * -(-columns // BLOCK_J.value)
    if not tiles:
        return
    outer_product_kernel[(program_count(left, tiles, 1),)](
        tile_descriptor(left, loaded, COLUMNS.value),
        tile_descriptor(right, loaded, COLUMNS.value),
        tile_descriptor(tma_readable(output), INNER.value, PAIR.value),
        bias,
        counts,
        reciprocal,
        result,
        sequences,
        rows,
        columns,
        result.stride(0) // PAIR.value,
        left.shape[1] // INNER.value,
        tiles,
        ADD=add,
        SLICES=SEQUENCES // loaded,
        num_warps=4,
        **launch,
    )
