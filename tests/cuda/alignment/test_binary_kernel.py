"""Launches of cached machine code up to the driver call, and cache file names."""

import ctypes
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda.alignment.binary_kernel import BinaryKernel, parameters
from cuda.alignment.kernel_cache import KernelSource, binary_path


class FakeArray:
    """A stand-in for a device array."""

    def __init__(self, address: int, host: np.ndarray) -> None:
        self.device_ctypes_pointer = ctypes.c_size_t(address)
        self.dtype, self.ndim, self.size = host.dtype, host.ndim, host.size
        self.shape, self.strides = host.shape, host.strides


def fake_kernel(calls: list[tuple[Any, ...]]) -> BinaryKernel:
    """Create a kernel of an int16 matrix, a uint8 array and an integer that records its driver calls."""
    fake = BinaryKernel.__new__(BinaryKernel)
    fake.name, fake.handle, fake._buffers = "k", 7, {}
    fake._parameters = parameters("void(int16[:, ::1], uint8[::1], int32)")
    fake._packer = struct.Struct("=17q")

    def launch(*arguments: Any) -> int:
        *shape, address, extra = arguments
        pointers = (ctypes.c_void_p * 17).from_address(address)
        values = [ctypes.c_int64.from_address(pointer).value for pointer in pointers]
        calls.append((shape, extra, values))
        return 0

    fake._launch = launch
    return fake


def test_driver_receives_numbas_calling_convention() -> None:
    calls: list[tuple[Any, ...]] = []
    one = fake_kernel(calls)
    matrix, flat = FakeArray(4096, np.zeros((3, 5), np.int16)), FakeArray(8192, np.zeros(7, np.uint8))
    for number in (-3, np.int32(9)):
        one[12, 64, 0, 100](matrix, flat, number)
    shape = [7, 12, 1, 1, 64, 1, 1, 100, 0]
    # numba's array struct: two null pointers, elements, bytes per element, address, shape, strides
    arrays = [0, 0, 15, 2, 4096, 3, 5, 10, 2, 0, 0, 7, 1, 8192, 7, 1]
    assert calls == [(shape, None, [*arrays, -3]), (shape, None, [*arrays, 9])]


def test_arguments_of_wrong_types_are_refused() -> None:
    one = fake_kernel([])
    matrix, flat = FakeArray(4096, np.zeros((3, 5), np.int16)), FakeArray(8192, np.zeros(7, np.uint8))
    with pytest.raises(TypeError, match="int16"):
        one[1, 1](flat, matrix, 1)
    with pytest.raises(TypeError, match="uint8"):
        one[1, 1](matrix, FakeArray(0, np.zeros(7, np.int8)), 1)
    with pytest.raises(ValueError, match="zip"):
        one[1, 1](matrix, flat)


def test_signatures_of_other_types_are_refused() -> None:
    assert parameters("void(boolean, int64)") == [None, None]
    with pytest.raises(ValueError, match="float32"):
        parameters("void(int32[::1], float32)")


def test_cache_files_differ_by_function_signature_bounds_and_gpu(tmp_path: Path) -> None:
    def path(identity: str, signature: str, blocks: int, capability: tuple[int, int]) -> Path:
        source = KernelSource(identity, "kernel", signature, (128, blocks), lambda: print)
        return binary_path(tmp_path, source, capability)

    paths = [
        path("one", "void(int32)", 1, (9, 0)),
        path("one", "void(int32)", 1, (8, 0)),
        path("one", "void(int32)", 2, (9, 0)),
        path("one", "void(int64)", 1, (9, 0)),
        path("other", "void(int32)", 1, (9, 0)),
    ]
    assert len(set(paths)) == len(paths)
    assert paths[0] == path("one", "void(int32)", 1, (9, 0))
