"""The gradients of queries, keys and values of gated attention with a pair bias on Hopper GPUs.

A program computes one head of one row of 256 positions, whose keys are divided between four warpgroups. All
operands fit in shared memory. A group goes through the queries in blocks of 32: it recomputes the softmax
weights P from a tile of the bias, adds to the gradients of its keys and values, and replaces the tile by dS.
When all groups are done, each computes the gradients of 64 queries from dS. For the formulas see
`triton_backward_kernels`. Logits are scaled in float32, instead of the queries before.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cuda.fused.attention.biases import masked_and_transposed
from cuda.fused.attention.hopper_bias_gradient import TILE, sum_bias_gradients
from cuda.fused.attention.hopper_core import FLAT, LOG2_E, LOGITS, WEIGHTS, WIDTH, rows_of_tile
from cuda.fused.attention.triton import is_shared
from cuda.fused.attention.triton_backward import GradientInputs
from cuda.fused.hopper_tiles import allocate_barriers, allocate_buffers, load_tile, tile_descriptor
from cuda.fused.launch import tma_aligned

# positions of a row
LENGTH = gl.constexpr(256)
# keys of a warpgroup, and queries of a block
KEYS = gl.constexpr(64)
QUERIES = gl.constexpr(32)
# warpgroups of a program, and blocks of queries
GROUPS = gl.constexpr(4)
BLOCKS = gl.constexpr(8)
REGISTERS = gl.constexpr(128)


@gluon.jit
def _load_statistics(statistics, block):
    """Load the logit that weights are relative to, in units of log2, and δ' of a block of queries."""
    maximum, delta = statistics
    query = block * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(0, LOGITS))
    return gl.load(maximum + query) * LOG2_E, gl.load(delta + query)


@gluon.jit
def _compute_group(GROUP: gl.constexpr, inputs, INNER: gl.constexpr):
    """Compute the gradients of one group's keys and values, then those of 64 queries."""
    buffers, barriers, statistics, gradients, scale, start, channel = inputs
    operands, tiles = buffers
    queries, keys, values, upstreams = (
        operands.index(0),
        operands.index(1),
        operands.index(2),
        operands.index(3),
    )
    loaded, tiles_full, done = barriers
    dtype: gl.constexpr = queries.dtype
    key, value = rows_of_tile(keys, GROUP, KEYS), rows_of_tile(values, GROUP, KEYS)
    zeros = gl.zeros([KEYS, QUERIES], gl.float32, LOGITS)
    key_gradient = gl.zeros([KEYS, WIDTH], gl.float32, LOGITS)
    value_gradient = gl.zeros([KEYS, WIDTH], gl.float32, LOGITS)
    next_highest, next_offset = _load_statistics(statistics, 0)
    mbarrier.wait(loaded, 0)
    for block in range(BLOCKS):
        highest, offset = next_highest, next_offset
        query, upstream = rows_of_tile(queries, block, QUERIES), rows_of_tile(upstreams, block, QUERIES)
        logits = warpgroup_mma(key, query.permute((1, 0)), zeros, use_acc=False, is_async=True)
        product = warpgroup_mma(value, upstream.permute((1, 0)), zeros, use_acc=False, is_async=True)
        mbarrier.wait(tiles_full.index(block), 0)
        tile = rows_of_tile(tiles.index(block), GROUP, KEYS)
        shift = tile.load(LOGITS).to(gl.float32) * LOG2_E - highest[None, :]
        # loaded a block ahead; those after the last block are not used
        next_highest, next_offset = _load_statistics(statistics, (block + 1) % BLOCKS)
        logits, product = warpgroup_mma_wait(0, deps=[logits, product])
        weight = gl.exp2(logits * scale + shift)
        logit_gradient = (weight * (product - offset[None, :])).to(dtype)
        weights = gl.convert_layout(weight.to(dtype), WEIGHTS, assert_trivial=True)
        left = gl.convert_layout(logit_gradient, WEIGHTS, assert_trivial=True)
        value_gradient = warpgroup_mma(weights, upstream, value_gradient, is_async=True)
        key_gradient = warpgroup_mma(left, query, key_gradient, is_async=True)
        tile.store(logit_gradient)
        value_gradient, key_gradient, weights, left = warpgroup_mma_wait(
            0, deps=[value_gradient, key_gradient, weights, left]
        )
    fence_async_shared()
    mbarrier.arrive(done, count=1)
    mbarrier.wait(done, 0)
    pair = tiles.index(2 * GROUP)._reinterpret(dtype, [LENGTH, 2 * QUERIES], FLAT)
    query_gradient = gl.zeros([KEYS, WIDTH], gl.float32, LOGITS)
    query_gradient = warpgroup_mma(pair.permute((1, 0)), keys, query_gradient, use_acc=False)
    # no group reads queries, values and upstream gradients any more
    width: gl.constexpr = WIDTH
    factor: gl.constexpr = width**-0.5
    row = start + GROUP * KEYS
    query, upstream = rows_of_tile(queries, GROUP, KEYS), rows_of_tile(upstreams, GROUP, KEYS)
    query.store((query_gradient * factor).to(dtype))
    upstream.store((key_gradient * factor).to(dtype))
    value.store(value_gradient.to(dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(gradients, [row, channel], query)
    tma.async_copy_shared_to_global(gradients, [row, channel + INNER], upstream)
    tma.async_copy_shared_to_global(gradients, [row, channel + 2 * INNER], value)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["bias_rows"])
def row_gradients_kernel(
    projected, upstream, bias, gradients, maximum, delta, bias_rows, scale, HEADS: gl.constexpr
):
    """Write dQ, dK and dV of one head and row.

    Descriptors: projected [M*L, 4*H*D] and upstream [M*L, H*D] in tiles [LENGTH, WIDTH], bias [S*H*L, L],
    transposed, in tiles [LENGTH, QUERIES], gradients [M*L, 4*H*D] in tiles [KEYS, WIDTH]; maximum and delta
    are [M, H, L]. The scale includes log2 e.
    """
    INNER: gl.constexpr = HEADS * WIDTH
    operands, tiles = allocate_buffers(projected, 4), allocate_buffers(bias, BLOCKS)
    loaded, tiles_full = allocate_barriers(1, 4), allocate_barriers(BLOCKS, 1)
    all_done = allocate_barriers(1, GROUPS)
    fence_async_shared()
    head = gl.program_id(0) % HEADS
    row = gl.program_id(0) // HEADS
    start = row * LENGTH
    channel = head * WIDTH
    bias_start = (row // bias_rows * HEADS + head) * LENGTH
    for k in gl.static_range(3):
        load_tile(projected, (start, channel + k * INNER), loaded.index(0), operands.index(k))
    load_tile(upstream, (start, channel), loaded.index(0), operands.index(3))
    for block in gl.static_range(BLOCKS):
        load_tile(bias, (bias_start, block * QUERIES), tiles_full.index(block), tiles.index(block))
    buffers = (operands, tiles)
    barriers = (loaded.index(0), tiles_full, all_done.index(0))
    statistics = (maximum + gl.program_id(0) * LENGTH, delta + gl.program_id(0) * LENGTH)
    inputs = (buffers, barriers, statistics, gradients, scale, start, channel)
    gl.warp_specialize(
        [
            (_compute_group, (0, inputs, INNER)),
            (_compute_group, (1, inputs, INNER)),
            (_compute_group, (2, inputs, INNER)),
            (_compute_group, (3, inputs, INNER)),
        ],
        [4, 4, 4],
        [REGISTERS, REGISTERS, REGISTERS],
    )


def write_gradients(inputs: GradientInputs) -> tuple[bool, torch.Tensor | None]:
    """Compute the gradients that have a kernel for Hopper.

    These are dB for 16-byte aligned bfloat16 tensors of heads of 32 channels, a pair bias, a mask that all
    rows share, and a multiple of 128 positions from 256 on, and for 256 positions dQ, dK and dV too.

    Returns:
        Whether dQ, dK and dV were written, and dB [S, H, L, L] float32, or None.
    """
    projected, scaled, maximum, delta, mask, pair_bias, projected_gradient = inputs
    rows, heads, length = maximum.shape
    supported = (
        projected.dtype == torch.bfloat16
        and length % TILE.value == 0
        and length >= LENGTH.value
        and projected.shape[-1] == 4 * heads * WIDTH.value
        and is_shared(mask)
        and all(tma_aligned(x) for x in (projected, scaled, projected_gradient))
    )
    if not supported or pair_bias is None:
        return False, None
    whole_rows = length == LENGTH.value
    bias, transposed = masked_and_transposed(pair_bias, mask, whole_rows)
    if transposed is not None:
        tile = (LENGTH.value, WIDTH.value)
        row_gradients_kernel[(rows * heads,)](
            tile_descriptor(projected.flatten(0, 1), *tile),
            tile_descriptor(scaled.flatten(0, 1), *tile),
            tile_descriptor(transposed.view(-1, length), LENGTH.value, QUERIES.value),
            tile_descriptor(projected_gradient.flatten(0, 1), KEYS.value, WIDTH.value),
            maximum,
            delta,
            rows // len(pair_bias),
            WIDTH.value**-0.5 * LOG2_E.value,
            HEADS=heads,
            num_warps=4,
            maxnreg=REGISTERS.value,
        )
    return whole_rows, sum_bias_gradients(projected, scaled, maximum, delta, bias)
