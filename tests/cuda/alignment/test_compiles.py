"""Every kernel that a launch table names compiles for the oldest and the newest GPU without local memory.

Needs NVIDIA's compiler libraries, and for registers and spills `ptxas`; neither needs a GPU.
"""

import os
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba.cuda")

import cuda.alignment
from cuda.alignment.compiled import generated_function
from cuda.alignment.gapless.generator import Variant, source
from cuda.alignment.gapless.launch import PACKED_SIGNATURE, WIDE_SIGNATURE
from cuda.alignment.gapless.launch_table import Launch, launch_table
from cuda.alignment.gapless.layout import HALF, SHORT, Layout
from cuda.alignment.gapless.wide import THREADS, gapless_wide

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="the simulator compiles nothing"
)
TABLES = sorted(
    file.name.removesuffix(".json")
    for file in (resources.files("cuda.alignment.gapless") / "tuning").iterdir()
    if file.name.endswith(".json")
)
LAUNCHES = sorted(
    {launch for table in TABLES for launch in launch_table(table).values()},
    key=lambda launch: (launch.layout.lanes, launch.layout.columns, launch.threads),
)

capabilities = pytest.mark.parametrize(
    "capability", [(8, 0), (9, 0)], ids=lambda pair: f"sm_{pair[0]}{pair[1]}"
)


def plain_kernels() -> Iterator[Any]:
    """The kernels that are functions of modules: those with SIGNATURES by function, for blocks of THREADS."""
    for found in pkgutil.walk_packages(cuda.alignment.__path__, "cuda.alignment."):
        module = import_module(found.name)
        for function, signature in getattr(module, "SIGNATURES", {}).items():
            if callable(function):
                label = f"{found.name.removeprefix('cuda.alignment.')}.{function.__name__}"
                yield pytest.param(function, signature, module.THREADS, id=label)


def name(launch: Launch) -> str:
    layout = launch.layout
    return f"{layout.lanes} lanes of {layout.columns}, {launch.blocks} blocks of {launch.threads}"


def test_all_tables_are_read() -> None:
    assert "default" in TABLES and "nvidia_h200" in TABLES and len(LAUNCHES) > 32


@capabilities
@pytest.mark.parametrize("launch", LAUNCHES, ids=name)
def test_launch_tables(
    assert_compiles: Callable[..., None], tmp_path: Path, launch: Launch, capability: tuple[int, int]
) -> None:
    variant = Variant(launch.layout, HALF, capability >= (9, 0))
    bounds = (launch.threads, launch.blocks)
    function = generated_function(source(variant), variant.name, tmp_path, bounds)
    assert_compiles(function, PACKED_SIGNATURE, capability, bounds)


@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
def test_short_integers(assert_compiles: Callable[..., None], tmp_path: Path, lanes: int) -> None:
    variant = Variant(Layout(lanes, 64), SHORT, True)
    function = generated_function(source(variant), variant.name, tmp_path, (256, 2))
    assert_compiles(function, PACKED_SIGNATURE, (9, 0), (256, 2))


@capabilities
def test_wide(assert_compiles: Callable[..., None], capability: tuple[int, int]) -> None:
    assert_compiles(gapless_wide, WIDE_SIGNATURE, capability, (THREADS, 1))


@capabilities
@pytest.mark.parametrize(("function", "signature", "threads"), list(plain_kernels()))
def test_plain_kernels(
    assert_compiles: Callable[..., None],
    function: Callable[..., None],
    signature: Any,
    threads: int,
    capability: tuple[int, int],
) -> None:
    assert_compiles(function, signature, capability, (threads, 1))
