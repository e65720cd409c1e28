"""Arrays, launches and whole searches through the CUDA driver, with a driver that needs no GPU."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from msa.database.build import BuildSettings, build_database

HERE = Path(__file__).parent


@pytest.fixture
def fake_driver(tmp_path: Path) -> Path:
    """Compile fake_driver.c, and return the folder of the library."""
    triton, compiler = importlib.util.find_spec("triton"), shutil.which("cc")
    if triton is None or triton.origin is None or compiler is None:
        pytest.skip("needs a C compiler, and cuda.h, which Triton has")
    headers = Path(triton.origin).parent / "backends" / "nvidia" / "include"
    library = tmp_path / "driver" / "libcuda.so.1"
    library.parent.mkdir()
    command = [compiler, "-shared", "-fPIC", "-Werror", "-I", headers, HERE / "fake_driver.c", "-o", library]
    subprocess.run(command, check=True)
    return library.parent


def test_searches_use_the_driver_without_numbas_cuda(fake_driver: Path, tmp_path: Path, root: Path) -> None:
    fasta = tmp_path / "targets.fasta"
    fasta.write_text("".join(f">t{k}\n{'MKVLAW' * (k + 3)}\n" for k in range(40)))
    build_database([fasta], tmp_path / "db", BuildSettings(mask=False))
    environment = os.environ | {"LD_LIBRARY_PATH": str(fake_driver), "PYTHONPATH": str(root)}
    command = [sys.executable, HERE / "driver_script.py", tmp_path / "kernels", tmp_path / "db"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.stdout == "False\n", run.stderr
