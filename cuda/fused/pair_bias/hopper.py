"""The pair bias on Hopper GPUs, limited by the time to read the pair representation.

Programs are persistent. The four warpgroups of a program share only the weights: each processes tiles of 64
positions in turn, normalised in the registers from which the product takes its left operand.
"""

import torch
import torch.nn.functional as F
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cuda.fused.hopper_tiles import (
    allocate_barriers,
    allocate_buffers,
    centre_rows,
    load_positions,
    load_weights,
    scale_and_shift,
    tile_descriptor,
)
from cuda.fused.launch import program_count, tma_aligned
from cuda.fused.pair_bias import triton
from cuda.fused.rows import EPSILON
from cuda.fused.weights import cached_weights, fold_layer_norm

GROUPS = gl.constexpr(4)
# tiles are SIDE × SIDE positions, so that swapped axes cost nothing
SIDE = gl.constexpr(8)
# the smallest number of columns of a product
HEADS = gl.constexpr(8)
# per thread; four groups of 128 threads share 65,536
REGISTERS = gl.constexpr(128)


@gluon.jit
def _compute_group(GROUP: gl.constexpr, data, sizes, REAL_HEADS: gl.constexpr):
    """Compute the tiles of one warpgroup."""
    pair, bias_of_offset, result, buffers, barriers = data
    queries, length, padded_keys = sizes
    weights, pair_tiles = buffers
    CHANNELS: gl.constexpr = weights.shape[2]
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEADS, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    pair_tile, full = pair_tiles.index(GROUP), barriers.index(GROUP)
    position = gl.arange(0, SIDE * SIDE, ROWS)
    head = gl.arange(0, HEADS, gl.SliceLayout(0, PRODUCT))
    shift = gl.load(bias_of_offset + head)
    head_starts = result + (head.to(gl.int64) * queries * padded_keys)[None, :]
    tiles_per_row = padded_keys // SIDE
    tiles = (queries + SIDE - 1) // SIDE * tiles_per_row
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    if tile < tiles:
        load_positions(pair, tile, tiles_per_row, full, pair_tile)
    mbarrier.wait(barriers.index(GROUPS), 0)
    while tile < tiles:
        query = tile // tiles_per_row * SIDE + position // SIDE
        key = tile % tiles_per_row * SIDE + position % SIDE
        mbarrier.wait(full, phase)
        phase ^= 1
        raw = pair_tile.reshape([SIDE * SIDE, CHANNELS]).load(OPERAND)
        tile += gl.num_programs(0) * GROUPS
        if tile < tiles:
            # all warps of the group must have read the buffer before it is filled again
            gl.thread_barrier()
            load_positions(pair, tile, tiles_per_row, full, pair_tile)
        centred, scale = centre_rows(raw, EPSILON, CHANNELS, ROWS)
        product = gl.zeros([SIDE * SIDE, HEADS], gl.float32, PRODUCT)
        product = warpgroup_mma(
            centred, weights.index(0).permute([1, 0]), product, use_acc=False, is_async=True
        )
        product, _ = warpgroup_mma_wait(0, deps=[product, centred])
        bias = gl.where((key < length)[:, None], scale_and_shift(product, scale, shift), float("-inf"))
        pointers = head_starts + (query.to(gl.int64) * padded_keys + key)[:, None]
        mask = (query < queries)[:, None] & (head < REAL_HEADS)[None, :]
        gl.store(pointers, bias.to(result.dtype.element_ty), mask=mask)


@gluon.jit(do_not_specialize=["queries", "length", "padded_keys"])
def pair_bias_kernel(
    pair, packed, bias_of_offset, result, queries, length, padded_keys, REAL_HEADS: gl.constexpr
):  # fmt: skip
    """Write LN(pair) W to result [H, n, padded_keys]; -inf for keys past the last residue.

    Descriptors: pair [n, N, C] in tiles [SIDE, SIDE, C], packed weights in one tile [HEADS, C].
    """
    barriers = allocate_barriers(GROUPS + 1, 1)
    pair_tiles = allocate_buffers(pair, GROUPS)
    fence_async_shared()
    buffers = (load_weights(packed, 1, barriers.index(GROUPS)), pair_tiles)
    data, sizes = (pair, bias_of_offset, result, buffers, barriers), (queries, length, padded_keys)
    gl.warp_specialize(
        [
            (_compute_group, (0, data, sizes, REAL_HEADS)),
            (_compute_group, (1, data, sizes, REAL_HEADS)),
            (_compute_group, (2, data, sizes, REAL_HEADS)),
            (_compute_group, (3, data, sizes, REAL_HEADS)),
        ],
        [4, 4, 4],
        [REGISTERS, REGISTERS, REGISTERS],
    )


def pair_bias(
    pair: torch.Tensor,
    norm_scale: torch.Tensor,
    norm_offset: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Compute LN(pair) W with heads first.

    Same arguments, result and errors as `cuda.fused.pair_bias.triton.pair_bias`, which handles other dtypes
    and sizes.
    """
    if not supports(pair, weights.shape[1]):
        return triton.pair_bias(pair, norm_scale, norm_offset, weights)
    result = triton.empty_bias(pair, norm_scale, norm_offset, weights)
    write_pair_bias(pair, norm_scale, norm_offset, weights, result)
    return result


def supports(pair: torch.Tensor, heads: int) -> bool:
    """Return whether the Hopper kernel supports rows of pairs [n, N, C] and a number of heads.

    With 64 channels the Triton kernel is faster where the axes are swapped.
    """
    return (
        pair.dtype == torch.bfloat16
        and pair.shape[-1] == 128
        and heads <= HEADS.value
        and pair.numel() > 0
        and tma_aligned(pair)
    )


def write_pair_bias(
    pair: torch.Tensor,
    norm_scale: torch.Tensor,
    norm_offset: torch.Tensor,
    weights: torch.Tensor,
    result: torch.Tensor,
) -> None:
    """Write the pair bias of rows [n, N, C] to result [H, n, K], K a multiple of SIDE."""
    layer = norm_scale, norm_offset, weights
    packed, bias_of_offset = cached_weights("Hopper pair bias", layer, lambda: _pack(*layer))
    heads, queries, padded_keys = result.shape
    tiles = -(-queries // SIDE.value) * (padded_keys // SIDE.value)
    pair_bias_kernel[(program_count(pair, -(-tiles // GROUPS.value), 1),)](
        tile_descriptor(pair, SIDE.value, SIDE.value, pair.shape[-1]),
        packed,
        bias_of_offset,
        result,
        queries,
        pair.shape[1],
        padded_keys,
        REAL_HEADS=heads,
        num_warps=4,
    )


def _pack(
    norm_scale: torch.Tensor, norm_offset: torch.Tensor, weights: torch.Tensor
) -> tuple[TensorDescriptor, torch.Tensor]:
    """Return the weights [HEADS, C] with LayerNorm's scale folded in, and the bias [HEADS] of its offset."""
    folded, bias = fold_layer_norm(norm_scale, norm_offset, weights)
    missing = HEADS.value - weights.shape[1]
    packed = F.pad(folded, (0, 0, 0, missing)).bfloat16().contiguous()
    return tile_descriptor(packed, *packed.shape), F.pad(bias, (0, missing))
