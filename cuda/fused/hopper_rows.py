"""What kernels in Gluon share that keep all weights of a program in shared memory and normalise rows.

A group of four warps has its next tile of rows on the way as soon as this one is in registers, where it is
the left operand of products. LayerNorm is split around a product: rows are centred before it and divided by
their deviation after it; its scale and offset are folded into weights and bias (`cuda.fused.folding`).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def centred_rows(x, epsilon, CHANNELS: gl.constexpr, ROWS: gl.constexpr):
    """Rows [R, C] less their means, in their dtype, and 1 / deviation in layout ROWS [R]."""
    wide = x.to(gl.float32)
    mean = gl.sum(wide, 1) / CHANNELS
    centred = wide - mean[:, None]
    scale = gl.rsqrt(gl.sum(centred * centred, 1) / CHANNELS + epsilon)
    return centred.to(x.dtype), gl.convert_layout(scale, ROWS, assert_trivial=True)


@gluon.jit
def scaled(product, scale, bias):
    """Product [R, N] times scale [R] plus bias [N]."""
    return gl.fma(
        product,
        gl.expand_dims(scale, 1).broadcast_to(product.shape),
        gl.expand_dims(bias, 0).broadcast_to(product.shape),
    )


@gluon.jit
def buffers_of(tiles, COUNT: gl.constexpr):
    """Shared memory for COUNT tiles of a descriptor."""
    # Triton does not know stars
    shape: gl.constexpr = [COUNT] + tiles.block_type.shape  # noqa: RUF005
    return gl.allocate_shared_memory(tiles.dtype, shape, tiles.layout)


@gluon.jit
def copied_weights(packed, COUNT: gl.constexpr, ready, first=0):
    """COUNT tiles of the weights from a row on, on their way to shared memory until the barrier says so."""
    weights = buffers_of(packed, COUNT)
    ROWS: gl.constexpr = packed.block_type.shape[0]
    mbarrier.expect(ready, COUNT * packed.block_type.nbytes)
    for k in gl.static_range(COUNT):
        tma.async_copy_global_to_shared(packed, [first + k * ROWS, 0], ready, weights.index(k))
    return weights


@gluon.jit
def copy_positions(x, tile, across, ready, buffer):
    """Start to copy a tile of x [A, B, C]."""
    POSITIONS: gl.constexpr = x.block_type.shape[1]
    mbarrier.expect(ready, x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [tile // across, tile % across * POSITIONS, 0], ready, buffer)
