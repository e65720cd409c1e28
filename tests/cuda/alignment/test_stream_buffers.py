"""Buffers of a stream are freed only when no queued work can use them."""

import weakref
from typing import Any

import numpy as np
import pytest

from cuda.alignment.gapless import runtime
from cuda.alignment.gapless.runtime import StreamBuffers


class FakeArray:
    def __init__(self, count: int, dtype: Any) -> None:
        self.size = count

    def __getitem__(self, key: slice) -> "FakeArray":
        return self

    def copy_to_device(self, array: np.ndarray, stream: Any) -> None:
        pass


class FakeStream:
    """A stream that records which arrays exist when it is waited for."""

    def __init__(self, arrays: list["weakref.ref[FakeArray]"]) -> None:
        self._arrays = arrays
        self.waits: list[list[bool]] = []

    def synchronize(self) -> None:
        self.waits.append([array() is not None for array in self._arrays])


def test_a_buffer_that_grows_waits_for_the_work_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: list[weakref.ref[FakeArray]] = []

    def device_array(count: int, dtype: Any) -> FakeArray:
        array = FakeArray(count, dtype)
        arrays.append(weakref.ref(array))
        return array

    monkeypatch.setattr(runtime.gpu, "device_array", device_array)
    stream = FakeStream(arrays)
    buffers = StreamBuffers(stream)
    assert buffers.array("border", 10).size == 10
    assert buffers.array("border", 10).size == 10 and not stream.waits
    assert buffers.array("border", 20).size == 20 and stream.waits == [[True]]
    assert arrays[0]() is None
    buffers.array("stretches", 30)
    assert len(stream.waits) == 1
