"""A pass on a GPU: nothing waits for it, and memory stays within the plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from model.alphafold import AlphaFold
from model.config import model_config
from model.parameters import random_parameters
from model.recycling import feature_tensors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")
GPU = torch.device("cuda")


@contextmanager
def no_waiting() -> Iterator[None]:
    """Any operation that makes the CPU wait for the GPU is an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kernels", ["fused", "reference"])
@pytest.mark.parametrize(("name", "templates"), [("model_3_ptm", 0), ("model_1_ptm", 2)])
def test_nothing_waits_for_the_gpu(make_features: Any, name: str, templates: int, kernels: str) -> None:
    config = model_config(name).with_blocks(1, 1)
    network = AlphaFold.from_parameters(config, random_parameters(config), GPU, torch.bfloat16, kernels)
    features = make_features(residues=40, templates=templates, iterations=2)
    features["extra_msa_mask"][:, -1] = 0
    with torch.inference_mode():
        # the first pass copies tables to the GPU and compiles
        tensors = feature_tensors(features, 0, GPU)
        done = network.run_pass(tensors, network.first_recycled(tensors))
        with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
            done.positions.cpu()
        with no_waiting():
            tensors = feature_tensors(features, 1, GPU)
            again = network.run_pass(tensors, done.recycled())
        assert torch.isfinite(again.positions).all()
