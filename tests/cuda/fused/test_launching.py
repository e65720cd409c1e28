"""Launches go to what the first of their kind was compiled to; needs no GPU."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("triton")

from cuda.fused.launching import launch


class Kernel:
    """Notes its launches; what it is compiled to does so too."""

    def __init__(self, calls: list[Any], name: str) -> None:
        self.calls, self.name, self.compilations = calls, name, 0

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., "Kernel"]:
        def launched(*given: Any, **named: Any) -> Kernel:
            self.calls.append((self.name, grid, given, named))
            self.compilations += 1
            return Kernel(self.calls, f"{self.name} compiled {self.compilations}")

        return launched


def test_a_kind_is_compiled_once() -> None:
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


def test_what_returns_nothing_is_launched_as_ever() -> None:
    calls: list[Any] = []

    class Plain:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *given, **named: calls.append(grid)

    kernel = Plain()
    launch(kernel, 1, (), ())
    launch(kernel, 2, (), ())
    assert calls == [(1,), (2,)]
