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
from cuda.alignment.gapless.border import FILL_SIGNATURE, FILL_THREADS, fill_unbounded
from cuda.alignment.gapless.generator import Kind, Variant, source
from cuda.alignment.gapless.launch_table import Launch, launch_table, list_launch
from cuda.alignment.gapless.layout import BYTE, HALF, SHORT, Layout
from cuda.alignment.gapless.signatures import SIGNATURES, STRETCHES_SIGNATURE, WIDE_SIGNATURE
from cuda.alignment.gapless.stretches import THREADS as STRETCHES_THREADS
from cuda.alignment.gapless.stretches import list_stretches
from cuda.alignment.gapless.wide import THREADS as WIDE_THREADS
from cuda.alignment.gapless.wide import gapless_wide

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="the simulator compiles nothing"
)
TABLES = sorted(
    file.name.removesuffix(".json")
    for file in (resources.files("cuda.alignment.gapless") / "tuning").iterdir()
    if file.name.endswith(".json")
)
SHARED_BYTES = 227 * 2**10
"""Of a block, on the GPU that has most."""

capabilities = pytest.mark.parametrize(
    "capability", [(8, 0), (9, 0)], ids=lambda pair: f"sm_{pair[0]}{pair[1]}"
)


def launches() -> list[tuple[Kind, Launch]]:
    """Every launch that a query can get on any GPU."""
    found: set[tuple[Kind, Launch]] = set()
    for table in TABLES:
        found |= {("exact", launch) for launch in launch_table(table, "exact").values()}
        bounds = launch_table(table, "bounds")
        found |= {("bounds", launch) for launch in bounds.values()}
        # a longer query is cut into tiles of one width, none less than half of the widest
        found |= {("bordered", launch) for length, launch in bounds.items() if 2 * length > max(bounds)}
    listed = {list_launch(length, SHARED_BYTES) for length in range(1, 2049)}
    found |= {("listed", launch) for launch in listed if launch is not None}
    return sorted(found, key=lambda one: (one[0], one[1].layout.lanes, one[1].layout.columns, one[1].threads))


def plain_kernels() -> Iterator[Any]:
    """The kernels that are functions of modules: those with SIGNATURES by function, for blocks of THREADS."""
    for found in pkgutil.walk_packages(cuda.alignment.__path__, "cuda.alignment."):
        module = import_module(found.name)
        for function, signature in getattr(module, "SIGNATURES", {}).items():
            if callable(function) and function.__module__ == found.name:
                label = f"{found.name.removeprefix('cuda.alignment.')}.{function.__name__}"
                yield pytest.param(function, signature, module.THREADS, id=label)


def name(part: object) -> str:
    if isinstance(part, Launch):
        layout = part.layout
        return f"{layout.lanes} lanes of {layout.columns}, {part.blocks} blocks of {part.threads}"
    return str(part)


def test_all_tables_are_read() -> None:
    assert "default" in TABLES and "nvidia_h200" in TABLES
    assert {kind for kind, _ in launches()} == set(SIGNATURES)


@capabilities
@pytest.mark.parametrize(("kind", "launch"), launches(), ids=name)
def test_gapless(
    assert_compiles: Callable[..., None],
    tmp_path: Path,
    kind: Kind,
    launch: Launch,
    capability: tuple[int, int],
) -> None:
    arithmetic = BYTE if kind in ("bounds", "bordered") else HALF
    variant = Variant(kind, launch.layout, arithmetic, capability >= (9, 0))
    bounds = (launch.threads, launch.blocks)
    function = generated_function(source(variant), variant.name, tmp_path, bounds)
    assert_compiles(function, SIGNATURES[kind], capability, bounds)


@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
@pytest.mark.parametrize("kind", ["exact", "listed"])
def test_short_integers(assert_compiles: Callable[..., None], tmp_path: Path, kind: Kind, lanes: int) -> None:
    variant = Variant(kind, Layout(lanes, 64), SHORT, True)
    function = generated_function(source(variant), variant.name, tmp_path, (256, 2))
    assert_compiles(function, SIGNATURES[kind], (9, 0), (256, 2))


@capabilities
@pytest.mark.parametrize(
    ("function", "signature", "threads"),
    [
        pytest.param(gapless_wide, WIDE_SIGNATURE, WIDE_THREADS, id="gapless.wide.gapless_wide"),
        pytest.param(
            list_stretches, STRETCHES_SIGNATURE, STRETCHES_THREADS, id="gapless.stretches.list_stretches"
        ),
        pytest.param(fill_unbounded, FILL_SIGNATURE, FILL_THREADS, id="gapless.border.fill_unbounded"),
        *plain_kernels(),
    ],
)
def test_plain_kernels(
    assert_compiles: Callable[..., None],
    function: Callable[..., None],
    signature: Any,
    threads: int,
    capability: tuple[int, int],
) -> None:
    assert_compiles(function, signature, capability, (threads, 1))
