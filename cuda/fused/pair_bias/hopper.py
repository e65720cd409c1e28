"""The pair bias on Hopper, at the speed at which the pair representation is read.

A program stays on its multiprocessor. Its four groups of four warps share nothing but the weights: each goes
from tile to tile of 64 positions and normalises them as the threads hold them for the product with all heads.
"""

import torch
import torch.nn.functional as F
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cuda.fused.blocks import EPSILON, programs
from cuda.fused.folding import without_norm
from cuda.fused.hopper import can_be_copied
from cuda.fused.hopper_rows import buffers_of, centred_rows, copied_weights, scaled
from cuda.fused.hopper_tiles import barriers as barriers_of
from cuda.fused.hopper_tiles import tiled
from cuda.fused.packing import remembered

GROUPS = gl.constexpr(4)
# a square, so that axes that are swapped in memory cost nothing
SIDE = gl.constexpr(8)
# a product has no fewer columns
HEADS = gl.constexpr(8)
# of each thread; four groups of 128 have 65,536
REGISTERS = gl.constexpr(128)


@gluon.jit
def _copy(pair, tile, across, ready, buffer):
    """Start to copy a tile of the pair representation."""
    mbarrier.expect(ready, pair.block_type.nbytes)
    tma.async_copy_global_to_shared(pair, [tile // across * SIDE, tile % across * SIDE, 0], ready, buffer)


@gluon.jit
def _bias_of_group(
    GROUP: gl.constexpr, pair, added, result, buffers, barriers, length, room, REAL_HEADS: gl.constexpr
):  # fmt: skip
    """One group's tiles."""
    weights, pair_tiles = buffers
    CHANNELS: gl.constexpr = weights.shape[2]
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEADS, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    pair_tile, ready = pair_tiles.index(GROUP), barriers.index(GROUP)
    position = gl.arange(0, SIDE * SIDE, ROWS)
    head = gl.arange(0, HEADS, gl.SliceLayout(0, PRODUCT))
    from_offset = gl.load(added + head)
    starts = result + (head.to(gl.int64) * length * room)[None, :]
    across = room // SIDE
    tiles = (length + SIDE - 1) // SIDE * across
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    if tile < tiles:
        _copy(pair, tile, across, ready, pair_tile)
    mbarrier.wait(barriers.index(GROUPS), 0)
    while tile < tiles:
        query = tile // across * SIDE + position // SIDE
        key = tile % across * SIDE + position % SIDE
        mbarrier.wait(ready, phase)
        phase ^= 1
        raw = pair_tile.reshape([SIDE * SIDE, CHANNELS]).load(OPERAND)
        tile += gl.num_programs(0) * GROUPS
        if tile < tiles:
            # all warps have read theirs
            gl.thread_barrier()
            _copy(pair, tile, across, ready, pair_tile)
        centred, scale = centred_rows(raw, EPSILON, CHANNELS, ROWS)
        product = gl.zeros([SIDE * SIDE, HEADS], gl.float32, PRODUCT)
        product = warpgroup_mma(
            centred, weights.index(0).permute([1, 0]), product, use_acc=False, is_async=True
        )
        product, _ = warpgroup_mma_wait(0, deps=[product, centred])
        bias = gl.where((key < length)[:, None], scaled(product, scale, from_offset), float("-inf"))
        places = starts + (query.to(gl.int64) * room + key)[:, None]
        there = (query < length)[:, None] & (head < REAL_HEADS)[None, :]
        gl.store(places, bias.to(result.dtype.element_ty), mask=there)


@gluon.jit(do_not_specialize=["length", "room"])
def bias_kernel(pair, packed, added, result, length, room, REAL_HEADS: gl.constexpr):
    """LN(pair) W to result [H, N, room]; -inf for keys past the last.

    pair [N, N, C] is a descriptor of tiles [SIDE, SIDE, C], packed one of a tile [HEADS, C].
    """
    barriers = barriers_of(GROUPS + 1, 1)
    pair_tiles = buffers_of(pair, GROUPS)
    fence_async_shared()
    buffers = (copied_weights(packed, 1, barriers.index(GROUPS)), pair_tiles)
    gl.warp_specialize(
        [
            (_bias_of_group, (0, pair, added, result, buffers, barriers, length, room, REAL_HEADS)),
            (_bias_of_group, (1, pair, added, result, buffers, barriers, length, room, REAL_HEADS)),
            (_bias_of_group, (2, pair, added, result, buffers, barriers, length, room, REAL_HEADS)),
            (_bias_of_group, (3, pair, added, result, buffers, barriers, length, room, REAL_HEADS)),
        ],
        [4, 4, 4],
        [REGISTERS, REGISTERS, REGISTERS],
    )


def suits(pair: torch.Tensor, heads: int) -> bool:
    """Whether the kernel is for a pair representation [N, N, C] and so many heads.

    Of 64 channels the other one is faster where axes are swapped.
    """
    return (
        pair.dtype == torch.bfloat16
        and pair.shape[-1] == 128
        and heads <= HEADS.value
        and pair.numel() > 0
        and can_be_copied(pair)
    )


def write_bias(
    pair: torch.Tensor,
    norm_scale: torch.Tensor,
    norm_offset: torch.Tensor,
    weights: torch.Tensor,
    result: torch.Tensor,
) -> None:
    """Write what `kernel.pair_bias` gives for a pair representation that `suits` to result [H, N, room]."""
    of_layer = norm_scale, norm_offset, weights
    packed, added = remembered("Hopper's pair bias", of_layer, lambda: _prepare(*of_layer))
    heads, length, room = result.shape
    tiles = -(-length // SIDE.value) * (room // SIDE.value)
    bias_kernel[(programs(pair, -(-tiles // GROUPS.value), 1),)](
        tiled(pair, SIDE.value, SIDE.value, pair.shape[-1]),
        packed,
        added,
        result,
        length,
        room,
        REAL_HEADS=heads,
        num_warps=4,
    )


def _prepare(
    norm_scale: torch.Tensor, norm_offset: torch.Tensor, weights: torch.Tensor
) -> tuple[TensorDescriptor, torch.Tensor]:
    """The weights [HEADS, C] with LayerNorm's scale folded in, and what its offset adds [HEADS]."""
    folded, added = without_norm(norm_scale, norm_offset, weights)
    more = HEADS.value - weights.shape[1]
    packed = F.pad(folded, (0, 0, 0, more)).bfloat16().contiguous()
    return tiled(packed, *packed.shape), F.pad(added, (0, more))
