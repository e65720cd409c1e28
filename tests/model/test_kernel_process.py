"""Tests of the process that compiles the network's kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model.config import model_config
from model.kernel_request import KernelRequest

pytest.importorskip("triton")


def test_requests_survive_the_pipe() -> None:
    request = KernelRequest("NVIDIA H200", (9, 0), (model_config("model_3_ptm"),), "bf16", 2)
    assert KernelRequest.from_json(request.to_json()) == request


@pytest.mark.slow
def test_process_ends_with_its_workers_when_nobody_reads_its_status(tmp_path: Path) -> None:
    request = KernelRequest("NVIDIA H200", (9, 0), (model_config("model_3_ptm"),), "bf16", 2)
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "model.kernel_process"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{request.to_json()}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"done": 0, "total": 1, "compiled": 0, "error": ""}
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(workers) >= 2
        process.stdout.close()
        process.wait(timeout=120)
    assert not any(Path(f"/proc/{worker}/exe").exists() for worker in workers)
