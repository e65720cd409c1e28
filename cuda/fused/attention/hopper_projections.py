"""LayerNorm and the projections to queries, keys, values and gates in one kernel, on Hopper.

A program stays on its multiprocessor and keeps the weights of a block of columns in shared memory. Its two
groups of four warps share nothing else: each goes from tile to tile of 64 positions, so that one group's
products run while the other normalises or stores. Where the weights are more than one block, as many programs
read the same positions at a time, all but one of them from the L2 cache.
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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from cuda.fused.attention.reference import AttentionWeights
from cuda.fused.blocks import EPSILON, programs
from cuda.fused.folding import without_norm
from cuda.fused.hopper import can_be_copied
from cuda.fused.hopper_rows import (
    buffers_of,
    centred_rows,
    copied_weights,
    copy_positions,
    scaled,
)
from cuda.fused.hopper_tiles import barriers as barriers_of
from cuda.fused.hopper_tiles import tiled
from cuda.fused.packing import remembered

GROUPS = gl.constexpr(2)
POSITIONS = gl.constexpr(64)
# columns of a product
CHUNK = gl.constexpr(128)
# registers a thread: two groups of 128 have 65,536
REGISTERS = gl.constexpr(240)
# by channels: columns of a program, and tiles of results of a group that there is room for
LAUNCHES = {64: (256, 2), 128: (512, 2), 256: (256, 1)}


@gluon.jit
def _project_of_group(
    GROUP: gl.constexpr, x, out, bias, buffers, barriers, sizes, BLOCKS: gl.constexpr
):  # fmt: skip
    """One group's tiles."""
    tiles, across = sizes
    weights, x_tiles, out_tiles = buffers
    CHUNKS: gl.constexpr = weights.shape[0]
    CHANNELS: gl.constexpr = weights.shape[2]
    OUTS: gl.constexpr = out_tiles.shape[0] // GROUPS
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    x_tile, x_ready = x_tiles.index(GROUP), barriers.index(GROUP)
    local = gl.arange(0, CHUNK, gl.SliceLayout(0, PRODUCT))
    begin = gl.program_id(0) % BLOCKS * (CHUNKS * CHUNK)
    tile = gl.program_id(0) // BLOCKS * GROUPS + GROUP
    phase = 0
    buffer = 0
    if tile < tiles:
        copy_positions(x, tile, across, x_ready, x_tile)
    mbarrier.wait(barriers.index(GROUPS), 0)
    while tile < tiles:
        row = tile // across
        first = tile % across * POSITIONS
        mbarrier.wait(x_ready, phase)
        phase ^= 1
        raw = x_tile.reshape([POSITIONS, CHANNELS]).load(OPERAND)
        tile += gl.num_programs(0) // BLOCKS * GROUPS
        if tile < tiles:
            # all warps have read theirs
            gl.thread_barrier()
            copy_positions(x, tile, across, x_ready, x_tile)
        centred, scale = centred_rows(raw, EPSILON, CHANNELS, ROWS)
        for chunk in range(CHUNKS):
            column = begin + chunk * CHUNK
            added = gl.load(bias + column + local)
            product = gl.zeros([POSITIONS, CHUNK], gl.float32, PRODUCT)
            product = warpgroup_mma(
                centred, weights.index(chunk).permute([1, 0]), product, use_acc=False, is_async=True
            )
            product, _ = warpgroup_mma_wait(0, deps=[product, centred])
            # what this buffer held has left it
            tma.store_wait(OUTS - 1)
            out_tile = out_tiles.index(OUTS * GROUP + buffer)
            out_tile.reshape([POSITIONS, CHUNK]).store(scaled(product, scale, added).to(out.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(out, [row, first, column], out_tile)
            buffer = (buffer + 1) % OUTS
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["tiles", "across"])
def project_kernel(
    x, packed, bias, out, tiles, across, BLOCKS: gl.constexpr, COLUMNS: gl.constexpr, OUTS: gl.constexpr
):  # fmt: skip
    """LN(x) W to out [A, B, M], by programs that take one of BLOCKS blocks of COLUMNS columns each.

    x [A, B, C] is a descriptor of tiles [1, POSITIONS, C], of which there are so many, `across` in a row;
    packed one of tiles [CHUNK, C] of W's columns, out one of tiles [1, POSITIONS, CHUNK].
    """
    barriers = barriers_of(GROUPS + 1, 1)
    x_tiles = buffers_of(x, GROUPS)
    out_tiles = buffers_of(out, OUTS * GROUPS)
    fence_async_shared()
    begin = gl.program_id(0) % BLOCKS * COLUMNS
    weights = copied_weights(packed, COLUMNS // CHUNK, barriers.index(GROUPS), begin)
    buffers = (weights, x_tiles, out_tiles)
    sizes = (tiles, across)
    gl.warp_specialize(
        [
            (_project_of_group, (0, x, out, bias, buffers, barriers, sizes, BLOCKS)),
            (_project_of_group, (1, x, out, bias, buffers, barriers, sizes, BLOCKS)),
        ],
        [4],
        [REGISTERS],
    )


def suits(x: torch.Tensor, columns: int) -> bool:
    """Whether the kernel takes x [A, B, C] and so many columns of weights."""
    channels = x.shape[-1]
    return (
        x.dtype == torch.bfloat16
        and channels in LAUNCHES
        and columns % LAUNCHES[channels][0] == 0
        and x.numel() > 0
        and can_be_copied(x)
    )


def project(x: torch.Tensor, weights: AttentionWeights) -> torch.Tensor:
    """LN(x) times the weights of queries, keys, values and gates.

    Args:
        x: [A, B, C], bfloat16, which `suits`.
        weights: the layer's parameters.

    Returns:
        [A, B, 4*H*D], contiguous.
    """
    packed, bias = _prepared(weights)
    channels = x.shape[-1]
    columns, outs = LAUNCHES[channels]
    out = x.new_empty(*x.shape[:-1], len(bias))
    if x.is_contiguous():
        # no tile is less than whole but the last
        x = x.view(1, -1, channels)
    across = -(-x.shape[1] // POSITIONS.value)
    tiles = x.shape[0] * across
    blocks = len(bias) // columns
    count = programs(x, -(-tiles // GROUPS.value) * blocks, 1)
    project_kernel[(max(count // blocks, 1) * blocks,)](
        tiled(x, 1, POSITIONS.value, channels),
        packed,
        bias,
        tiled(out.view(*x.shape[:-1], -1), 1, POSITIONS.value, CHUNK.value),
        tiles,
        across,
        BLOCKS=blocks,
        COLUMNS=columns,
        OUTS=outs,
        num_warps=4,
    )
    return out


def _prepared(weights: AttentionWeights) -> tuple[TensorDescriptor, torch.Tensor]:
    """Tiles of the four weights' columns, LayerNorm's scale folded in, and what its offset adds [4*H*D]."""
    used = weights[:6]
    return remembered("Hopper's projections", used, lambda: _prepare(*used))


def _prepare(
    norm_scale: torch.Tensor, norm_offset: torch.Tensor, *four: torch.Tensor
) -> tuple[TensorDescriptor, torch.Tensor]:
    together = torch.cat([w.flatten(1) for w in four], dim=1)
    folded, bias = without_norm(norm_scale, norm_offset, together)
    return tiled(folded.bfloat16().contiguous(), CHUNK.value, together.shape[0]), bias
