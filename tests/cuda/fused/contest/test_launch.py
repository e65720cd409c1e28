"""The contest's launcher compiles once per key and launches the compiled kernel directly."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")

from benchmarks.contest_kernels import launch


class Kernel:
    """A kernel that records its launches, like the compiled kernels it returns."""

    def __init__(self, calls: list[Any], name: str) -> None:
        self.calls, self.name, self.compilations = calls, name, 0

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., "Kernel"]:
        def launched(*arguments: Any, **named: Any) -> Kernel:
            self.calls.append((self.name, grid, arguments, named))
            self.compilations += 1
            return Kernel(self.calls, f"{self.name} compiled {self.compilations}")

        return launched


def test_each_key_is_compiled_once() -> None:
    calls: list[Any] = []
    kernel = Kernel(calls, "kernel")
    launch(kernel, 3, ("GPU", None), (1, None), WIDTH=8)
    launch(kernel, 4, ("GPU", None), (2, None), WIDTH=8)
    launch(kernel, 5, ("GPU", "mask"), (2, "x"), WIDTH=8)
    launch(kernel, 6, ("GPU", None), (2, None), WIDTH=9)
    launch(kernel, 7, ("GPU", "mask"), (3, "y"), WIDTH=8)
    assert calls == [
        ("kernel", (3,), (1, None), {"WIDTH": 8, "num_warps": 4}),
        ("kernel compiled 1", (4, 1, 1), (2, None, 8), {}),
        ("kernel", (5,), (2, "x"), {"WIDTH": 8, "num_warps": 4}),
        ("kernel", (6,), (2, None), {"WIDTH": 9, "num_warps": 4}),
        ("kernel compiled 2", (7, 1, 1), (3, "y", 8), {}),
    ]


def test_kernels_that_return_nothing_are_not_cached() -> None:
    calls: list[Any] = []

    class Plain:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *arguments, **named: calls.append(grid)

    kernel = Plain()
    launch(kernel, 1, (), ())
    launch(kernel, 2, (), ())
    assert calls == [(1,), (2,)]
