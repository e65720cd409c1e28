"""Tests of CUDA graphs: results are those of normal calls, and modules that cannot be captured still run."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from model import graphs
from model.alphafold import AlphaFold, PassOutput
from model.config import model_config
from model.graphs import GraphedModules
from model.parameters import random_parameters
from model.recycling import feature_tensors

GPU = torch.device("cuda:0")


def needs_gpu(test: Any) -> Any:
    """Mark a test as one that needs a GPU, and skip it without one."""
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
    return pytest.mark.gpu(skip(test))


class Add(nn.Module):
    """A module that adds y to x in place and counts its calls."""

    calls = 0

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        x += y
        return x, y


class NotCapturable(Add):
    """A module that fails during capture."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("operation not permitted when stream is capturing")
        return super().forward(x, y)


def sums(graphed: GraphedModules, device: torch.device, calls: int) -> list[float]:
    """Return the results of calls with x = 0, 1, 2 … and y = 10."""
    results = []
    for start in range(calls):
        x, y = torch.full((3,), float(start), device=device), torch.full((3,), 10.0, device=device)
        results.append(float(graphed(5, x, y)[0][0]))
    return results


def test_modules_are_called_normally_on_the_cpu() -> None:
    add = Add()
    assert sums(GraphedModules([add, add]), torch.device("cpu"), 3) == [20.0, 21.0, 22.0]
    assert add.calls == 6


@needs_gpu
def test_modules_are_captured_in_the_second_pass() -> None:
    add = Add()
    graphed = GraphedModules([add, add])
    assert sums(graphed, GPU, 5) == [20.0, 21.0, 22.0, 23.0, 24.0]
    assert add.calls == 4
    # another shape starts over
    for _ in range(4):
        x, _ = graphed(5, torch.zeros(4, device=GPU), torch.ones(4, device=GPU))
        assert float(x[3]) == 2.0
    assert graphed.enabled and add.calls == 8
    # modules with hooks are called normally
    handle = add.register_forward_hook(lambda *arguments: None)
    assert sums(graphed, GPU, 2) == [20.0, 21.0] and add.calls == 12
    handle.remove()
    # and so are modules for long proteins
    with patch.object(graphs, "MAX_GRAPH_RESIDUES", 4):
        assert sums(graphed, GPU, 3) == [20.0, 21.0, 22.0] and add.calls == 18


@needs_gpu
def test_later_calls_do_not_overwrite_results() -> None:
    graphed = GraphedModules([Add()])
    results = [
        graphed(5, torch.full((3,), float(i), device=GPU), torch.ones(3, device=GPU)) for i in range(4)
    ]
    assert [float(x[0]) for x, _ in results] == [1.0, 2.0, 3.0, 4.0]


@needs_gpu
def test_modules_that_cannot_be_captured_are_called_normally() -> None:
    graphed = GraphedModules([Add(), NotCapturable()])
    assert sums(graphed, GPU, 4) == [20.0, 21.0, 22.0, 23.0]
    assert not graphed.enabled


@needs_gpu
@pytest.mark.parametrize(("name", "templates"), [("model_3_ptm", 0), ("model_1_ptm", 2)])
def test_passes_with_graphs_are_bit_identical(make_features: Any, name: str, templates: int) -> None:
    config = model_config(name).with_blocks(3, 2)
    arrays = random_parameters(config)
    features = make_features(residues=50, rows=20, extra=30, templates=templates, iterations=4)
    features["extra_msa_mask"][:, -1] = 0

    def run_passes(max_residues: int) -> tuple[AlphaFold, list[PassOutput]]:
        network = AlphaFold.from_parameters(config, arrays, GPU, torch.bfloat16, "fused")
        outputs: list[PassOutput] = []
        with torch.inference_mode(), patch.object(graphs, "MAX_GRAPH_RESIDUES", max_residues):
            for iteration in range(4):
                tensors = feature_tensors(features, iteration, GPU)
                previous = outputs[-1].recycled_state() if outputs else network.initial_state(tensors)
                outputs.append(network.run_pass(tensors, previous))
        return network, outputs

    _, plain = run_passes(0)
    network, graphed = run_passes(graphs.MAX_GRAPH_RESIDUES)
    for blocks in (
        network.evoformer.extra_msa_blocks,
        network.evoformer.evoformer_blocks,
        network.graphed_structure_module,
    ):
        assert blocks.enabled and len(blocks._graphs) == len(blocks.modules)
    for a, b in zip(plain, graphed, strict=True):
        assert torch.equal(a.representations.pair, b.representations.pair)
        assert torch.equal(a.representations.msa, b.representations.msa)
        assert torch.equal(a.positions, b.positions)
