"""What kernels in Gluon share: tiles copied to rings of buffers in shared memory, and their barriers.

A warp of its own copies, groups of warps take. A buffer's barrier "full" completes a phase when the bytes
announced to it have come, its barrier "empty" when all who take it are done with it.
"""

from functools import lru_cache
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def tiled(x: torch.Tensor, *block: int) -> TensorDescriptor:
    """A tensor of two bytes an element as Gluon copies it in tiles of the block's shape.

    A copy has to begin at a multiple of 16 bytes (`can_be_copied`); what lies outside the tensor is 0.
    """
    description = object.__new__(TensorDescriptor)
    description.__dict__.update(_checked(block, x.dtype, x.shape, x.stride()), base=x)
    return description


@lru_cache(1024)
def _checked(
    block: tuple[int, ...], dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> dict[str, Any]:
    """The description of any such tensor; to make one with its checks takes as long as a small kernel."""
    layout = gl.NVMMASharedLayout.get_default_for(list(block), TYPES[dtype])
    like = torch.empty_strided((1,) * len(shape), (1,) * len(shape), dtype=dtype)
    return vars(TensorDescriptor(like, list(shape), list(strides), list(block), layout))


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """So many barriers, each of which waits for so many arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for k in gl.static_range(COUNT):
        mbarrier.init(made.index(k), ARRIVALS)
    return made


@gluon.jit
def start_copy(descriptor, row, column, full, buffer):
    """Start to copy a tile to a buffer; it is announced to the barrier, which counts that as an arrival."""
    mbarrier.expect(full, buffer.numel * 2)
    tma.async_copy_global_to_shared(descriptor, [row, column], full, buffer)


@gluon.jit
def next_stage(stage, phase, STAGES: gl.constexpr):
    """The stage after this one in a ring of buffers, and the phase its barriers are in."""
    stage += 1
    if stage == STAGES:
        stage = 0
        phase ^= 1
    return stage, phase


@gluon.jit
def stage_before(stage, STAGES: gl.constexpr):
    """The stage before this one in a ring of buffers.

    Not kept in a variable, as Triton 3.6 loses one that is set to the stage both before a loop and in it.
    """
    return gl.where(stage == 0, STAGES, stage) - 1
