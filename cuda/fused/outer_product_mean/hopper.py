"""The outer products and their contraction on Hopper's tensor cores; outer products never leave registers.

A tile of pairs is 64 residues i × 4 residues j, and a program goes through the left factor's channels c one
by one. For one c the sum over sequences of a_ic ⊗ b_j is a matrix [64, E] for each j, and lies in registers
just as the next product takes its left operand: rounded to the tensors' dtype, it is multiplied with the
output weights [E, Z] of that c and added to the update [64, Z] of that j. So the right factor's columns stay
in shared memory for a tile, the left factor streams by, and the output weights are read once for 256 pairs.

Two groups of four warps take two j each, and a warp of its own copies to shared memory ahead of them. Every
buffer there has a barrier that says it is full and one that says that both groups are done with it.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.blocks import in_reach, programs
from cuda.fused.hopper_tiles import barriers, next_stage, stage_before, start_copy, tiled
from cuda.fused.outer_product_mean.reference import EPSILON, OuterProductMeanWeights

BLOCK_I, BLOCK_J, INNER, PAIR = (gl.constexpr(size) for size in (64, 4, 32, 128))
# columns of a copied tile, 128 bytes, as wide as shared memory's swizzle: 64 i of one c, or both j of a group
COLUMNS = gl.constexpr(64)
# a tile's right factor stays in shared memory, so there may be no more sequences
SEQUENCES = 512
# the left factor's rows are a multiple of so many residues long: copies begin at multiples of 16 bytes only
ALIGNMENT = 16
# sequences of a copied tile; how many tiles of the left factor and of the output weights there is room for;
# blocks of i between which tiles alternate, so that these stay in the L2 cache while j goes by
LAUNCH = {"SLICE": 128, "STAGES": 5, "OUTPUTS": 1, "GROUP": 8}


@gluon.jit
def _tile(tile, length, GROUP: gl.constexpr):
    """First i and first j of a tile."""
    blocks = gl.cdiv(length, BLOCK_I)
    tiles = GROUP * gl.cdiv(length, BLOCK_J)
    first = tile // tiles * GROUP
    within = tile % tiles
    size = gl.minimum(blocks - first, GROUP)
    return (first + within % size) * BLOCK_I, within // size * BLOCK_J


@gluon.jit
def _load(left, right, output, buffers, full, empty, sizes, across, GROUP: gl.constexpr):
    """Copy what the tiles take, in the order in which they take it."""
    lefts, rights, outputs = buffers
    left_full, right_full, output_full = full
    left_empty, right_empty, output_empty = empty
    sequences, length, tiles = sizes
    slices = gl.cdiv(sequences, lefts.shape[1])
    stage = 0
    stage_phase = 1
    slot = 0
    slot_phase = 1
    right_phase = 1
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        i, j = _tile(tile, length, GROUP)
        for c in range(INNER):
            for k in range(slices):
                row = k * lefts.shape[1]
                if c == 0:
                    mbarrier.wait(right_empty.index(k), right_phase)
                    for group in gl.static_range(2):
                        column = j * INNER + group * COLUMNS
                        start_copy(right, row, column, right_full.index(k), rights.index(2 * k + group))
                mbarrier.wait(left_empty.index(stage), stage_phase)
                start_copy(left, row, c * across + i, left_full.index(stage), lefts.index(stage))
                stage, stage_phase = next_stage(stage, stage_phase, lefts.shape[0])
            mbarrier.wait(output_empty.index(slot), slot_phase)
            start_copy(output, c * INNER, 0, output_full.index(slot), outputs.index(slot))
            slot, slot_phase = next_stage(slot, slot_phase, outputs.shape[0])
        right_phase ^= 1


@gluon.jit
def _store(update, bias, counts, share, result, i, j, length, ADD: gl.constexpr):
    """Add the bias, divide, and write or add the update [BLOCK_I, PAIR] of one j."""
    # eight channels a thread, 16 bytes of the result; rows stay with their warps
    LAYOUT: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [0, 32], [0, 64], [8, 0]],
        [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 128],
    )
    update = gl.convert_layout(update, LAYOUT)
    rows = i + gl.arange(0, BLOCK_I, gl.SliceLayout(1, LAYOUT))
    channels = gl.arange(0, PAIR, gl.SliceLayout(0, LAYOUT))
    real = (rows < length) & (j < length)
    cells = rows.to(gl.int64) * length + j
    update += gl.load(bias + channels).to(gl.float32)[None, :]
    if counts is not None:
        update /= gl.load(counts + cells, mask=real, other=1.0)[:, None]
    else:
        update *= share
    target = result + (cells[:, None] * PAIR + channels[None, :])
    present = real[:, None] & (channels < PAIR)[None, :]
    if ADD:
        update += gl.load(target, mask=present, other=0.0).to(gl.float32)
    gl.store(target, update.to(result.dtype.element_ty), mask=present)


@gluon.jit
def _contract(
    WHICH: gl.constexpr, buffers, full, empty, sizes, target, GROUP: gl.constexpr, ADD: gl.constexpr
):
    """The updates of two j of each tile."""
    lefts, rights, outputs = buffers
    left_full, right_full, output_full = full
    left_empty, right_empty, output_empty = empty
    sequences, length, tiles = sizes
    bias, counts, share, result = target
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
        first = gl.zeros([BLOCK_I, PAIR], gl.float32, UPDATE)
        second = gl.zeros([BLOCK_I, PAIR], gl.float32, UPDATE)
        # not set to 0 for each c: the first product of each overwrites it
        outer = gl.zeros([BLOCK_I, COLUMNS], gl.float32, OUTER)
        for c in range(INNER):
            for k in range(slices):
                mbarrier.wait(right_full.index(k), right_phase, pred=c == 0)
                mbarrier.wait(left_full.index(stage), stage_phase)
                a = lefts.index(stage).permute((1, 0))
                b = rights.index(2 * k + WHICH)
                outer = warpgroup_mma(a, b, outer, use_acc=k > 0, is_async=True)
                # one slice goes on while the one before is given back
                outer = warpgroup_mma_wait(1, deps=[outer])
                if k > 0:
                    mbarrier.arrive(left_empty.index(stage_before(stage, STAGES)))
                    if c == INNER - 1:
                        mbarrier.arrive(right_empty.index(k - 1))
                stage, stage_phase = next_stage(stage, stage_phase, STAGES)
            outer = warpgroup_mma_wait(0, deps=[outer])
            mbarrier.arrive(left_empty.index(stage_before(stage, STAGES)))
            if c == INNER - 1:
                mbarrier.arrive(right_empty.index(slices - 1))
            one, two = outer.to(lefts.dtype).reshape([BLOCK_I, 2, INNER]).permute((0, 2, 1)).split()
            one = gl.convert_layout(one, OPERAND)
            two = gl.convert_layout(two, OPERAND)
            mbarrier.wait(output_full.index(slot), slot_phase)
            first = warpgroup_mma(one, outputs.index(slot), first, is_async=True)
            second = warpgroup_mma(two, outputs.index(slot), second, is_async=True)
            first, second, one, two = warpgroup_mma_wait(0, deps=[first, second, one, two])
            mbarrier.arrive(output_empty.index(slot))
            slot, slot_phase = next_stage(slot, slot_phase, outputs.shape[0])
        right_phase ^= 1
        i, j = _tile(tile, length, GROUP)
        j += 2 * WHICH
        _store(first, bias, counts, share, result, i, j, length, ADD)
        _store(second, bias, counts, share, result, i, j + 1, length, ADD)


@gluon.jit(do_not_specialize=["sequences", "length", "across", "tiles"])
def _outer(
    left,
    right,
    output,
    bias,
    counts,
    share,
    result,
    sequences,
    length,
    across,
    tiles,
    ADD: gl.constexpr,
    SLICES: gl.constexpr,
    STAGES: gl.constexpr,
    OUTPUTS: gl.constexpr,
    GROUP: gl.constexpr,
):
    """The update [N, N, PAIR], tile by tile, written to the result or added to it.

    left and right are descriptors of tiles [SLICE, COLUMNS] of [S, INNER * across] and [S, N * INNER], output
    of tiles [INNER, PAIR] of [INNER², PAIR]. There are at most SLICES * SLICE sequences.
    """
    SLICE: gl.constexpr = left.block_type.shape[0]
    buffers = (
        gl.allocate_shared_memory(left.dtype, [STAGES, SLICE, COLUMNS], left.layout),
        gl.allocate_shared_memory(left.dtype, [2 * SLICES, SLICE, COLUMNS], right.layout),
        gl.allocate_shared_memory(left.dtype, [OUTPUTS, INNER, PAIR], output.layout),
    )
    # the right factor's come in two copies, each of which announces itself
    full = (barriers(STAGES, 1), barriers(SLICES, 2), barriers(OUTPUTS, 1))
    empty = (barriers(STAGES, 2), barriers(SLICES, 2), barriers(OUTPUTS, 2))
    fence_async_shared()
    sizes = (sequences, length, tiles)
    target = (bias, counts, share, result)
    gl.warp_specialize(
        [
            (_contract, (0, buffers, full, empty, sizes, target, GROUP, ADD)),
            (_contract, (1, buffers, full, empty, sizes, target, GROUP, ADD)),
            (_load, (left, right, output, buffers, full, empty, sizes, across, GROUP)),
        ],
        [4, 1],
        [240, 24],
    )


def suits(sequences: int, inner: int, pair: int) -> bool:
    """Whether the kernel is for so many sequences, channels of a factor and channels of a pair."""
    return sequences <= SEQUENCES and inner == INNER.value and pair == PAIR.value


def left_across(length: int) -> int:
    """How many residues a row of the left factor has room for."""
    return triton.cdiv(length, ALIGNMENT) * ALIGNMENT


def write_update(
    left: torch.Tensor,
    right: torch.Tensor,
    weights: OuterProductMeanWeights,
    counts: torch.Tensor | None,
    result: torch.Tensor,
    add: bool,
) -> None:
    """Write the update to the result, or add it.

    Args:
        left: [S, E * left_across(N)], the factor of a sequence channel by channel.
        right: [S, N * E].
        weights: the layer's parameters.
        counts: float32 [N, N], what to divide by, or None for the number of sequences.
        result: [N, N, Z], contiguous.
        add: to what the result holds.
    """
    sequences, length = left.shape[0], result.shape[0]
    launch = dict(LAUNCH)
    rows = launch.pop("SLICE")
    tiles = triton.cdiv(length, BLOCK_I.value) * triton.cdiv(length, BLOCK_J.value)
    _outer[(programs(left, tiles, 1),)](
        tiled(left, rows, COLUMNS.value),
        tiled(right, rows, COLUMNS.value),
        tiled(in_reach(weights.output.reshape(-1, PAIR.value)), INNER.value, PAIR.value),
        weights.output_bias.contiguous(),
        counts,
        1 / (sequences + EPSILON),
        result,
        sequences,
        length,
        left.shape[1] // INNER.value,
        tiles,
        ADD=add,
        SLICES=SEQUENCES // rows,
        num_warps=4,
        **launch,
    )
