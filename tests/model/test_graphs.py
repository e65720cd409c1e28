"""Recorded blocks give what blocks give, whatever comes between; what cannot be recorded runs as it is."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from model import graphs
from model.alphafold import AlphaFold, Pass
from model.config import model_config
from model.graphs import Recorded
from model.parameters import random_parameters
from model.recycling import feature_tensors

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")
GPU = torch.device("cuda:0")


class Add(nn.Module):
    """Adds y to x in place and counts how often Python gets here."""

    calls = 0

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls += 1
        x += y
        return x, y


class Refuses(Add):
    """Cannot be recorded."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("operation not permitted when stream is capturing")
        return super().forward(x, y)


def sums(recorded: Recorded, device: torch.device, times: int) -> list[float]:
    """What calls with x = 0, 1, 2 … and y = 10 give."""
    found = []
    for start in range(times):
        x, y = torch.full((3,), float(start), device=device), torch.full((3,), 10.0, device=device)
        found.append(float(recorded(5, x, y)[0][0]))
    return found


def test_on_the_cpu_modules_are_called_every_time() -> None:
    add = Add()
    assert sums(Recorded([add, add]), torch.device("cpu"), 3) == [20.0, 21.0, 22.0]
    assert add.calls == 6


@needs_gpu
def test_calls_are_recorded_in_the_second_round() -> None:
    add = Add()
    recorded = Recorded([add, add])
    assert sums(recorded, GPU, 5) == [20.0, 21.0, 22.0, 23.0, 24.0]
    assert add.calls == 4
    # another shape begins anew
    for _ in range(4):
        x, _ = recorded(5, torch.zeros(4, device=GPU), torch.ones(4, device=GPU))
        assert float(x[3]) == 2.0
    assert recorded.possible and add.calls == 8
    # and so does a module with a hook
    handle = add.register_forward_hook(lambda *given: None)
    assert sums(recorded, GPU, 2) == [20.0, 21.0] and add.calls == 12
    handle.remove()
    # and what is long is never recorded
    with patch.object(graphs, "LONGEST", 4):
        assert sums(recorded, GPU, 3) == [20.0, 21.0, 22.0] and add.calls == 18


@needs_gpu
def test_a_result_is_not_overwritten() -> None:
    recorded = Recorded([Add()])
    results = [
        recorded(5, torch.full((3,), float(i), device=GPU), torch.ones(3, device=GPU)) for i in range(4)
    ]
    assert [float(x[0]) for x, _ in results] == [1.0, 2.0, 3.0, 4.0]


@needs_gpu
def test_what_cannot_be_recorded_runs() -> None:
    recorded = Recorded([Add(), Refuses()])
    assert sums(recorded, GPU, 4) == [20.0, 21.0, 22.0, 23.0]
    assert not recorded.possible


@needs_gpu
@pytest.mark.parametrize(("name", "templates"), [("model_3_ptm", 0), ("model_1_ptm", 2)])
def test_recorded_passes_have_the_same_bits(make_features: Any, name: str, templates: int) -> None:
    config = model_config(name).with_blocks(3, 2)
    arrays = random_parameters(config)
    features = make_features(residues=50, rows=20, extra=30, templates=templates, iterations=4)
    features["extra_msa_mask"][:, -1] = 0

    def passes(longest: int) -> tuple[AlphaFold, list[Pass]]:
        network = AlphaFold.from_parameters(config, arrays, GPU, torch.bfloat16, "fused")
        found: list[Pass] = []
        with torch.inference_mode(), patch.object(graphs, "LONGEST", longest):
            for iteration in range(4):
                tensors = feature_tensors(features, iteration, GPU)
                previous = found[-1].recycled() if found else network.first_recycled(tensors)
                found.append(network.run_pass(tensors, previous))
        return network, found

    _, plain = passes(0)
    network, recorded = passes(graphs.LONGEST)
    for blocks in (network.evoformer.extra_msa_blocks, network.evoformer.evoformer_blocks, network.folding):
        assert blocks.possible and len(blocks._graphs) == len(blocks.calls)
    for a, b in zip(plain, recorded, strict=True):
        assert torch.equal(a.representations.pair, b.representations.pair)
        assert torch.equal(a.representations.msa, b.representations.msa)
        assert torch.equal(a.positions, b.positions)
