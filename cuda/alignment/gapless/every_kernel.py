"""Every kernel that a launch table names, to be compiled where there is no GPU."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda.alignment.compiled import generated_function
from cuda.alignment.gapless.border import FILL_SIGNATURE, FILL_THREADS, fill_unbounded
from cuda.alignment.gapless.generator import Kind, Variant, source
from cuda.alignment.gapless.launch_table import DEFAULT, Launch, bordered, launch_table, list_launch
from cuda.alignment.gapless.layout import BYTE, HALF, Arithmetic
from cuda.alignment.gapless.signatures import SIGNATURES, STRETCHES_SIGNATURE, WIDE_SIGNATURE
from cuda.alignment.gapless.stretches import THREADS as STRETCHES_THREADS
from cuda.alignment.gapless.stretches import list_stretches
from cuda.alignment.gapless.wide import THREADS as WIDE_THREADS
from cuda.alignment.gapless.wide import gapless_wide

_INTEGER_MAXIMUM_FROM = (9, 0)
# a query of several tiles has tiles of more than half the widest
_LEAST_TILE = 1024
_TUNED = (DEFAULT, "NVIDIA H200")


@dataclass(frozen=True)
class Compilable:
    """What `numba.cuda.compile_ptx` takes.

    Args:
        name: of the kernel.
        function: to be compiled.
        signature: numba's.
        bounds: threads of a block, and blocks that a multiprocessor is to hold at once.
    """

    name: str
    function: Callable[..., None]
    signature: Any
    bounds: tuple[int, int]


def _packed() -> Iterator[tuple[Kind, Launch, Arithmetic]]:
    bounds = {launch for device in _TUNED for launch in launch_table(device, "bounds").values()}
    tiles = {bordered(launch) for launch in bounds if launch.layout.tile > _LEAST_TILE}
    exact = {launch for device in _TUNED for launch in launch_table(device, "exact").values()}
    for launch in bounds:
        yield "bounds", launch, BYTE
    for launch in tiles:
        yield "bordered", launch, BYTE
    for launch in exact:
        yield "exact", launch, HALF
    listed = {list_launch(length, 2**18) for length in range(16, 2049, 16)}
    for launch in filter(None, listed):
        yield "listed", launch, HALF


def every_kernel(capability: tuple[int, int], folder: Path) -> Iterator[Compilable]:
    """All gapless kernels for a GPU of this compute capability.

    Args:
        capability: such as (9, 0).
        folder: where generated source is written.
    """
    for kind, launch, arithmetic in _packed():
        variant = Variant(kind, launch.layout, arithmetic, capability >= _INTEGER_MAXIMUM_FROM)
        bounds = launch.threads, launch.blocks
        function = generated_function(source(variant), variant.name, folder, bounds)
        yield Compilable(variant.name, function, SIGNATURES[kind], bounds)
    yield Compilable("wide", gapless_wide, WIDE_SIGNATURE, (WIDE_THREADS, 1))
    yield Compilable("stretches", list_stretches, STRETCHES_SIGNATURE, (STRETCHES_THREADS, 1))
    yield Compilable("fill", fill_unbounded, FILL_SIGNATURE, (FILL_THREADS, 1))
