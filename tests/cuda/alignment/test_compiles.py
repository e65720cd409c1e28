"""Alignment kernels compile for two GPU generations, without local memory or register spills.

Of kernels that differ in width only, the widest is compiled for each launch configuration.

Needs NVIDIA's compiler libraries and, to check registers and spills, `ptxas`; neither needs a GPU.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from cuda.alignment.gapless.generator import Kind, Variant, source
from cuda.alignment.gapless.launch_table import (
    DEFAULT,
    Launch,
    border_launch,
    choose_list_launch,
    launch_table,
)
from cuda.alignment.gapless.layout import BYTE, HALF, SHORT, Arithmetic, LaneLayout
from cuda.alignment.gapless.signatures import GENERATED_SIGNATURES
from cuda.alignment.gapless.signatures import KERNELS as GAPLESS_KERNELS
from cuda.alignment.kernel_cache import generated_function
from cuda.alignment.smith_waterman import HOPPER, PLAIN
from cuda.alignment.smith_waterman.signatures import KERNELS as ALIGNMENT_KERNELS
from cuda.alignment.smith_waterman.signatures import ROW_SIGNATURES, row_kernel_function
from cuda.alignment.top_k.layout import KERNELS as TOP_K_KERNELS

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(
        os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="the simulator compiles nothing"
    ),
]
CAPABILITIES = [(8, 0), (9, 0)]
# packed integer maxima exist from compute capability 9.0 on
INTEGER_MAXIMUM_CAPABILITY = (9, 0)
# a query of several tiles has tiles of more than half the widest
MIN_BORDERED_TILE = 1024
# of kernels of several widths
NAME = r"(\w+)_(\d+)x(\d+)(?:_(\w+))?"
TUNED_DEVICES = (DEFAULT, "NVIDIA H200")
# removed when the process ends
SOURCES = tempfile.TemporaryDirectory()


@dataclass(frozen=True)
class Kernel:
    """A kernel to compile.

    Args:
        name: of the kernel.
        make: returns its Python function; not called when tests are collected.
        signature: its numba signature.
        launch_bounds: threads per block, and blocks per multiprocessor.
    """

    name: str
    make: Callable[[], Callable[..., None]]
    signature: str
    launch_bounds: tuple[int, int]


def generated_launches(devices: Sequence[str]) -> Iterator[tuple[Kind, Launch, Arithmetic]]:
    """Yield all launches of generated gapless kernels in the devices' launch tables."""
    bounds = {launch for device in devices for launch in launch_table(device).values()}
    tiles = {border_launch(launch) for launch in bounds if launch.layout.tile > MIN_BORDERED_TILE}
    for launch in bounds:
        yield "bounds", launch, BYTE
    for launch in tiles:
        yield "bordered", launch, BYTE
    listed = {choose_list_launch(length, 2**18) for length in range(16, 2049, 16)}
    for launch in filter(None, listed):
        yield "listed", launch, HALF


def generate(variant: Variant, launch_bounds: tuple[int, int]) -> Callable[..., None]:
    return generated_function(source(variant), variant.name, Path(SOURCES.name), launch_bounds)


def gapless_kernels(capability: tuple[int, int]) -> Iterator[Kernel]:
    # the other tables are those of GPUs with compute capability 9.0
    devices = TUNED_DEVICES if capability >= (9, 0) else [DEFAULT]
    for kind, launch, arithmetic in generated_launches(devices):
        variant = Variant(kind, launch.layout, arithmetic, capability >= INTEGER_MAXIMUM_CAPABILITY)
        bounds = launch.threads, launch.blocks
        yield Kernel(variant.name, partial(generate, variant, bounds), GENERATED_SIGNATURES[kind], bounds)


def widest(kernels: Iterable[Kernel]) -> Iterable[Kernel]:
    """Return the widest of kernels that differ in the number of columns only: it needs most registers."""
    groups: dict[tuple[Any, ...], tuple[int, Kernel]] = {}
    for kernel in kernels:
        stem, lanes, columns, maximum = re.fullmatch(NAME, kernel.name).groups()  # type: ignore[union-attr]
        key = stem, lanes, maximum, kernel.launch_bounds
        groups[key] = max(groups.get(key, (0, kernel)), (int(columns), kernel), key=lambda pair: pair[0])
    return [kernel for _, kernel in groups.values()]


def row_kernels(capability: tuple[int, int]) -> Iterator[Kernel]:
    shapes = HOPPER if capability >= (9, 0) else PLAIN
    kinds = (("packed", shapes.packed + shapes.low_latency), ("wide", shapes.wide), ("traced", shapes.wide))
    for kind, of_kind in kinds:
        for shape in sorted(set(of_kind), key=lambda shape: (shape.lanes, shape.columns)):
            name = f"gotoh_{kind}_{shape.lanes}x{shape.columns}"
            yield Kernel(
                name, partial(row_kernel_function, kind, shape), ROW_SIGNATURES[kind], (shape.threads, 1)
            )


def plain_kernels(capability: tuple[int, int]) -> Iterator[Kernel]:
    """Yield all hand-written kernels."""
    for kernel in (*GAPLESS_KERNELS, *TOP_K_KERNELS, *ALIGNMENT_KERNELS):
        name = kernel.identity.removeprefix("cuda.alignment.")
        yield Kernel(name, kernel.make, kernel.signature, kernel.launch_bounds)


def all_kernels() -> Iterator[Any]:
    for capability in CAPABILITIES:
        architecture = f"sm_{capability[0]}{capability[1]}"
        of_several_widths = widest((*gapless_kernels(capability), *row_kernels(capability)))
        for kernel in (*of_several_widths, *plain_kernels(capability)):
            label = f"{architecture}-{kernel.name}-{kernel.launch_bounds[1]}x{kernel.launch_bounds[0]}"
            yield pytest.param(capability, kernel, id=label)


@pytest.mark.parametrize(("capability", "kernel"), list(all_kernels()))
def test_kernel_compiles(
    assert_compiles: Callable[..., None], capability: tuple[int, int], kernel: Kernel
) -> None:
    assert_compiles(kernel.make(), kernel.signature, capability, kernel.launch_bounds)


@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
def test_kernel_with_short_integers_compiles(assert_compiles: Callable[..., None], lanes: int) -> None:
    variant = Variant("listed", LaneLayout(lanes, 64), SHORT, True)
    assert_compiles(generate(variant, (256, 2)), GENERATED_SIGNATURES["listed"], (9, 0), (256, 2))


def test_all_launches_of_the_tables_have_kernels() -> None:
    kernels = {
        (kernel.name, kernel.launch_bounds)
        for capability in CAPABILITIES
        for kernel in gapless_kernels(capability)
    }
    for file in (resources.files("cuda.alignment.gapless") / "tuning").iterdir():
        device = file.name.removesuffix(".json")
        for launch in launch_table(device).values():
            size = f"{launch.layout.lanes}x{launch.layout.columns}"
            for maximum in ("half", "integer") if device == DEFAULT else ("integer",):
                name = f"gapless_bounds_byte_{size}_{maximum}"
                assert (name, (launch.threads, launch.blocks)) in kernels


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_gapless_kernels_have_unique_names(capability: tuple[int, int]) -> None:
    kernels = [(kernel.name, kernel.launch_bounds) for kernel in gapless_kernels(capability)]
    assert len(kernels) == len(set(kernels)) > 60
    kinds = {name.split("_")[1] for name, _ in kernels}
    assert kinds == {"listed", "bounds", "bordered"}
