"""Tests of the tools that compile kernels without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = """
import sys
from cuda.fused.toolchain import build_driver_extension
build_driver_extension()
print("torch" in sys.modules)
"""


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing")
def test_toolchain_is_loaded_without_torch_and_builds_the_driver_extension(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert found.stdout == "False\n", found.stderr
    assert len(list(tmp_path.glob("*/cuda_utils*.so"))) == 1
