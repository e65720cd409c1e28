"""Tests of passes on GPUs: no synchronisation, memory within the plan and the limit, several GPUs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from foldcli.families.alphafold2_networks import start_within
from foldcli.pipeline.network.device import NetworkMemory
from model.alphafold2.modules.config import model_config
from model.alphafold2.recycling import RecyclingSettings, feature_tensors, predict, start_prediction
from model.checkpoints.alphafold2 import build_network
from model.errors import OutOfMemory
from model.prediction import Prediction
from tests.model.gpu_passes import check_peak_memory, synchronisation_fails

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]
GPU = torch.device("cuda")


@pytest.mark.parametrize("kernels", ["fused", "reference"])
@pytest.mark.parametrize(("name", "templates"), [("model_3_ptm", 0), ("model_1_ptm", 2)])
def test_passes_do_not_synchronise_with_the_gpu(
    make_features: Any, name: str, templates: int, kernels: str
) -> None:
    config = model_config(name).with_blocks(1, 1)
    network = build_network(config, random_parameters(config), GPU, torch.bfloat16, kernels)
    features = make_features(residues=40, templates=templates, iterations=2)
    features["extra_msa_mask"][:, -1] = 0
    with torch.inference_mode():
        # the first pass copies tables to the GPU and compiles
        tensors = feature_tensors(features, 0, GPU)
        output = network.run_pass(tensors, network.initial_state(tensors))
        with pytest.raises(RuntimeError, match="synchronizing"), synchronisation_fails():
            output.positions.cpu()
        # the second pass captures its blocks, the third one replays them
        with synchronisation_fails():
            for _ in range(2):
                tensors = feature_tensors(features, 1, GPU)
                last = network.run_pass(tensors, output.recycled_state())
        assert torch.isfinite(last.positions).all()


def test_predictions_that_overlap_equal_separate_ones(make_features: Any) -> None:
    config = model_config("model_3_ptm").with_blocks(1, 2)
    network = build_network(config, random_parameters(config), GPU, torch.bfloat16, "fused")
    targets = [make_features(residues=n, iterations=3) for n in (90, 40, 200, 40)]
    settings = RecyclingSettings(2)
    expected = [predict(network, features, settings) for features in targets]
    reported: list[int] = []
    with synchronisation_fails():
        collects = [
            start_prediction(network, x, settings, lambda done, total: reported.append(done)) for x in targets
        ]
    # of three passes, two are still queued
    assert reported == [1] * 4
    for collect, separate in zip(reversed(collects), reversed(expected), strict=True):
        prediction = collect()
        assert prediction.tolerances == separate.tolerances and prediction.ptm == separate.ptm
        for name in ("atom_positions", "plddt", "pae", "aatype"):
            assert np.array_equal(getattr(prediction, name), getattr(separate, name))
    assert len(reported) == 12


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_threads_predict_on_a_gpu_that_is_not_their_current_one(make_features: Any) -> None:
    config = model_config("model_3_ptm").with_blocks(1, 2)
    features = make_features(residues=60, iterations=3)
    devices = [torch.device("cuda", index) for index in (0, 1)]
    networks = [
        build_network(config, random_parameters(config), device, torch.bfloat16, "fused")
        for device in devices
    ]
    # the current device of a new thread is the first GPU; the third pass replays graphs
    with ThreadPoolExecutor(1) as thread:
        first, second = (
            thread.submit(predict, network, features, RecyclingSettings(2)).result() for network in networks
        )
    assert np.array_equal(first.atom_positions, second.atom_positions)
    assert networks[1].evoformer.evoformer_blocks.enabled
    assert torch.cuda.current_device() == 0


def test_peak_memory_is_within_the_plan(make_features: Any) -> None:
    config = model_config("model_3_ptm").with_blocks(1, 1)
    network = build_network(config, random_parameters(config), GPU, torch.bfloat16, "fused")
    features = make_features(residues=700, rows=60, extra=400, iterations=2)
    check_peak_memory(network, features)


def test_target_that_does_not_fit_leaves_the_gpu_usable(make_features: Any) -> None:
    config = model_config("model_3_ptm").with_blocks(1, 1)
    network = build_network(config, random_parameters(config), GPU, torch.bfloat16, "fused")
    long, short = (make_features(residues=n, iterations=1) for n in (900, 60))
    torch.cuda.empty_cache()
    memory = NetworkMemory("cuda:0", torch.cuda.memory_allocated() + 2**29)

    def run(features: dict[str, np.ndarray]) -> Prediction:
        return start_within(memory, "t", network, features, RecyclingSettings(0), lambda done, total: None)()

    memory.limit()
    try:
        with pytest.raises(OutOfMemory, match=r"^900 residues, [\d.]+ .iB more; without .* free"):
            run(long)
        assert np.isfinite(run(short).atom_positions).all()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    memory = NetworkMemory("cuda:0")
    assert np.isfinite(run(long).atom_positions).all()
