"""Which launch a kernel gets, as measured per GPU; an unknown GPU takes the default."""

import json
from functools import cache
from importlib import resources
from typing import Any

import torch

DEFAULT = "default"


@cache
def launch_table(operation: str, device: str = DEFAULT) -> list[dict[str, Any]]:
    """The launches of an operation in the order in which they are tried.

    Args:
        operation: its folder in `cuda.fused`.
        device: the GPU's name as the driver gives it, such as "NVIDIA H200".
    """
    folder = resources.files(f"cuda.fused.{operation}") / "tuning"
    path = folder / f"{device.lower().replace(' ', '_')}.json"
    if not path.is_file():
        path = folder / f"{DEFAULT}.json"
    return list(json.loads(path.read_text())["launches"])


@cache
def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else DEFAULT


def choose_launch(operation: str, x: torch.Tensor, channels: int, **sizes: int) -> dict[str, Any]:
    """The options of the first launch that is for x's width of element, as many channels and such sizes.

    A row of the table has "bytes" (of an element), "channels" (the most it is for), the most of any other
    size that it is bounded by, and "options", which are what the operation's kernel and Triton's launcher
    take.

    Raises:
        ValueError: no launch is for so many channels or such elements.
    """
    for row in launch_table(operation, _device_name(x.device)):
        fits = all(size <= row.get(name, size) for name, size in sizes.items())
        if fits and row["bytes"] == x.element_size() and channels <= row["channels"]:
            return dict(row["options"])
    raise ValueError(f"no {operation} kernel takes {channels} channels of {x.dtype}")
