"""The driver and the context of a GPU, started while commands import other modules.

Neither this module nor its imports need numpy.
"""

import threading

from cuda import driver
from msa.base.hardware import gpu_numbers


def open_in_background(device: str) -> None:
    """Start the driver, which takes 0.2 s, and create the context of the only GPU of a device in a thread.

    Args:
        device: value of `--device`. Several GPUs have processes of their own, and the CPU needs no driver.
    """
    numbers = gpu_numbers(device)
    if device != "cpu" and len(numbers) == 1:
        threading.Thread(target=create_context, args=tuple(numbers), daemon=True).start()


def create_context(number: int) -> bool:
    """Start the driver and create a GPU's primary context.

    Returns:
        False if that fails; `msa.gpu.device.devices.find_gpu` then fails, too, and reports the reason.
    """
    try:
        driver.primary_context(number)
    except (driver.DriverError, OSError, AttributeError):
        return False
    return True


def allows_several_processes(number: int) -> bool:
    """Start the driver; return whether several processes may use a GPU, False also if it does not start."""
    try:
        driver.call("cuInit", 0)
        device = driver.number("cuDeviceGet", number)
        mode = driver.number("cuDeviceGetAttribute", driver.COMPUTE_MODE, device)
    except (driver.DriverError, OSError, AttributeError):
        return False
    return mode == driver.SHARED_MODE
