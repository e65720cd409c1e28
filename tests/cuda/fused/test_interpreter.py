"""Where there is no GPU: the kernels' tests under Triton's interpreter, a process for each file."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

FILES = sorted(path.name for path in Path(__file__).parent.glob("test_*_kernel.py"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="the files run as they are")
@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton here")
@pytest.mark.parametrize("name", FILES)
def test_under_the_interpreter(name: str, root: Path) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    path = Path(__file__).with_name(name)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout + run.stderr
