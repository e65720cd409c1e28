"""Every kernel that a launch table names compiles for the oldest and the newest GPU without local memory.

Needs NVIDIA's compiler libraries, and for registers and spills `ptxas`; neither needs a GPU.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

numba_cuda = pytest.importorskip("numba.cuda")
pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="the simulator compiles nothing"
)

CAPABILITIES = [(8, 0), (9, 0)]


@pytest.fixture(scope="module")
def compiler() -> None:
    from numba.cuda.cudadrv import nvrtc, nvvm

    try:
        nvvm.NVVM()
        nvrtc.get_supported_ccs()
    except Exception as error:  # the loader's error differs from release to release
        pytest.skip(f"no NVIDIA compiler libraries: {type(error).__name__}")


def ptx_of(function: object, signature: object, capability: tuple[int, int], bounds: tuple[int, int]) -> str:
    text, _ = numba_cuda.compile_ptx(function, signature, cc=capability, launch_bounds=bounds)
    return str(text)


def assert_no_local_memory(ptx: str, capability: tuple[int, int], folder: Path) -> None:
    assert ".entry" in ptx and ".local" not in ptx
    if shutil.which("ptxas"):
        # the compiler may be newer than ptxas; nothing here needs its version
        path = folder / "kernel.ptx"
        path.write_text(re.sub(r"^\.version .*$", ".version 8.0", ptx, flags=re.MULTILINE))
        arch = f"-arch=sm_{capability[0]}{capability[1]}"
        command = ["ptxas", "-v", arch, str(path), "-o", str(folder / "kernel.cubin")]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, report


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_launch_tables(compiler: None, tmp_path: Path, capability: tuple[int, int]) -> None:
    from cuda.alignment.compiled import generated_function
    from cuda.alignment.gapless.generator import Variant, source
    from cuda.alignment.gapless.launch import PACKED_SIGNATURE
    from cuda.alignment.gapless.launch_table import launch_table
    from cuda.alignment.gapless.layout import HALF

    for launch in {*launch_table("default").values(), *launch_table("NVIDIA H200").values()}:
        variant = Variant(launch.layout, HALF, capability >= (9, 0))
        bounds = (launch.threads, launch.blocks)
        function = generated_function(source(variant), variant.name, tmp_path, bounds)
        assert_no_local_memory(ptx_of(function, PACKED_SIGNATURE, capability, bounds), capability, tmp_path)


def test_short_integers(compiler: None, tmp_path: Path) -> None:
    from cuda.alignment.compiled import generated_function
    from cuda.alignment.gapless.generator import Variant, source
    from cuda.alignment.gapless.launch import PACKED_SIGNATURE
    from cuda.alignment.gapless.layout import SHORT, Layout

    for lanes in (4, 8, 16, 32):
        variant = Variant(Layout(lanes, 64), SHORT, True)
        function = generated_function(source(variant), variant.name, tmp_path, (256, 2))
        assert_no_local_memory(ptx_of(function, PACKED_SIGNATURE, (9, 0), (256, 2)), (9, 0), tmp_path)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_wide(compiler: None, tmp_path: Path, capability: tuple[int, int]) -> None:
    from cuda.alignment.gapless.launch import WIDE_SIGNATURE
    from cuda.alignment.gapless.wide import THREADS, gapless_wide

    assert_no_local_memory(
        ptx_of(gapless_wide, WIDE_SIGNATURE, capability, (THREADS, 1)), capability, tmp_path
    )
