"""The Gotoh kernels with most to hold compile for the oldest and the newest GPU without local memory.

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


@pytest.fixture(scope="module")
def compiler() -> None:
    from numba.cuda.cudadrv import nvrtc, nvvm

    try:
        nvvm.NVVM()
        nvrtc.get_supported_ccs()
    except Exception as error:  # the loader's error differs from release to release
        pytest.skip(f"no NVIDIA compiler libraries: {type(error).__name__}")


def assert_no_local_memory(
    function: object, signature: object, capability: tuple[int, int], folder: Path
) -> None:
    ptx, _ = numba_cuda.compile_ptx(function, signature, cc=capability)
    assert ".entry" in ptx and ".local" not in ptx
    if shutil.which("ptxas"):
        # the compiler may be newer than ptxas; nothing here needs its version
        path = folder / "kernel.ptx"
        path.write_text(re.sub(r"^\.version .*$", ".version 8.0", ptx, flags=re.MULTILINE))
        arch = f"-arch=sm_{capability[0]}{capability[1]}"
        command = ["ptxas", "-v", arch, str(path), "-o", str(folder / "kernel.cubin")]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, report


def largest(kind: str) -> list[tuple[int, int]]:
    """Lanes and most columns of each number of lanes in the launch table."""
    from cuda.alignment.gotoh import HOPPER

    columns: dict[int, int] = {}
    for shape in HOPPER.packed + HOPPER.swift if kind == "packed" else HOPPER.wide:
        columns[shape.lanes] = max(columns.get(shape.lanes, 0), shape.columns)
    return sorted(columns.items())


@pytest.mark.parametrize(
    ("kind", "capability"),
    [("packed", (9, 0)), ("wide", (8, 0)), ("wide", (9, 0)), ("traced", (8, 0)), ("traced", (9, 0))],
)
def test_row_kernels(compiler: None, tmp_path: Path, kind: str, capability: tuple[int, int]) -> None:
    from cuda.alignment.gotoh.kernel import SIGNATURES, plain
    from cuda.alignment.gotoh.source import Shape

    for lanes, columns in largest(kind):
        function = plain(kind, Shape(lanes, columns, 128))  # type: ignore[arg-type]
        assert_no_local_memory(function, SIGNATURES[kind], capability, tmp_path)  # type: ignore[index]


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_walk(compiler: None, tmp_path: Path, capability: tuple[int, int]) -> None:
    from cuda.alignment.gotoh.kernel import PACK_SIGNATURE, WALK_SIGNATURE, pack_runs, walk

    assert_no_local_memory(walk, WALK_SIGNATURE, capability, tmp_path)
    assert_no_local_memory(pack_runs, PACK_SIGNATURE, capability, tmp_path)
