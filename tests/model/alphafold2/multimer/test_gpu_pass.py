"""Tests of multimer passes on a GPU: no synchronisation, the reference's results, memory within the plan."""

from functools import partial

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import model_config
from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.alphafold2.multimer.inputs import MultimerInputs
from model.checkpoints.alphafold2 import build_network
from tests.model.gpu_passes import check_peak_memory, synchronisation_fails

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]
GPU = torch.device("cuda:0")
CONFIG = model_config("model_1_multimer_v3").with_blocks(2, 1)

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def parameters() -> Arrays:
    return random_parameters(CONFIG)


def inputs_on(device: torch.device, features: Arrays) -> MultimerInputs:
    assert CONFIG.multimer is not None
    return MultimerInputs(features, CONFIG.multimer, partial(PhiloxMsaDraws, 0), device)


@pytest.mark.parametrize("kernels", ["fused", "reference"])
def test_passes_and_samples_do_not_synchronise_with_the_gpu(
    parameters: Arrays, complex_features: Arrays, kernels: str
) -> None:
    network = build_network(CONFIG, parameters, GPU, torch.bfloat16, kernels)
    with torch.inference_mode():
        inputs = inputs_on(GPU, complex_features)
        output = network.run_pass(inputs(0), network.initial_state(inputs(0)))
        with synchronisation_fails():
            # the second pass captures its blocks, the third one replays them
            for iteration in (1, 2):
                output = network.run_pass(inputs(iteration), output.recycled_state())
        assert torch.isfinite(output.positions).all()


def test_fused_kernels_give_the_results_of_the_reference(
    parameters: Arrays, complex_features: Arrays
) -> None:
    with torch.inference_mode():
        reference = build_network(CONFIG, parameters)
        expected = reference(inputs_on(torch.device("cpu"), complex_features)(0))
        fused = build_network(CONFIG, parameters, GPU, kernels="fused")
        results = fused(inputs_on(GPU, complex_features)(0))
    for name in ("representations/pair", "representations/single", "predicted_aligned_error/logits"):
        difference = (results[name].cpu() - expected[name]).norm()
        assert difference <= 1e-5 * expected[name].norm(), name


def test_peak_memory_is_within_the_plan(parameters: Arrays, complex_features: Arrays) -> None:
    network = build_network(CONFIG, parameters, GPU, torch.bfloat16, "fused")
    # 704 residues and 1,500 rows
    features = {name: np.repeat(x, 64, axis=_residue_axis(name)) for name, x in complex_features.items()}
    features |= {name: np.tile(features[name], (100, 1)) for name in ("msa", "deletion_matrix")}
    check_peak_memory(network, features)


def _residue_axis(name: str) -> int:
    return 1 if name.startswith("template_") or name in ("msa", "deletion_matrix") else 0
