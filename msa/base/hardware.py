"""The GPUs that a command requests, detection of NVIDIA hardware, and the cores of this process.

This module imports nothing of foldcli, so that `foldcli doctor` starts where a package is hidden.
"""

import os
from pathlib import Path

_NVIDIA_VENDOR = "0x10de"


def has_nvidia_hardware() -> bool:
    """Return whether this machine has an NVIDIA GPU, with or without a driver for it."""
    if any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")):
        return True
    # a display controller has class 0x03…; NVIDIA also makes network cards
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == _NVIDIA_VENDOR and kind.startswith("0x03"):
            return True
    return False


def available_cores() -> int:
    """Return the number of cores this process may use, from the scheduler's affinity mask."""
    return len(os.sched_getaffinity(0))


def gpu_numbers(device: str) -> list[int]:
    """Return the GPU numbers of a device such as "cuda:0,1"; [0] if it has none."""
    return [int(number) for number in (device.partition(":")[2] or "0").split(",")]
