"""Compiled kernels: numba is imported by the first call."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from msa.base.cpu_kernels.jit import kernel


@kernel
def doubled(number):  # type: ignore[no-untyped-def]
    """Return twice a number."""
    return 2 * number


@kernel
def sum_of_doubled(numbers):  # type: ignore[no-untyped-def]
    """Call another kernel for each number."""
    total = 0
    for number in numbers:
        total += doubled(number)
    return total


def test_kernels_call_each_other_from_several_threads() -> None:
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(sum_of_doubled, [np.arange(4)] * 8)) == [12] * 8
    assert doubled(3) == 6
    assert sum_of_doubled.__doc__ == "Call another kernel for each number."


def test_options_reach_the_compiler() -> None:
    def inverse(number):  # type: ignore[no-untyped-def]
        return 1.0 / number

    assert kernel(inverse, error_model="numpy")(0) == np.inf


def test_numba_is_imported_by_the_first_call(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from msa.alignments.alignment_rows import a3m_rows\n"
        "from msa.profile.statistics import evalues\n"
        "from features.alphafold2.sampling import assign_to_clusters\n"
        "import numpy as np\n"
        "print('numba' in sys.modules)\n"
        "rows = np.zeros((2, 5), np.uint8)\n"
        "assign_to_clusters(rows, rows)\n"
        "print('numba' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert result.stdout.split() == ["False", "True"]


def test_code_that_cannot_be_stored_names_the_folder(tmp_path: Path) -> None:
    code = (
        "import resource\n"
        "from tests.msa.base.cpu_kernels.test_jit import doubled\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
        "try:\n"
        "    doubled(3)\n"
        "except OSError as error:\n"
        "    print(error.filename)\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True
    )
    assert result.stdout.startswith(str(tmp_path)), result.stderr
