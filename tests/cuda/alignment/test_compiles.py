"""Every kernel that a launch table or a module names compiles for GPUs of two ages without local memory.

Needs NVIDIA's compiler libraries, and for registers and spills `ptxas`; neither needs a GPU.
"""

import os
import pkgutil
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba.cuda")

import cuda.alignment
from cuda.alignment.compiled import generated_function
from cuda.alignment.gapless.every_kernel import Compilable, every_kernel
from cuda.alignment.gapless.generator import Kind, Variant, source
from cuda.alignment.gapless.launch_table import launch_table
from cuda.alignment.gapless.layout import SHORT, Layout
from cuda.alignment.gapless.signatures import SIGNATURES

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="the simulator compiles nothing"
)
CAPABILITIES = [(8, 0), (9, 0)]
# removed when the process ends
SOURCES = tempfile.TemporaryDirectory()


def architecture(capability: tuple[int, int]) -> str:
    return f"sm_{capability[0]}{capability[1]}"


def gapless_kernels() -> Iterator[Any]:
    for capability in CAPABILITIES:
        for kernel in every_kernel(capability, Path(SOURCES.name)):
            label = f"{architecture(capability)}-{kernel.name}-{kernel.bounds[1]}x{kernel.bounds[0]}"
            yield pytest.param(capability, kernel, id=label)


def plain_kernels() -> Iterator[Any]:
    """The kernels that are functions of modules: those with SIGNATURES by function, for blocks of THREADS."""
    for found in pkgutil.walk_packages(cuda.alignment.__path__, "cuda.alignment."):
        module = import_module(found.name)
        for function, signature in getattr(module, "SIGNATURES", {}).items():
            if callable(function) and function.__module__ == found.name:
                label = f"{found.name.removeprefix('cuda.alignment.')}.{function.__name__}"
                kernel = Compilable(label, function, signature, (module.THREADS, 1))
                yield from (pytest.param(c, kernel, id=f"{architecture(c)}-{label}") for c in CAPABILITIES)


def test_the_launches_of_every_table_are_compiled() -> None:
    compiled = {(kernel.values[1].name, kernel.values[1].bounds) for kernel in gapless_kernels()}
    for file in (resources.files("cuda.alignment.gapless") / "tuning").iterdir():
        for kind, arithmetic in (("exact", "half"), ("bounds", "byte")):
            for launch in launch_table(file.name.removesuffix(".json"), kind).values():
                size = f"{launch.layout.lanes}x{launch.layout.columns}"
                for maximum in ("half", "integer"):
                    name = f"gapless_{kind}_{arithmetic}_{size}_{maximum}"
                    assert (name, (launch.threads, launch.blocks)) in compiled


@pytest.mark.parametrize(("capability", "kernel"), [*gapless_kernels(), *plain_kernels()])
def test_compiles(
    assert_compiles: Callable[..., None], capability: tuple[int, int], kernel: Compilable
) -> None:
    assert_compiles(kernel.function, kernel.signature, capability, kernel.bounds)


@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
@pytest.mark.parametrize("kind", ["exact", "listed"])
def test_short_integers(assert_compiles: Callable[..., None], tmp_path: Path, kind: Kind, lanes: int) -> None:
    variant = Variant(kind, Layout(lanes, 64), SHORT, True)
    function = generated_function(source(variant), variant.name, tmp_path, (256, 2))
    assert_compiles(function, SIGNATURES[kind], (9, 0), (256, 2))
