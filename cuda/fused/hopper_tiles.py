"""Device functions of the Gluon kernels for Hopper: tiles in shared memory, barriers, rows in registers.

Warps are specialised. A loading warp copies tiles from device memory to a ring of buffers in shared memory,
and groups of four warps (warpgroups) compute from them. A buffer's "full" barrier completes a phase when all
bytes announced to it have arrived, its "empty" barrier when all warpgroups are done with the buffer.

LayerNorm is split around a product: rows are centred before it and divided by their standard deviation after
it. Scale and offset are folded into the weights (`cuda.fused.weights.fold_layer_norm`).
"""

from functools import lru_cache
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def tile_descriptor(x: torch.Tensor, *block: int) -> TensorDescriptor:
    """Return a descriptor with which Gluon copies tiles of a shape from and to a float16 or bfloat16 tensor.

    Tiles must start at multiples of 16 bytes (`cuda.fused.launch.tma_aligned`). Elements outside the tensor
    read as 0 and are not written.
    """
    descriptor = object.__new__(TensorDescriptor)
    descriptor.__dict__.update(_checked_fields(block, x.dtype, x.shape, x.stride()), base=x)
    return descriptor


@lru_cache(1024)
def _checked_fields(
    block: tuple[int, ...], dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> dict[str, Any]:
    """Return the fields of a descriptor; cached, since its constructor takes as long as a small kernel."""
    layout = gl.NVMMASharedLayout.get_default_for(list(block), TYPES[dtype])
    like = torch.empty_strided((1,) * len(shape), (1,) * len(shape), dtype=dtype)
    return vars(TensorDescriptor(like, list(shape), list(strides), list(block), layout))


@gluon.jit
def allocate_barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """Allocate COUNT barriers that each wait for ARRIVALS arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for k in gl.static_range(COUNT):
        mbarrier.init(barriers.index(k), ARRIVALS)
    return barriers


@gluon.jit
def allocate_buffers(descriptor, COUNT: gl.constexpr):
    """Allocate shared memory for COUNT tiles of a descriptor."""
    # Triton does not support unpacking in lists
    shape: gl.constexpr = [COUNT] + descriptor.block_type.shape  # noqa: RUF005
    return gl.allocate_shared_memory(descriptor.dtype, shape, descriptor.layout)


@gluon.jit
def load_tile(descriptor, start, full, buffer):
    """Start to copy the tile at index `start` to a buffer.

    Announces the tile's bytes to the barrier, which counts as one arrival.
    """
    mbarrier.expect(full, descriptor.block_type.nbytes)
    tma.async_copy_global_to_shared(descriptor, start, full, buffer)


@gluon.jit
def load_positions(x, tile, tiles_per_row, full, buffer):
    """Start to copy tile number `tile` of x [A, B, C], counted along B first, with all channels."""
    ROWS: gl.constexpr = x.block_type.shape[0]
    COLUMNS: gl.constexpr = x.block_type.shape[1]
    mbarrier.expect(full, x.block_type.nbytes)
    # computed after the announcement, which need not wait for the division
    row, column = tile // tiles_per_row * ROWS, tile % tiles_per_row * COLUMNS
    tma.async_copy_global_to_shared(x, [row, column, 0], full, buffer)


@gluon.jit
def load_weights(packed, COUNT: gl.constexpr, full, first=0):
    """Start to copy COUNT tiles of packed weights, from row `first` on, and return their shared memory."""
    weights = allocate_buffers(packed, COUNT)
    ROWS: gl.constexpr = packed.block_type.shape[0]
    mbarrier.expect(full, COUNT * packed.block_type.nbytes)
    for k in gl.static_range(COUNT):
        tma.async_copy_global_to_shared(packed, [first + k * ROWS, 0], full, weights.index(k))
    return weights


@gluon.jit
def next_stage(stage, phase, STAGES: gl.constexpr):
    """Return the next stage of a ring of buffers and the phase of its barriers."""
    stage += 1
    if stage == STAGES:
        stage = 0
        phase ^= 1
    return stage, phase


@gluon.jit
def previous_stage(stage, STAGES: gl.constexpr):
    """Return the previous stage of a ring of buffers.

    Computed rather than kept in a variable, because Triton 3.6 loses a variable that is set to the stage both
    before a loop and inside it.
    """
    return gl.where(stage == 0, STAGES, stage) - 1


@gluon.jit
def centre_rows(x, epsilon, CHANNELS: gl.constexpr, ROWS: gl.constexpr):
    """Return rows [R, C] minus their means, in their dtype, and 1 / deviation [R] in layout ROWS."""
    wide = x.to(gl.float32)
    mean = gl.sum(wide, 1) / CHANNELS
    centred = wide - mean[:, None]
    scale = gl.rsqrt(gl.sum(centred * centred, 1) / CHANNELS + epsilon)
    return centred.to(x.dtype), gl.convert_layout(scale, ROWS, assert_trivial=True)


@gluon.jit
def scale_and_shift(product, scale, bias):
    """Return product [R, N] times scale [R] plus bias [N]."""
    return gl.fma(
        product,
        gl.expand_dims(scale, 1).broadcast_to(product.shape),
        gl.expand_dims(bias, 0).broadcast_to(product.shape),
    )


@gluon.jit
def gated(values, gates):
    """Return values · (1 + tanh(gates)), which is 2 · values · sigmoid(2 · gates), of float32.

    This needs one special function, where the sigmoid needs an exponential and a reciprocal. PTX guarantees
    11 bits of the tangent, but of nearly closed gates this leaves fewer bits of 1 + tanh; a test checks that
    they suffice.
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
def split_halves(both):
    """Return the left and the right half of [R, 2 N]; each thread already holds its parts of both."""
    return both.reshape([both.shape[0], 2, both.shape[1] // 2]).permute([0, 2, 1]).split()
