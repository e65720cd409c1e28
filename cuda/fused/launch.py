"""Kernel launches: checks of their tensors, launch options tuned per GPU, grid sizes, matrix descriptors.

Imports Triton, so only modules with kernels import this one.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from cuda.fused.dispatch import HOPPER_CAPABILITY
from cuda.fused.gpu_model import assumed_gpu, gpu_model

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# With TRITON_INTERPRET=1, set before kernels are defined, Triton's interpreter runs them on CPU tensors.
INTERPRETED = bool(triton.knobs.runtime.interpret)
DEFAULT = "default"
# the GPU whose tables all Hopper GPUs use: their multiprocessors are the same
HOPPER = "NVIDIA H200"


def check_tensors(operation: str, *tensors: torch.Tensor) -> None:
    """Check that all tensors are on one supported device and have one supported dtype.

    Raises:
        ValueError: they differ in device or dtype, or the kernels do not support those.
    """
    first = tensors[0]
    if first.device.type != ("cpu" if INTERPRETED else "cuda") and assumed_gpu() is None:
        raise ValueError(f"fused {operation} does not support {first.device.type} tensors")
    if first.dtype not in DTYPES:
        raise ValueError(f"fused {operation} does not support {first.dtype}")
    for other in tensors[1:]:
        if other.device != first.device or other.dtype != first.dtype:
            one, two = (f"{x.dtype} on {x.device}" for x in (first, other))
            raise ValueError(f"fused {operation} needs tensors of one device and dtype, not {one} and {two}")


@cache
def launch_table(operation: str, device: str = DEFAULT, section: str = "launches") -> list[dict[str, Any]]:
    """Return the rows of an operation's launch table in the order in which they are tried.

    A GPU, named as its driver does, such as "NVIDIA H200", gets the default table if it has none of its own.
    Sections are "launches", and "backward" for the kernels of the backward pass.
    """
    folder = resources.files(f"cuda.fused.{operation}") / "tuning"
    path = folder / f"{device.lower().replace(' ', '_')}.json"
    if not path.is_file():
        path = folder / f"{DEFAULT}.json"
    return list(json.loads(path.read_text())[section])


def _device_name(device: torch.device) -> str:
    gpu = gpu_model(device)
    if gpu is None:
        return DEFAULT
    return HOPPER if gpu.capability == HOPPER_CAPABILITY else gpu.name


def choose_launch(
    operation: str, x: torch.Tensor, channels: int, section: str = "launches", **sizes: int
) -> dict[str, Any]:
    """Return the options of the first row of an operation's launch table that fits: of kernel and launcher.

    The element size and device of x select row and table; rows may bound the channels and other `sizes`. For
    the sections of a table see `launch_table`.

    Raises:
        ValueError: no row fits.
    """
    options = first_fitting(launch_table(operation, _device_name(x.device), section), x, channels, **sizes)
    if options is None:
        raise ValueError(f"fused {operation} does not support {channels} channels of {x.dtype}")
    return options


def first_fitting(
    table: list[dict[str, Any]], x: torch.Tensor, channels: int, **sizes: int
) -> dict[str, Any] | None:
    """Return the "options" of the first row of a launch table that fits, or None.

    A row holds "bytes" (of an element), "channels" (maximum), the maximum of any other size that it is
    limited to, and "options".
    """
    for row in table:
        fits = all(size <= row.get(name, size) for name, size in sizes.items())
        if fits and row["bytes"] == x.element_size() and channels <= row["channels"]:
            return dict(row["options"])
    return None


def program_count(x: torch.Tensor, blocks: int, resident: int) -> int:
    """Return how many programs to launch when each processes several blocks in turn.

    At most `resident` programs run on a multiprocessor of x's device at the same time.
    """
    if x.device.type != "cuda":
        return min(blocks, 2 * resident)
    return min(blocks, _multiprocessors(x.device) * resident)


@cache
def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def padded_channels(channels: int) -> int:
    """Return the width of a tile that holds all channels: a power of two of at least 16."""
    return max(16, triton.next_power_of_2(channels))


def matrix_tiles(matrix: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Return a descriptor with which kernels load tiles of a matrix through the tensor memory accelerator.

    Raises:
        ValueError: the length of the matrix's rows is not a multiple of 16 bytes.
    """
    return TensorDescriptor.from_tensor(tma_readable(matrix), [rows, columns])


def tma_readable(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix, or a copy of it, that the tensor memory accelerator can read (16-byte alignment).

    Raises:
        ValueError: the length of its rows is not a multiple of 16 bytes.
    """
    matrix = matrix.contiguous()
    if matrix.shape[1] * matrix.element_size() % 16:
        raise ValueError(f"{matrix.shape[1]} columns of {matrix.dtype} are not a multiple of 16 bytes")
    return matrix if tma_aligned(matrix) else matrix.clone()


def tma_aligned(x: torch.Tensor) -> bool:
    """Return whether the tensor memory accelerator can copy tiles of a tensor: 16-byte aligned rows."""
    size = x.element_size()
    return (
        x.stride(-1) == 1
        and x.data_ptr() % 16 == 0
        and all(stride * size % 16 == 0 and stride > 0 for stride in x.stride()[:-1])
    )
