"""Operands and result of the triangle multiplication by Hopper's asynchronous products and copies of tiles.

One program a multiprocessor keeps all weights in shared memory. Its three groups of four warps share nothing
else: each goes from tile to tile of 64 positions of a row, and has its next tile on the way as soon as this
one is in registers, so that one group's products and copies run while another normalises or gates. Channels
last become channels first, and the other way round, on the way between registers and shared memory.

LayerNorm is split around the product: rows are centred before it and divided by their deviation after it.
Its scale and offset, and what the gate needs of its exponent, are folded into weights and biases.
"""

from functools import cache

import torch
import triton
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
from cuda.fused.triangle_multiplication.folding import CHUNK as WEIGHT_CHUNK
from cuda.fused.triangle_multiplication.folding import Folded

GROUPS = gl.constexpr(3)
POSITIONS = gl.constexpr(64)
CHUNK = gl.constexpr(WEIGHT_CHUNK)
REGISTERS = gl.constexpr(168)


@gluon.jit
def _gated(values, exponents):
    """values / (1 + 2^exponents) of float32; Triton's own takes three times the instructions."""
    return gl.inline_asm_elementwise(
        """{
            .reg .f32 t;
            ex2.approx.ftz.f32 t, $2;
            add.f32 t, t, 0f3F800000;  // 1
            rcp.approx.ftz.f32 t, t;
            mul.f32 $0, t, $1;
        }""",
        "=f,f,f",
        [values, exponents],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def _centred(x, epsilon, CHANNELS: gl.constexpr, ROWS: gl.constexpr):
    """Rows [R, C] less their means, in their dtype, and 1 / deviation in layout ROWS [R]."""
    wide = x.to(gl.float32)
    mean = gl.sum(wide, 1) / CHANNELS
    centred = wide - mean[:, None]
    scale = gl.rsqrt(gl.sum(centred * centred, 1) / CHANNELS + epsilon)
    return centred.to(x.dtype), gl.convert_layout(scale, ROWS, assert_trivial=True)


@gluon.jit
def _scaled(product, scale, bias):
    """Product [R, N] times scale [R] plus bias [N]."""
    return gl.fma(
        product,
        gl.expand_dims(scale, 1).broadcast_to(product.shape),
        gl.expand_dims(bias, 0).broadcast_to(product.shape),
    )


@gluon.jit
def _barriers(COUNT: gl.constexpr):
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for k in gl.static_range(COUNT):
        mbarrier.init(barriers.index(k), count=1)
    return barriers


@gluon.jit
def _buffers(tiles, COUNT: gl.constexpr):
    """Shared memory for COUNT tiles of a descriptor."""
    # Triton does not know stars
    shape: gl.constexpr = [COUNT] + tiles.block_type.shape  # noqa: RUF005
    return gl.allocate_shared_memory(tiles.dtype, shape, tiles.layout)


@gluon.jit
def _copied_weights(packed, COUNT: gl.constexpr, ready):
    """COUNT tiles of the weights in shared memory, on their way there until the barrier says so."""
    weights = _buffers(packed, COUNT)
    ROWS: gl.constexpr = packed.block_type.shape[0]
    mbarrier.expect(ready, COUNT * packed.block_type.nbytes)
    for k in gl.static_range(COUNT):
        tma.async_copy_global_to_shared(packed, [k * ROWS, 0], ready, weights.index(k))
    return weights


@gluon.jit
def _copy_positions(x, tile, across, ready, buffer):
    """Start to copy a tile of x [N, N, C]."""
    mbarrier.expect(ready, x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [tile // across, tile % across * POSITIONS, 0], ready, buffer)


@gluon.jit
def _copy_channels(product, tile, across, ready, buffer):
    """Start to copy a tile of the product [M, N, N]."""
    mbarrier.expect(ready, product.block_type.nbytes)
    tma.async_copy_global_to_shared(product, [0, tile // across, tile % across * POSITIONS], ready, buffer)


@gluon.jit
def _operands_of_group(
    GROUP: gl.constexpr,
    x,
    out,
    bias,
    mask,
    mask_strides,
    buffers,
    barriers,
    length,
    padded,
    MASKED: gl.constexpr,
):
    weights, x_tiles, out_tiles = buffers
    BLOCK: gl.constexpr = weights.shape[1]
    CHANNELS: gl.constexpr = weights.shape[2]
    # channels of both factors
    WIDTH: gl.constexpr = weights.shape[0] * CHUNK
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    x_tile, x_ready = x_tiles.index(GROUP), barriers.index(GROUP)
    local = gl.arange(0, POSITIONS, ROWS)
    columns = gl.arange(0, BLOCK, gl.SliceLayout(0, PRODUCT))
    across = (padded + POSITIONS - 1) // POSITIONS
    tiles = padded * across
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    buffer = 0
    if tile < tiles:
        _copy_positions(x, tile, across, x_ready, x_tile)
    mbarrier.wait(barriers.index(GROUPS), 0)
    while tile < tiles:
        row = tile // across
        first = tile % across * POSITIONS
        kept = None
        if MASKED:
            column = first + local
            real = (row < length) & (column < length)
            if mask is None:
                kept = real.to(gl.float32)
            else:
                place = row.to(gl.int64) * mask_strides[0] + column.to(gl.int64) * mask_strides[1]
                kept = gl.load(mask + place, mask=real, other=0.0).to(gl.float32)
        mbarrier.wait(x_ready, phase)
        phase ^= 1
        raw = x_tile.reshape([POSITIONS, CHANNELS]).load(OPERAND)
        tile += gl.num_programs(0) * GROUPS
        if tile < tiles:
            # all warps have read theirs
            gl.thread_barrier()
            _copy_positions(x, tile, across, x_ready, x_tile)
        centred, scale = _centred(raw, EPSILON, CHANNELS, ROWS)
        for channel in range(0, WIDTH, CHUNK):
            chunk = channel // CHUNK
            added = gl.load(bias + chunk * BLOCK + columns)
            both = gl.zeros([POSITIONS, BLOCK], gl.float32, PRODUCT)
            both = warpgroup_mma(
                centred, weights.index(chunk).permute([1, 0]), both, use_acc=False, is_async=True
            )
            both, _ = warpgroup_mma_wait(0, deps=[both, centred])
            both = _scaled(both, scale, added)
            values, exponents = both.reshape([POSITIONS, 2, CHUNK]).permute([0, 2, 1]).split()
            values = _gated(values, exponents)
            if MASKED:
                values *= gl.convert_layout(kept, gl.SliceLayout(1, values.type.layout), assert_trivial=True)[
                    :, None
                ]
            # the store before the last has left its buffer
            tma.store_wait(1)
            out_tile = out_tiles.index(2 * GROUP + buffer)
            out_tile.reshape([CHUNK, POSITIONS]).permute([1, 0]).store(values.to(out.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(out, [channel, row, first], out_tile)
            buffer ^= 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["mask_strides", "length", "padded"])
def _operands(
    x, packed, bias, mask, mask_strides, out, length, padded, WIDTH: gl.constexpr, MASKED: gl.constexpr
):  # fmt: skip
    """(LN(x) W + b) ⊙ sigmoid(LN(x) G + c) ⊙ mask, left then right, to out [2*M, padded, padded].

    x [N, N, C] is a descriptor of tiles [1, POSITIONS, C], packed one of tiles [2 * CHUNK, C] of `Folded`,
    out one of tiles [CHUNK, 1, POSITIONS]. MASKED says that there is a mask [N, N] or that N is padded.
    """
    barriers = _barriers(GROUPS + 1)
    x_tiles = _buffers(x, GROUPS)
    out_tiles = _buffers(out, 2 * GROUPS)
    fence_async_shared()
    weights = _copied_weights(packed, 2 * WIDTH // CHUNK, barriers.index(GROUPS))
    buffers = (weights, x_tiles, out_tiles)
    gl.warp_specialize(
        [
            (
                _operands_of_group,
                (0, x, out, bias, mask, mask_strides, buffers, barriers, length, padded, MASKED),
            ),
            (
                _operands_of_group,
                (1, x, out, bias, mask, mask_strides, buffers, barriers, length, padded, MASKED),
            ),
            (
                _operands_of_group,
                (2, x, out, bias, mask, mask_strides, buffers, barriers, length, padded, MASKED),
            ),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )


@gluon.jit
def _finish_of_group(
    GROUP: gl.constexpr, product, x, bias, result, buffers, barriers, length, ADD: gl.constexpr
):
    weights, product_tiles, x_tiles, result_tiles = buffers
    CHANNELS: gl.constexpr = weights.shape[2]
    CHUNKS: gl.constexpr = CHANNELS // CHUNK
    PRODUCT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, PRODUCT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCT)
    x_tile, x_ready = x_tiles.index(GROUP), barriers.index(GROUP)
    product_tile, product_ready = product_tiles.index(GROUP), barriers.index(GROUPS + GROUP)
    # chunks of 128 bytes lie behind each other, as they do in one tile of all channels
    WHOLE: gl.constexpr = gl.NVMMASharedLayout(128, 16)
    whole = result_tiles.index(GROUP * CHUNKS)._reinterpret(result.dtype, [POSITIONS, CHANNELS], WHOLE)
    columns = gl.arange(0, CHUNK, gl.SliceLayout(0, PRODUCT))
    across = (length + POSITIONS - 1) // POSITIONS
    tiles = length * across
    tile = gl.program_id(0) * GROUPS + GROUP
    phase = 0
    if tile < tiles:
        _copy_channels(product, tile, across, product_ready, product_tile)
        _copy_positions(x, tile, across, x_ready, x_tile)
    mbarrier.wait(barriers.index(2 * GROUPS), 0)
    while tile < tiles:
        row = tile // across
        first = tile % across * POSITIONS
        tile += gl.num_programs(0) * GROUPS
        mbarrier.wait(product_ready, phase)
        raw = product_tile.reshape([CHANNELS, POSITIONS]).permute([1, 0]).load(OPERAND)
        if tile < tiles:
            # all warps have read theirs
            gl.thread_barrier()
            _copy_channels(product, tile, across, product_ready, product_tile)
        centred, scale = _centred(raw, EPSILON, CHANNELS, ROWS)
        tma.store_wait(0)
        mbarrier.wait(x_ready, phase)
        phase ^= 1
        x_raw = x_tile.reshape([POSITIONS, CHANNELS]).load(OPERAND)
        if ADD:
            whole.store(x_raw)
        if tile < tiles:
            gl.thread_barrier()
            _copy_positions(x, tile, across, x_ready, x_tile)
        x_centred, x_scale = _centred(x_raw, EPSILON, CHANNELS, ROWS)
        for channel in range(0, CHANNELS, CHUNK):
            chunk = channel // CHUNK
            added = gl.load(bias + 2 * channel + columns)
            exponents_added = gl.load(bias + 2 * channel + CHUNK + columns)
            update = gl.zeros([POSITIONS, CHUNK], gl.float32, PRODUCT)
            update = warpgroup_mma(
                centred, weights.index(2 * chunk).permute([1, 0]), update, use_acc=False, is_async=True
            )
            exponents = gl.zeros([POSITIONS, CHUNK], gl.float32, PRODUCT)
            exponents = warpgroup_mma(
                x_centred,
                weights.index(2 * chunk + 1).permute([1, 0]),
                exponents,
                use_acc=False,
                is_async=True,
            )
            update, exponents, _, _ = warpgroup_mma_wait(0, deps=[update, exponents, centred, x_centred])
            update = _gated(_scaled(update, scale, added), _scaled(exponents, x_scale, exponents_added))
            result_tile = result_tiles.index(GROUP * CHUNKS + chunk)
            part = result_tile.reshape([POSITIONS, CHUNK])
            if ADD:
                update += part.load(PRODUCT).to(gl.float32)
            part.store(update.to(result.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(result, [row, first, channel], result_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["length"])
def _finish(product, x, packed, bias, result, length, ADD: gl.constexpr):
    """sigmoid(LN(x) G + c) ⊙ (the projection of LN(product [C, N, N])), to result [N, N, C].

    ADD adds x [N, N, C], which may be the result. product is a descriptor of tiles [C, 1, POSITIONS], x one
    of tiles [1, POSITIONS, C], packed one of tiles [CHUNK, C] of `Folded`, result one of tiles
    [1, POSITIONS, CHUNK].
    """
    barriers = _barriers(2 * GROUPS + 1)
    CHUNKS: gl.constexpr = x.block_type.shape[2] // CHUNK
    product_tiles = _buffers(product, GROUPS)
    x_tiles = _buffers(x, GROUPS)
    result_tiles = _buffers(result, GROUPS * CHUNKS)
    fence_async_shared()
    weights = _copied_weights(packed, 2 * CHUNKS, barriers.index(2 * GROUPS))
    buffers = (weights, product_tiles, x_tiles, result_tiles)
    gl.warp_specialize(
        [
            (_finish_of_group, (0, product, x, bias, result, buffers, barriers, length, ADD)),
            (_finish_of_group, (1, product, x, bias, result, buffers, barriers, length, ADD)),
            (_finish_of_group, (2, product, x, bias, result, buffers, barriers, length, ADD)),
        ],
        [4, 4],
        [REGISTERS, REGISTERS],
    )


def suits(pair: torch.Tensor, width: int) -> bool:
    """Whether the kernels take a pair representation [N, N, C] and so many channels of the product.

    The copy engine wants rows of 16 bytes, and all weights have to fit in shared memory.
    """
    return (
        pair.dtype == torch.bfloat16
        and pair.shape[-1] == width
        and width in (64, 128)
        and pair.numel() > 0
        and pair.data_ptr() % 16 == 0
        and all(stride % 8 == 0 and stride > 0 for stride in pair.stride()[:2])
    )


def operands(pair: torch.Tensor, folded: Folded, mask: torch.Tensor | None, padded: int) -> torch.Tensor:
    """Left and right factor of pair [N, N, C] under mask [N, N]: [2*M, padded, padded], zero past N."""
    length, _, channels = pair.shape
    width = folded.operands.shape[0] // 4
    out = pair.new_empty(2 * width, padded, padded)
    tiles = padded * triton.cdiv(padded, POSITIONS.value)
    _operands[(programs(pair, triton.cdiv(tiles, GROUPS.value), 1),)](
        _tiles(pair, 1, POSITIONS.value, channels),
        _tiles(folded.operands, 2 * CHUNK.value, channels),
        folded.operands_bias,
        mask,
        (0, 0) if mask is None else mask.stride(),
        _tiles(out, CHUNK.value, 1, POSITIONS.value),
        length,
        padded,
        WIDTH=width,
        MASKED=mask is not None or padded != length,
        num_warps=4,
    )
    return out


def finish(
    product: torch.Tensor, folded: Folded, pair: torch.Tensor, result: torch.Tensor, add: bool
) -> None:
    """Write the update of pair [N, N, C] by the product [C, padded, padded], with pair added if wished.

    The result may be pair.
    """
    length, _, channels = pair.shape
    tiles = length * triton.cdiv(length, POSITIONS.value)
    _finish[(programs(pair, triton.cdiv(tiles, GROUPS.value), 1),)](
        _tiles(product, channels, 1, POSITIONS.value),
        _tiles(pair, 1, POSITIONS.value, channels),
        _tiles(folded.finish, CHUNK.value, channels),
        folded.finish_bias,
        _tiles(result, 1, POSITIONS.value, CHUNK.value),
        length,
        ADD=add,
        num_warps=4,
    )


@cache
def _layout(block: tuple[int, ...]) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for(list(block), gl.bfloat16)


def _tiles(x: torch.Tensor, *block: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(x, list(block), _layout(block))
