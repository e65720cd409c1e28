"""Reasons why a GPU cannot be used: one line each, with the relevant numbers."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from msa.gpu.device.devices import (
    MIN_FREE_BYTES,
    DriverStatus,
    Gpu,
    GpuUnavailable,
    check_driver,
    check_gpu,
    find_gpu,
)
from tests.conftest import SIMULATOR_VARIABLES

WORKING = DriverStatus(cuda=(13, 0), status="CUDA_SUCCESS", count=2)
GOOD = Gpu(
    number=1, name="NVIDIA H200", capability=(9, 0), driver=(13, 0), toolkit=(13, 0),
    free_bytes=140 * 2**30, total_bytes=141 * 2**30,
)  # fmt: skip


def never_called() -> bool:
    raise AssertionError("called unnecessarily")


def reason(check: Callable[[], None]) -> str:
    with pytest.raises(GpuUnavailable) as caught:
        check()
    assert "\n" not in caught.value.reason
    assert "--device cpu" in caught.value.remedy
    return caught.value.reason


def test_usable_gpu_is_accepted() -> None:
    check_driver(WORKING, 1)
    check_gpu(GOOD, never_called)
    check_gpu(replace(GOOD, driver=(13, 2)), never_called)
    check_gpu(replace(GOOD, capability=(8, 0), free_bytes=MIN_FREE_BYTES), never_called)


def test_unknown_gpu_number() -> None:
    message = reason(lambda: check_driver(WORKING, 2))
    assert message == "there is no GPU number 2: the driver shows 2 GPUs, numbered from 0"


def test_driver_without_visible_gpus() -> None:
    driver = DriverStatus((13, 0), "CUDA_ERROR_NO_DEVICE", 0)
    assert reason(lambda: check_driver(driver, 0)) == "the NVIDIA driver shows this process no GPU"


@pytest.mark.parametrize("status", ["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "CUDA_ERROR_UNKNOWN"])
def test_driver_that_does_not_start(status: str) -> None:
    message = reason(lambda: check_driver(DriverStatus((12, 4), status, 0), 0))
    assert message == f"the NVIDIA driver (CUDA 12.4) does not start: {status}"


@pytest.mark.parametrize("capability", [(7, 5), (7, 0), (6, 1)])
def test_gpu_too_old(capability: tuple[int, int]) -> None:
    gpu = replace(GOOD, name="Tesla T4", capability=capability, driver=(12, 0))
    message = reason(lambda: check_gpu(gpu, never_called))
    assert message == "Tesla T4 has compute capability {}.{}; the kernels need 8.0".format(*capability)


def test_too_little_free_memory() -> None:
    message = reason(lambda: check_gpu(replace(GOOD, free_bytes=MIN_FREE_BYTES - 1), never_called))
    assert message == "NVIDIA H200 has too little memory: 512 MiB are needed, 511 of 144384 MiB are free"


@pytest.mark.parametrize(("driver", "toolkit"), [((12, 8), (13, 0)), ((13, 0), (13, 1)), ((9, 2), (13, 0))])
def test_driver_too_old(driver: tuple[int, int], toolkit: tuple[int, int]) -> None:
    gpu = replace(GOOD, driver=driver, toolkit=toolkit)
    with pytest.raises(GpuUnavailable) as caught:
        check_gpu(gpu, lambda: False)
    supported, needed = "{}.{}".format(*driver), "{}.{}".format(*toolkit)
    assert caught.value.reason == (
        f"the NVIDIA driver is too old for the CUDA toolkit: it supports CUDA {supported}, "
        f"and the toolkit is {needed}"
    )
    assert f"'cuda-toolkit=={supported}.*'" in caught.value.remedy
    # a driver that runs the toolkit's code nevertheless is accepted
    check_gpu(gpu, lambda: True)


def has_no_driver() -> bool:
    try:
        find_gpu()
    except GpuUnavailable as error:
        return "no NVIDIA driver" in error.reason
    return False


@pytest.mark.skipif(not has_no_driver(), reason="this machine has an NVIDIA driver")
def test_no_driver() -> None:
    # for any GPU number
    found = reason(lambda: find_gpu(3) and None)
    assert found == "there is no NVIDIA driver (libcuda.so.1 is not found)"


def run_simulated(code: str) -> str:
    """Return the output of a Python process in numba's simulator."""
    environment = os.environ | SIMULATOR_VARIABLES
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return run.stdout + run.stderr


def test_simulator_has_one_gpu() -> None:
    assert "simulator" in run_simulated("from msa.gpu.device.devices import find_gpu; print(find_gpu())")
    message = run_simulated("from msa.gpu.device.devices import find_gpu; find_gpu(1)")
    assert re.search("GpuUnavailable: there is no GPU number 1: the simulator has one", message)
