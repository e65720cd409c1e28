"""Tests of the network's device: its selection, and predictions within its memory."""

import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from cuda.fused.chunking import CPU_BUDGET, row_slices
from foldcli.errors import SomeTargetsFailed
from foldcli.families.alphafold2_networks import CHUNK_REDUCTION, start_within
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.pipeline.network.device import (
    NetworkMemory,
    choose_device,
    choose_kernels,
    choose_precision,
    choose_rank_device,
)
from foldcli.pipeline.processes.worker_pool import WorkerPool
from model.alphafold2.recycling import RecyclingSettings
from model.checkpoints.alphafold2 import build_network
from model.errors import OutOfMemory
from model.layers.kernels import REFERENCE
from model.prediction import Prediction
from msa.base.errors import MissingError
from tests.foldcli.pipeline.network.tiny_worker import TinyMemory
from tests.networks import tiny_network

CPU = NetworkMemory("cpu")
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB"


def test_gpu_number_beyond_the_last_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose_device("cuda:1") == "cuda:1" and choose_device("cuda") == "cuda:0"
    with pytest.raises(MissingError, match="--device cuda:2: torch finds 2 CUDA GPUs"):
        choose_device("cuda:2")


def test_ranks_get_the_listed_or_first_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert [choose_rank_device("auto", index, 2) for index in range(2)] == ["cuda:0", "cuda:1"]
    assert [choose_rank_device("cuda:3,1", index, 2) for index in range(2)] == ["cuda:3", "cuda:1"]
    assert choose_rank_device("cpu", 1, 2) == "cpu"
    with pytest.raises(
        MissingError, match=r"3 processes need 3 GPUs on this host, but there are 2 \(--device"
    ):
        choose_rank_device("cuda:0,1", 0, 3)
    with pytest.raises(MissingError, match="--device cuda:4"):
        choose_rank_device("cuda:0,4", 1, 2)


def test_precision_and_kernels_without_a_gpu() -> None:
    assert choose_precision(None, "cpu") == "fp32" and choose_precision("bf16", "cpu") == "bf16"
    assert choose_kernels("auto", "cpu") == choose_kernels("reference", "cpu") == "reference"
    with pytest.raises(MissingError, match="--kernels fused: there is no GPU"):
        choose_kernels("fused", "cpu")


class ScarceTransition:
    """A transition whose first `failures` calls run out of memory."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.chunks: list[int] = []

    def __call__(self, x: torch.Tensor, weights: Any) -> torch.Tensor:
        rows = next(row_slices(torch.empty(2**30, device="meta"), 1))
        self.chunks.append(rows.stop - rows.start)
        if len(self.chunks) <= self.failures:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return REFERENCE.add_transition(x, weights)


Predict = Callable[..., Prediction]


@pytest.fixture
def predict() -> Predict:
    """Return a function that predicts a protein of nine residues with a given transition."""

    def predict(transition: ScarceTransition, memory: NetworkMemory = CPU) -> Prediction:
        config = tiny_network()
        kernels = replace(REFERENCE, add_transition=transition)
        network = build_network(config, random_parameters(config), kernels=kernels)
        random = np.random.default_rng(0)
        features = {
            "aatype": random.integers(0, 20, (1, 9)),
            "residue_index": np.arange(9)[None],
            "target_feat": random.random((1, 9, 22), np.float32),
            "msa_feat": random.random((1, 3, 9, 49), np.float32),
            "extra_msa": random.integers(0, 23, (1, 2, 9)),
            "extra_has_deletion": np.zeros((1, 2, 9), np.float32),
            "extra_deletion_value": np.zeros((1, 2, 9), np.float32),
        }
        ignore = lambda done, total: None  # noqa: E731
        return start_within(memory, "target", network, features, RecyclingSettings(0), ignore)()

    return predict


def test_strict_memory_refuses_targets_that_are_not_expected_to_fit(predict: Predict) -> None:
    transition = ScarceTransition(0)
    with pytest.raises(OutOfMemory, match=r"^9 residues: chunks of .* expected at the peak"):
        predict(transition, TinyMemory("cpu", 1 << 16, strict=True))
    assert not transition.chunks
    assert predict(transition, TinyMemory("cpu", 1 << 16)).num_recycles == 0


def lose_gpu(memory: NetworkMemory) -> tuple[bool, bool]:
    """Make a GPU unusable to this process; return whether it was usable before and afterwards."""
    before = memory.is_usable()
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device=memory.device)[torch.tensor([2], device=memory.device)].item()
    return before, memory.is_usable()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_lost_gpu_is_not_usable() -> None:
    pool = WorkerPool(1)
    try:
        assert pool.submit(lose_gpu, NetworkMemory("cuda:0")).result() == (True, False)
    finally:
        pool.close()


def test_second_attempt_uses_smaller_chunks(predict: Predict, caplog: Any) -> None:
    logging.getLogger("foldcli").propagate = True
    enough, scarce = ScarceTransition(0), ScarceTransition(1)
    expected, prediction = predict(enough), predict(scarce)
    assert np.allclose(prediction.atom_positions, expected.atom_positions, atol=1e-4)
    assert scarce.chunks[0] > scarce.chunks[1] == scarce.chunks[0] // CHUNK_REDUCTION
    assert scarce.chunks[1] == CPU_BUDGET // CHUNK_REDUCTION
    messages = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert messages == {"target: memory ran out (20.00 GiB more); trying once more with smaller chunks"}


def test_prediction_fails_when_memory_runs_out_twice(predict: Predict) -> None:
    scarce = ScarceTransition(10)
    with pytest.raises(OutOfMemory, match=r"^9 residues, 20.00 GiB more; tried twice, .*") as caught:
        predict(scarce)
    assert len(scarce.chunks) == 2
    # a traceback would keep the tensors of the failed attempts
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_other_targets_continue_after_memory_ran_out(predict: Predict, tmp_path: Path) -> None:
    failures = Failures(tmp_path, Shard(1, 1))
    done: list[str] = []

    def work(name: str, transition: ScarceTransition) -> None:
        predict(transition)
        done.append(name)

    failures.run([("long", ScarceTransition(10)), ("short", ScarceTransition(0))], work)
    with pytest.raises(SomeTargetsFailed, match="1 of 2"):
        failures.finish()
    assert done == ["short"]
    entry = json.loads((tmp_path / "failures.jsonl").read_text())
    assert entry["target"] == "long"
    assert entry["error"].startswith("not enough memory: 9 residues, 20.00 GiB more")
