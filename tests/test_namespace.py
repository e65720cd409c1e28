"""The `cuda` namespace, shared with NVIDIA's wheels: both sides import from a checkout and under pytest.

tests/test_packaging.py does the same with a wheel.
"""

import subprocess
import sys
from pathlib import Path

IMPORTS = "import numba.cuda, cuda.bindings, cuda.alignment, cuda.fused; print(cuda.alignment.__file__)"


def test_cuda_imports_under_pytest() -> None:
    import cuda.bindings
    import numba.cuda

    import cuda.alignment

    assert cuda.alignment.__file__ and cuda.bindings.__file__ and numba.cuda.__file__


def test_cuda_imports_from_the_repository_root(root: Path) -> None:
    result = subprocess.run([sys.executable, "-c", IMPORTS], cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(root)
