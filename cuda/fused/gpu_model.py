"""The model of GPU that an operation runs on, which selects its implementation and its tuned launches.

Without a GPU, operations can be run for an assumed model to record their kernel launches.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class GpuModel:
    """A model of GPU.

    Args:
        name: as the driver reports it, such as "NVIDIA H200".
        capability: compute capability, major and minor.
    """

    name: str
    capability: tuple[int, int]


# a context variable, since launches are recorded in one thread while others may run
_assumed: ContextVar[GpuModel | None] = ContextVar("assumed", default=None)


@contextmanager
def assume_gpu(model: GpuModel) -> Iterator[None]:
    """Treat tensors of all devices as tensors on a GPU of this model inside a `with` block."""
    token = _assumed.set(model)
    try:
        yield
    finally:
        _assumed.reset(token)


def assumed_gpu() -> GpuModel | None:
    """Return the model of the enclosing `assume_gpu` block, or None outside of one."""
    return _assumed.get()


def gpu_model(device: torch.device | str) -> GpuModel | None:
    """Return the model of a device's GPU; None if the device is no CUDA GPU."""
    return _assumed.get() or _model_of(torch.device(device))


@cache
def _model_of(device: torch.device) -> GpuModel | None:
    if device.type != "cuda":
        return None
    return GpuModel(torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
