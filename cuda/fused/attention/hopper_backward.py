"""The gradients of queries, keys and values of gated attention with a pair bias on Hopper GPUs.

A program computes one head of one row of 256 positions, whose keys are divided between four warpgroups. All
operands fit in shared memory. A group goes through the queries in blocks of 32: it recomputes the softmax
weights P from a tile of the bias, adds to the gradients of its keys and values, and replaces the tile by dS.
When all groups are done, each computes the gradients of 64 queries from dS. For the formulas see
`triton_backward_kernels`. Logits are scaled in float32, as in `hopper_core`, instead of the queries before.
"""

from typing import Any

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

from cuda.fused.attention import triton_backward
from cuda.fused.attention.hopper_core import LOG2_E, LOGITS, WEIGHTS, WIDTH
from cuda.fused.attention.triton import is_shared, shared_penalty
from cuda.fused.attention.triton_backward import RowInputs
from cuda.fused.hopper_tiles import allocate_barriers, allocate_buffers, load_tile, tile_descriptor
from cuda.fused.launch import tma_aligned

# keys of a warpgroup, and queries of a block
KEYS = gl.constexpr(64)
QUERIES = gl.constexpr(32)
# warpgroups of a program
GROUPS = gl.constexpr(4)
REGISTERS = gl.constexpr(128)

# shared memory: two neighbouring tiles of 32 queries as one of 64
PAIR = gl.constexpr(gl.NVMMASharedLayout(64, 16, 2))


@gluon.jit
def _compute_group(GROUP: gl.constexpr, inputs, INNER: gl.constexpr):
    """Compute the gradients of one group's keys and values, then those of 64 queries."""
    buffers, barriers, statistics, gradients, scale, start, channel = inputs
    queries, keys, values, upstreams, tiles = buffers
    queries_full, keys_full, tiles_full, done = barriers
    maximum, delta = statistics
    dtype: gl.constexpr = queries.dtype
    key = keys.index(GROUP)
    value = values.index(GROUP)
    zeros = gl.zeros([KEYS, QUERIES], gl.float32, LOGITS)
    key_gradient = gl.zeros([KEYS, WIDTH], gl.float32, LOGITS)
    value_gradient = gl.zeros([KEYS, WIDTH], gl.float32, LOGITS)
    position = gl.arange(0, QUERIES, gl.SliceLayout(0, LOGITS))
    mbarrier.wait(keys_full.index(GROUP), 0)
    for block in range(2 * GROUPS):
        highest = gl.load(maximum + block * QUERIES + position) * LOG2_E
        offset = gl.load(delta + block * QUERIES + position)
        mbarrier.wait(queries_full.index(block // 2), 0)
        query = queries.index(block // 2)._reinterpret(dtype, [2, QUERIES, WIDTH], PAIR).index(block % 2)
        upstream = upstreams.index(block // 2)._reinterpret(dtype, [2, QUERIES, WIDTH], PAIR).index(block % 2)
        logits = warpgroup_mma(key, query.permute((1, 0)), zeros, use_acc=False, is_async=True)
        product = warpgroup_mma(value, upstream.permute((1, 0)), zeros, use_acc=False, is_async=True)
        mbarrier.wait(tiles_full.index(GROUP * GROUPS + block // 2), 0)
        tile = tiles.index(GROUP * 2 * GROUPS + block)
        shift = tile.load(LOGITS).to(gl.float32) * LOG2_E - highest[None, :]
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
    query_gradient = gl.zeros([KEYS, WIDTH], gl.float32, LOGITS)
    for group in gl.static_range(GROUPS):
        pair = tiles.index(group * 2 * GROUPS + 2 * GROUP)._reinterpret(dtype, [KEYS, 2 * QUERIES], PAIR)
        query_gradient = warpgroup_mma(pair.permute((1, 0)), keys.index(group), query_gradient, is_async=True)
    query_gradient = warpgroup_mma_wait(0, deps=[query_gradient])
    # no group reads queries, values and upstream gradients any more
    width: gl.constexpr = WIDTH
    factor: gl.constexpr = width**-0.5
    row = start + GROUP * KEYS
    queries.index(GROUP).store((query_gradient * factor).to(dtype))
    upstreams.index(GROUP).store((key_gradient * factor).to(dtype))
    value.store(value_gradient.to(dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(gradients, [row, channel], queries.index(GROUP))
    tma.async_copy_shared_to_global(gradients, [row, channel + INNER], upstreams.index(GROUP))
    tma.async_copy_shared_to_global(gradients, [row, channel + 2 * INNER], value)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["bias_rows"])
def row_gradients_kernel(
    projected, upstream, bias, gradients, maximum, delta, bias_rows, scale, HEADS: gl.constexpr
):
    """Write dQ, dK and dV of one head and row.

    Descriptors: projected and gradients [M*L, 4*H*D] and upstream [M*L, H*D] in tiles [KEYS, WIDTH], bias
    [S*H*L, L], transposed, in tiles [KEYS, QUERIES]; maximum and delta are [M, H, L]. The scale includes
    log2 e.
    """
    LENGTH: gl.constexpr = GROUPS * KEYS
    INNER: gl.constexpr = HEADS * WIDTH
    queries, keys = allocate_buffers(projected, GROUPS), allocate_buffers(projected, GROUPS)
    values, upstreams = allocate_buffers(projected, GROUPS), allocate_buffers(upstream, GROUPS)
    tiles = allocate_buffers(bias, 2 * GROUPS * GROUPS)
    queries_full, keys_full = allocate_barriers(GROUPS, 2), allocate_barriers(GROUPS, 2)
    tiles_full, all_done = allocate_barriers(GROUPS * GROUPS, 2), allocate_barriers(1, GROUPS)
    fence_async_shared()
    head = gl.program_id(0) % HEADS
    row = gl.program_id(0) // HEADS
    start = row * LENGTH
    channel = head * WIDTH
    bias_start = (row // bias_rows * HEADS + head) * LENGTH
    for group in gl.static_range(GROUPS):
        first = start + group * KEYS
        load_tile(projected, (first, channel + INNER), keys_full.index(group), keys.index(group))
        load_tile(projected, (first, channel + 2 * INNER), keys_full.index(group), values.index(group))
    for block in gl.static_range(GROUPS):
        first = start + block * KEYS
        load_tile(projected, (first, channel), queries_full.index(block), queries.index(block))
        load_tile(upstream, (first, channel), queries_full.index(block), upstreams.index(block))
        for group in gl.static_range(GROUPS):
            full = tiles_full.index(group * GROUPS + block)
            for half in gl.static_range(2):
                load_tile(
                    bias,
                    (bias_start + group * KEYS, block * KEYS + half * QUERIES),
                    full,
                    tiles.index((group * GROUPS + block) * 2 + half),
                )
    buffers = (queries, keys, values, upstreams, tiles)
    barriers = (queries_full, keys_full, tiles_full, all_done.index(0))
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


def write_row_gradients(inputs: RowInputs, launch: dict[str, Any]) -> None:
    """Write dQ, dK and dV; same arguments as `triton_backward.write_row_gradients`.

    That handles other dtypes and sizes, and masks that differ between rows.
    """
    projected, mask, pair_bias = inputs.projected, inputs.mask, inputs.pair_bias
    rows, heads, length = inputs.maximum.shape
    supported = (
        projected.dtype == torch.bfloat16
        and length == GROUPS.value * KEYS.value
        and projected.shape[-1] == 4 * heads * WIDTH.value
        and is_shared(mask)
        and all(tma_aligned(x) for x in (projected, inputs.scaled, inputs.projected_gradient))
    )
    if not supported or pair_bias is None:
        triton_backward.write_row_gradients(inputs, launch)
        return
    transposed = torch.empty(
        *pair_bias.shape[:2], length, length, dtype=pair_bias.dtype, device=pair_bias.device
    )
    if mask is None:
        transposed.copy_(pair_bias.mT)
    else:
        torch.add(pair_bias.mT, shared_penalty(mask, pair_bias.dtype)[:, None], out=transposed)
    tile, queries = (KEYS.value, WIDTH.value), (KEYS.value, QUERIES.value)
    row_gradients_kernel[(rows * heads,)](
        tile_descriptor(projected.view(rows * length, -1), *tile),
        tile_descriptor(inputs.scaled.view(rows * length, -1), *tile),
        tile_descriptor(transposed.view(-1, length), *queries),
        tile_descriptor(inputs.projected_gradient.view(rows * length, -1), *tile),
        inputs.maximum,
        inputs.delta,
        rows // len(pair_bias),
        WIDTH.value**-0.5 * LOG2_E.value,
        HEADS=heads,
        num_warps=4,
        maxnreg=REGISTERS.value,
    )
