"""The GPU engine under numba's simulator, in a process of its own: the same hits as the CPU's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compare_engines.py")


WAYS = (
    "kernels", "chosen, passing through", "chosen, resident", "resident", "clusters",
    "clusters in several chunks", "another matrix, iterated",
    "several chunks", "streamed", "no memory for scores", "no memory for two paths",
    "no memory in the middle of chunk 1", "no memory in the middle of chunk 3",
    *(f"no memory at allocation {at}" for at in range(1, 12, 2)),
)  # fmt: skip


def test_equals_the_cpu(root: Path, tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(root)}
    result = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    equal = dict(line.split(": ") for line in result.stdout.splitlines())
    assert set(equal) == set(WAYS) and all(int(hits) >= 5 for hits in equal.values()), equal


def test_a_gpu_asked_for_and_not_there_is_said(root: Path, tmp_path: Path) -> None:
    from msa.gpu.devices import GpuUnavailable, find_gpu

    try:
        find_gpu()
    except GpuUnavailable:
        pass
    else:
        pytest.skip("this machine has a GPU")
    (tmp_path / "a.fasta").write_text(">a\nMKVLAAGIVG\n")
    result = subprocess.run(
        [sys.executable, "-m", "foldcli", "search", "a.fasta", "a.fasta", "-o", "-", "--device", "cuda"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root), "FOLDCLI_CACHE": str(tmp_path / "c")},
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 4
    assert "foldcli: error: there is no NVIDIA driver" in result.stderr and "Traceback" not in result.stderr
