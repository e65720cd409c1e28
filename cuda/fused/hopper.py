"""Whether kernels for Hopper's own instructions may run: asynchronous products and copies of tiles.

They are written in Gluon, which Triton still calls experimental, so only the version that they were seen to
work with runs them; everywhere else the operations' other kernels do.
"""

from functools import cache

import torch
import triton

CAPABILITY = (9, 0)
TRITON = "3.6."


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def held_back(capability: tuple[int, int], triton_version: str) -> bool:
    """Whether only this version of Triton keeps the kernels from running on such a GPU."""
    return capability == CAPABILITY and not triton_version.startswith(TRITON)


def available(x: torch.Tensor) -> bool:
    """Whether they take x: two bytes an element, on a GPU of compute capability 9.0."""
    return (
        x.device.type == "cuda"
        and x.element_size() == 2
        and _capability(x.device) == CAPABILITY
        and not held_back(CAPABILITY, triton.__version__)
    )


def can_be_copied(x: torch.Tensor) -> bool:
    """Whether tiles of x can be copied by the tensor memory accelerator: rows that begin at 16 bytes."""
    size = x.element_size()
    return (
        x.stride(-1) == 1
        and x.data_ptr() % 16 == 0
        and all(stride * size % 16 == 0 and stride > 0 for stride in x.stride()[:-1])
    )
