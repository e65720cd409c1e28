"""Launches of kept machine code, short of the driver: what a kernel is given, and where its code is kept."""

import ctypes
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import types

from cuda.alignment.binary import BinaryKernel, binary_path, load_binary


class Array:
    """Stands for a device array."""

    def __init__(self, address: int, host: np.ndarray) -> None:
        self.device_ctypes_pointer = ctypes.c_size_t(address)
        self.dtype, self.ndim, self.size = host.dtype, host.ndim, host.size
        self.shape, self.strides = host.shape, host.strides


def kernel(calls: list[tuple[Any, ...]]) -> BinaryKernel:
    """One that takes an int16 matrix, a uint8 array and an integer, and notes what reaches the driver."""
    made = BinaryKernel.__new__(BinaryKernel)
    made.name, made._function, made._buffers = "k", "function", {}
    made._arguments = [("int16", 2), ("uint8", 1), None]
    made._values = struct.Struct("=17q")

    def launch(*arguments: Any) -> tuple[int]:
        *shape, address, extra = arguments
        pointers = (ctypes.c_void_p * 17).from_address(address)
        values = [ctypes.c_int64.from_address(pointer).value for pointer in pointers]
        calls.append((shape, extra, values))
        return (0,)

    made._launch = launch
    return made


def test_what_the_driver_gets() -> None:
    calls: list[tuple[Any, ...]] = []
    one = kernel(calls)
    matrix, flat = Array(4096, np.zeros((3, 5), np.int16)), Array(8192, np.zeros(7, np.uint8))
    for number in (-3, np.int32(9)):
        one[12, 64, 0, 100](matrix, flat, number)
    shape = ["function", 12, 1, 1, 64, 1, 1, 100, 0]
    # numba's order: two null pointers, elements, bytes of one, address, shape, strides
    arrays = [0, 0, 15, 2, 4096, 3, 5, 10, 2, 0, 0, 7, 1, 8192, 7, 1]
    assert calls == [(shape, 0, [*arrays, -3]), (shape, 0, [*arrays, 9])]


def test_arguments_of_another_type_are_refused() -> None:
    one = kernel([])
    matrix, flat = Array(4096, np.zeros((3, 5), np.int16)), Array(8192, np.zeros(7, np.uint8))
    with pytest.raises(TypeError, match="int16"):
        one[1, 1](flat, matrix, 1)
    with pytest.raises(TypeError, match="uint8"):
        one[1, 1](matrix, Array(0, np.zeros(7, np.int8)), 1)
    with pytest.raises(ValueError, match="zip"):
        one[1, 1](matrix, flat)


def test_code_is_kept_apart_by_all_that_it_depends_on(tmp_path: Path) -> None:
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
