"""The kernel tests under Triton's interpreter, for machines without a GPU.

The interpreter must be enabled before kernels are imported, so they run in another process.
"""

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.conftest import PytestProcess

FOLDER = Path(__file__).parent


def functions() -> list[str]:
    """Return the test functions of all kernel tests, as FOLDER/FILE::[CLASS::]FUNCTION."""
    found = []
    for path in sorted(FOLDER.glob("*/test_*kernels.py")):
        for node in ast.parse(path.read_text()).body:
            name = getattr(node, "name", "")
            if name.startswith(("test_", "Test")):
                found.append(f"{path.relative_to(FOLDER)}::{name}")
    return found


def marks(function: str) -> list[pytest.MarkDecorator]:
    """Mark all functions slow but one of the smallest kernel."""
    return [] if "layer_norm" in function and "strided" in function else [pytest.mark.slow]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[PytestProcess]:
    """Start the process that runs kernels in the interpreter."""
    process = PytestProcess(TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
    yield process
    process.close()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel tests run on the GPU")
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("function", [pytest.param(name, marks=marks(name)) for name in functions()])
def test_kernel_under_the_interpreter(function: str, interpreter: PytestProcess) -> None:
    interpreter.run(str(FOLDER / function))
