"""What both of Hopper's kernels of the triangle multiplication do with tiles.

One program a multiprocessor keeps all weights in shared memory. Its three groups of four warps share nothing
else: each goes from tile to tile of 64 positions of a row, and has its next tile on the way as soon as this
one is in registers, so that one group's products and copies run while another normalises or gates. Channels
last become channels first, and the other way round, on the way between registers and shared memory.

What `cuda.fused.hopper_rows` says of rows holds for positions; the halves that gates are taken of are folded
into weights and biases too.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from cuda.fused.triangle_multiplication.folding import CHUNK as WEIGHT_CHUNK

GROUPS = gl.constexpr(3)
POSITIONS = gl.constexpr(64)
CHUNK = gl.constexpr(WEIGHT_CHUNK)
# of each thread; three groups of 128 have 65,536
REGISTERS = gl.constexpr(168)


@gluon.jit
def gated(values, gates):
    """Twice values times sigmoid(twice gates), of float32: values (1 + tanh(gates)).

    One special function where the sigmoid takes an exponential and a reciprocal. PTX promises 11 bits of the
    tangent, not of small gates; those were seen to be exact enough as well, and a test holds it to that.
    """
    return gl.inline_asm_elementwise(
        """{
            .reg .f32 t;
            tanh.approx.f32 t, $2;
            fma.rn.f32 $0, t, $1, $1;
        }""",
        "=f,f,f",
        [values, gates],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def opened(gates):
    """Sigmoid of twice gates, of float32: (1 + tanh(gates)) / 2."""
    return gl.inline_asm_elementwise(
        """{
            .reg .f32 t;
            tanh.approx.f32 t, $1;
            fma.rn.f32 $0, t, 0f3F000000, 0f3F000000;  // 1 / 2
        }""",
        "=f,f",
        [gates],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def halves(both):
    """[R, 2 * CHUNK] as its left and its right half, which a thread has its parts of anyway."""
    return both.reshape([both.shape[0], 2, CHUNK]).permute([0, 2, 1]).split()


@gluon.jit
def rows_of(x, like):
    """x [R] as [R, 1] to go with a tile [R, N] that has the same rows in each thread."""
    return gl.convert_layout(x, gl.SliceLayout(1, like.type.layout), assert_trivial=True)[:, None]


@gluon.jit
def store_channels(values, out, channel, row, first, buffer):
    """Start to store [POSITIONS, CHUNK] to [M, N, N] from a row's first position on.

    By way of one buffer of two that are used by turns.
    """
    tma.store_wait(1)
    buffer.reshape([CHUNK, POSITIONS]).permute([1, 0]).store(values.to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [channel, row, first], buffer)


@gluon.jit
def copy_channels(channels, channel, row, first, ready, buffer):
    """Start to copy a tile of [M, N, N] from a channel on, and from a row's first position on."""
    mbarrier.expect(ready, channels.block_type.nbytes)
    tma.async_copy_global_to_shared(channels, [channel, row, first], ready, buffer)
