"""Launches of cached machine code up to the driver call, and cache file names."""

import ctypes
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import types

from cuda.alignment.binary_kernel import BinaryKernel
from cuda.alignment.kernel_cache import binary_path, load_binary


class FakeArray:
    """A stand-in for a device array."""

    def __init__(self, address: int, host: np.ndarray) -> None:
        self.device_ctypes_pointer = ctypes.c_size_t(address)
        self.dtype, self.ndim, self.size = host.dtype, host.ndim, host.size
        self.shape, self.strides = host.shape, host.strides


def fake_kernel(calls: list[tuple[Any, ...]]) -> BinaryKernel:
    """Create a kernel of an int16 matrix, a uint8 array and an integer that records its driver calls."""
    fake = BinaryKernel.__new__(BinaryKernel)
    fake.name, fake._function, fake._buffers = "k", "function", {}
    fake._parameters = [("int16", 2), ("uint8", 1), None]
    fake._packer = struct.Struct("=17q")

    def launch(*arguments: Any) -> tuple[int]:
        *shape, address, extra = arguments
        pointers = (ctypes.c_void_p * 17).from_address(address)
        values = [ctypes.c_int64.from_address(pointer).value for pointer in pointers]
        calls.append((shape, extra, values))
        return (0,)

    fake._launch = launch
    return fake


def test_driver_receives_numbas_calling_convention() -> None:
    calls: list[tuple[Any, ...]] = []
    one = fake_kernel(calls)
    matrix, flat = FakeArray(4096, np.zeros((3, 5), np.int16)), FakeArray(8192, np.zeros(7, np.uint8))
    for number in (-3, np.int32(9)):
        one[12, 64, 0, 100](matrix, flat, number)
    shape = ["function", 12, 1, 1, 64, 1, 1, 100, 0]
    # numba's array struct: two null pointers, elements, bytes per element, address, shape, strides
    arrays = [0, 0, 15, 2, 4096, 3, 5, 10, 2, 0, 0, 7, 1, 8192, 7, 1]
    assert calls == [(shape, 0, [*arrays, -3]), (shape, 0, [*arrays, 9])]


def test_arguments_of_wrong_types_are_refused() -> None:
    one = fake_kernel([])
    matrix, flat = FakeArray(4096, np.zeros((3, 5), np.int16)), FakeArray(8192, np.zeros(7, np.uint8))
    with pytest.raises(TypeError, match="int16"):
        one[1, 1](flat, matrix, 1)
    with pytest.raises(TypeError, match="uint8"):
        one[1, 1](matrix, FakeArray(0, np.zeros(7, np.int8)), 1)
    with pytest.raises(ValueError, match="zip"):
        one[1, 1](matrix, flat)


def test_cache_files_differ_by_function_signature_bounds_and_gpu(tmp_path: Path) -> None:
    def one() -> None:
        pass

    def other() -> None:
        pass

    signature = types.void(types.int32)
    paths = [
        binary_path(tmp_path, one, signature, (128, 1), (9, 0)),
        binary_path(tmp_path, one, signature, (128, 1), (8, 0)),
        binary_path(tmp_path, one, signature, (128, 2), (9, 0)),
        binary_path(tmp_path, one, types.void(types.int64), (128, 1), (9, 0)),
        binary_path(tmp_path, other, signature, (128, 1), (9, 0)),
    ]
    assert len(set(paths)) == len(paths)
    assert paths[0] == binary_path(tmp_path, one, signature, (128, 1), (9, 0))
    assert load_binary(paths[0], signature) is None
