"""What the Triton kernels share: rows of strided tensors, LayerNorm of a tile, checks before a launch.

Imports Triton, so only the kernels' own modules import this.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from cuda.fused.layer_norm.reference import EPSILON as LAYER_NORM_EPSILON

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# the interpreter runs kernels on CPU tensors; chosen by TRITON_INTERPRET=1 before the kernels are defined
INTERPRETED = bool(triton.knobs.runtime.interpret)
IN_PYTHON = tl.constexpr(INTERPRETED)
EPSILON = tl.constexpr(LAYER_NORM_EPSILON)


class Rows(NamedTuple):
    """A tensor [..., C] seen as rows of channels, without a copy; strides are in elements.

    Args:
        count: rows, as many as outer · inner.
        inner: rows until the outer stride applies.
        outer_stride, inner_stride: of the rows.
        channel_stride: of the channels.
    """

    count: int
    inner: int
    outer_stride: int
    inner_stride: int
    channel_stride: int


def rows_of(x: torch.Tensor) -> Rows:
    """The rows of a tensor [..., C] whose leading axes have at most two independent strides.

    Raises:
        ValueError: the leading axes have more.
    """
    axes: list[list[int]] = []  # [size, stride] of the leading axes, those that follow on each other as one
    for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = [axes[-1][0] * size, stride]
        else:
            axes.append([size, stride])
    if len(axes) > 2:
        raise ValueError(f"rows of shape {tuple(x.shape)} and strides {x.stride()} are in no two strides")
    (outer, outer_stride), (inner, inner_stride) = [[1, 0]] * (2 - len(axes)) + axes
    return Rows(outer * inner, inner, outer_stride, inner_stride, x.stride(-1))


def check_tensors(operation: str, *tensors: torch.Tensor) -> None:
    """See that kernels can work on these tensors together.

    Raises:
        ValueError: they differ in device or dtype, or no kernel takes those.
    """
    first = tensors[0]
    if first.device.type != ("cpu" if INTERPRETED else "cuda"):
        raise ValueError(f"fused {operation} takes no {first.device.type} tensors")
    if first.dtype not in DTYPES:
        raise ValueError(f"fused {operation} takes no {first.dtype} tensors")
    for other in tensors[1:]:
        if other.device != first.device or other.dtype != first.dtype:
            raise ValueError(
                f"fused {operation} takes tensors of one kind, not {first.dtype} on {first.device} "
                f"beside {other.dtype} on {other.device}"
            )


def matrix_tiles(matrix: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A matrix as kernels load it in tiles, by the tensor memory accelerator where there is one.

    Raises:
        ValueError: the matrix's rows are no multiple of 16 bytes long.
    """
    return TensorDescriptor.from_tensor(in_reach(matrix), [rows, columns])


def in_reach(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix, or a copy of it that the tensor memory accelerator can read: from a multiple of 16 bytes on.

    Raises:
        ValueError: its rows are no multiple of 16 bytes long.
    """
    matrix = matrix.contiguous()
    if matrix.shape[1] * matrix.element_size() % 16:
        width = matrix.shape[1]
        raise ValueError(f"no kernel takes {width} columns of {matrix.dtype}: no multiple of 16 bytes")
    return matrix.clone() if matrix.data_ptr() % 16 else matrix


def programs(x: torch.Tensor, blocks: int, resident: int) -> int:
    """How many programs take these blocks in turn: so many for each multiprocessor, none without work."""
    if x.device.type != "cuda":
        return min(blocks, 2 * resident)
    return min(blocks, _multiprocessors(x.device) * resident)


@cache
def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(−x)) of float32, to two units in the last place of its parts.

    Triton's own takes three times the instructions, for exponents and quotients below float32's normal range;
    here they are 0.
    """
    if IN_PYTHON:
        return tl.sigmoid(x)
    return tl.inline_asm_elementwise(
        """{
            .reg .f32 t;
            mul.f32 t, $1, 0fBFB8AA3B;  // -log2 e
            ex2.approx.ftz.f32 t, t;
            add.f32 t, t, 0f3F800000;  // 1
            rcp.approx.ftz.f32 $0, t;
        }""",
        "=f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def row_offsets(rows, inner, outer_stride, inner_stride):
    """Where rows [R] of a `Rows` start, as 64-bit offsets: a pair representation outgrows 2³¹ elements."""
    outer = rows // inner
    return outer.to(tl.int64) * outer_stride + (rows - outer * inner).to(tl.int64) * inner_stride


@triton.jit
def normalised_rows(x, places, present, norm_scale, norm_offset, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """Load rows at places [R, BLOCK], where they are present, and normalise them: float32 [R, BLOCK]."""
    columns = tl.arange(0, BLOCK)
    channels = columns < CHANNELS
    return normalised(
        tl.load(x + places, mask=present, other=0.0).to(tl.float32),
        channels[None, :],
        tl.load(norm_scale + columns, mask=channels, other=0.0).to(tl.float32),
        tl.load(norm_offset + columns, mask=channels, other=0.0).to(tl.float32),
        CHANNELS,
        EPSILON,
    )


@triton.jit
def normalised(x, present, scale, offset, CHANNELS: tl.constexpr, epsilon):
    """LayerNorm of a tile: float32 [R, BLOCK] and [BLOCK] to float32 [R, BLOCK].

    The variance is that of the centred values, since E[x²] − E[x]² cancels. `present` [1, BLOCK] says which
    columns are channels; the others have to be 0 in x, scale and offset, and are 0 in the result.
    """
    mean = tl.sum(x, axis=1) / CHANNELS
    centred = tl.where(present, x - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / CHANNELS
    return centred * tl.rsqrt(variance + epsilon)[:, None] * scale[None, :] + offset[None, :]
