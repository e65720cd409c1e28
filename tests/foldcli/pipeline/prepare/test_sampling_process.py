"""Processes that sample features: their results, and their ends."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from foldcli.pipeline.network import processes
from foldcli.pipeline.prepare.sampling_process import SamplingProcesses
from foldcli.pipeline.processes.shared_arrays import SharedArrays
from msa.alignments.files import parse_alignment

SETTINGS = SamplingSettings(max_seq=2, max_extra_seq=2)


def features() -> dict[str, np.ndarray]:
    rows = ("ACDEFGHIKL", "ACDEFGHIKV", "SCDEFGHIKL", "ACDEFGH---", "WCDEFGHIKL")
    text = "".join(f">{number}\n{row}\n" for number, row in enumerate(rows))
    return make_features([parse_alignment(text.encode())])


def test_processes_return_what_each_caller_asked_for() -> None:
    processes, inputs = SamplingProcesses(2), features()

    def sample(seed: int) -> dict[str, np.ndarray]:
        sampled = processes.sample(inputs, SETTINGS, 2, seed)
        # later calls of the process must not change or free it
        time.sleep(0.05)
        assert isinstance(sampled, SharedArrays)
        return sampled.load()

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(sample, range(8)))
    processes.terminate()
    for seed, result in enumerate(results):
        expected = sample_features(inputs, SETTINGS, 2, seed)
        assert result.keys() == expected.keys()
        assert all(np.array_equal(result[name], expected[name]) for name in expected)


def test_killed_process_is_replaced_for_the_next_call() -> None:
    processes, inputs = SamplingProcesses(1), features()
    processes.sample(inputs, SETTINGS, 1, 0)
    process = processes.pools[0]._services[0].process
    os.kill(process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(processes.sample, inputs, SETTINGS, 1, 1)
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ChildProcessError, match="SIGKILL"):
            call.result(30)
    assert isinstance(processes.sample(inputs, SETTINGS, 1, 2), SharedArrays)
    processes.terminate()
    with pytest.raises(ChildProcessError):
        processes.sample(inputs, SETTINGS, 1, 3)


@pytest.mark.parametrize(
    ("cores", "device", "workers", "expected", "has_gpu"),
    [
        (9, "cpu", 0, 0, True),
        (9, "auto", 0, 0, False),
        (9, "auto", 0, 1, True),
        (9, "cuda:0", 0, 1, True),
        (9, "cuda:0,1", 2, 4, True),
        (7, "cuda:0,1", 2, 2, True),
        (8, "cpu", 2, 4, False),
    ],
)
def test_number_of_processes(
    cores: int, device: str, workers: int, expected: int, has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "available_cores", lambda: cores)
    monkeypatch.setattr(processes, "has_nvidia_hardware", lambda: has_gpu)
    assert processes.sampling_processes(device, workers) == expected
