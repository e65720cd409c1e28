"""LayerNorm and the projections to queries, keys, values and gates in one kernel for Hopper GPUs.

Programs are persistent and keep the weights of a block of columns in shared memory. The two warpgroups of a
program share only these: each processes tiles of 64 positions in turn, so that the products of one group run
while the other normalises or stores. If the weights have several blocks, one program per block reads the same
positions at the same time, and all but the first of them from the L2 cache.
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
from cuda.fused.rows import EPSILON
from cuda.fused.weights import cached_weights, fold_layer_norm

GROUPS = gl.constexpr(2)
POSITIONS = gl.constexpr(64)
# columns of a product
CHUNK = gl.constexpr(128)
# per thread; two groups of 128 threads share 65,536
REGISTERS = gl.constexpr(240)
# by channels: columns of a program, and result tiles of a group in shared memory
LAUNCHES = {64: (256, 2), 128: (512, 2), 256: (256, 1)}


@gluon.jit
def _project_group(
    GROUP: gl.constexpr, x, out, bias, buffers, barriers, sizes, BLOCKS: gl.constexpr
):  # fmt: skip
    """Compute the tiles of one warpgroup."""
    tiles, tiles_per_row = sizes
    weights, x_tiles, out_tiles = buffers
    CHUNKS: gl.constexpr = weights.shape[0]
    CHANNELS: gl.constexpr = weights.shape[2]
    OUT_TILES: gl.constexpr = out_tiles.shape[0] // GROUPS
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    x_tile, x_full = x_tiles.index(GROUP), barriers.index(GROUP)
    local = gl.arange(0, CHUNK, gl.SliceLayout(0, PRODUCT))
    begin = gl.program_id(0) % BLOCKS * (CHUNKS * CHUNK)
    tile = gl.program_id(0) // BLOCKS * GROUPS + GROUP
    phase = 0
    buffer = 0
    if tile < tiles:
        load_positions(x, tile, tiles_per_row, x_full, x_tile)
    mbarrier.wait(barriers.index(GROUPS), 0)
    while tile < tiles:
        row = tile // tiles_per_row
        first = tile % tiles_per_row * POSITIONS
        mbarrier.wait(x_full, phase)
        phase ^= 1
        raw = x_tile.reshape([POSITIONS, CHANNELS]).load(OPERAND)
        tile += gl.num_programs(0) // BLOCKS * GROUPS
        if tile < tiles:
            # all warps of the group must have read the buffer before it is filled again
            gl.thread_barrier()
            load_positions(x, tile, tiles_per_row, x_full, x_tile)
        centred, scale = centre_rows(raw, EPSILON, CHANNELS, ROWS)
        for chunk in range(CHUNKS):
            column = begin + chunk * CHUNK
            shift = gl.load(bias + column + local)
            product = gl.zeros([POSITIONS, CHUNK], gl.float32, PRODUCT)
            product = warpgroup_mma(
                centred, weights.index(chunk).permute([1, 0]), product, use_acc=False, is_async=True
            )
            product, _ = warpgroup_mma_wait(0, deps=[product, centred])
            # the previous tile of this buffer has been stored
            tma.store_wait(OUT_TILES - 1)
            out_tile = out_tiles.index(OUT_TILES * GROUP + buffer)
            out_tile.reshape([POSITIONS, CHUNK]).store(scale_and_shift(product, scale, shift).to(out.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(out, [row, first, column], out_tile)
            buffer = (buffer + 1) % OUT_TILES
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["tiles", "tiles_per_row"])
def project_kernel(
    x, packed, bias, out, tiles, tiles_per_row, BLOCKS: gl.constexpr, COLUMNS: gl.constexpr,
    OUT_TILES: gl.constexpr,
):  # fmt: skip
    """Write LN(x) W to out [A, B, M]; each program computes one of BLOCKS blocks of COLUMNS columns.

    Descriptors: x [A, B, C] in tiles [1, POSITIONS, C], `tiles_per_row` for each of A; packed columns of W in
    tiles [CHUNK, C]; out in tiles [1, POSITIONS, CHUNK].
    """
    barriers = allocate_barriers(GROUPS + 1, 1)
    x_tiles = allocate_buffers(x, GROUPS)
    out_tiles = allocate_buffers(out, OUT_TILES * GROUPS)
    fence_async_shared()
    begin = gl.program_id(0) % BLOCKS * COLUMNS
    weights = load_weights(packed, COLUMNS // CHUNK, barriers.index(GROUPS), begin)
    buffers = (weights, x_tiles, out_tiles)
    sizes = (tiles, tiles_per_row)
    gl.warp_specialize(
        [
            (_project_group, (0, x, out, bias, buffers, barriers, sizes, BLOCKS)),
            (_project_group, (1, x, out, bias, buffers, barriers, sizes, BLOCKS)),
        ],
        [4],
        [REGISTERS],
    )


def supports(x: torch.Tensor, columns: int) -> bool:
    """Return whether the kernel supports x [A, B, C] and a number of columns of weights."""
    channels = x.shape[-1]
    return (
        x.dtype == torch.bfloat16
        and channels in LAUNCHES
        and columns % LAUNCHES[channels][0] == 0
        and x.numel() > 0
        and tma_aligned(x)
    )


def project(x: torch.Tensor, weights: AttentionWeights) -> torch.Tensor:
    """Compute LN(x) times the weights of queries, keys, values and gates.

    Args:
        x: [A, B, C], bfloat16, which the kernel `supports`.
        weights: the layer's parameters.

    Returns:
        [A, B, 4*H*D], contiguous.
    """
    used = weights[:6]
    packed, bias = cached_weights("Hopper projections", used, lambda: _pack(*used))
    channels = x.shape[-1]
    columns, out_tiles = LAUNCHES[channels]
    out = x.new_empty(*x.shape[:-1], len(bias))
    if x.is_contiguous():
        # as one row, so that only the last tile can be incomplete
        x = x.view(1, -1, channels)
    tiles_per_row = -(-x.shape[1] // POSITIONS.value)
    tiles = x.shape[0] * tiles_per_row
    blocks = len(bias) // columns
    count = program_count(x, -(-tiles // GROUPS.value) * blocks, 1)
    project_kernel[(max(count // blocks, 1) * blocks,)](
        tile_descriptor(x, 1, POSITIONS.value, channels),
        packed,
        bias,
        tile_descriptor(out.view(*x.shape[:-1], -1), 1, POSITIONS.value, CHUNK.value),
        tiles,
        tiles_per_row,
        BLOCKS=blocks,
        COLUMNS=columns,
        OUT_TILES=out_tiles,
        num_warps=4,
    )
    return out


def _pack(
    norm_scale: torch.Tensor, norm_offset: torch.Tensor, *projections: torch.Tensor
) -> tuple[TensorDescriptor, torch.Tensor]:
    """Return tiles of the weights with LayerNorm's scale folded in, and the bias [4*H*D] of its offset."""
    together = torch.cat([w.flatten(1) for w in projections], dim=1)
    folded, bias = fold_layer_norm(norm_scale, norm_offset, together)
    return tile_descriptor(folded.bfloat16().contiguous(), CHUNK.value, together.shape[0]), bias
