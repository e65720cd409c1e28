"""Tests of CUDA graphs: results are those of normal calls, and modules that cannot be captured still run."""

import gc
from collections import Counter
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from benchmarks.random_parameters import random_parameters
from cuda.fused.weights import cached_weights
from model.alphafold2.modules.config import model_config
from model.alphafold2.network import AlphaFold, PassOutput
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.alphafold2 import build_network
from model.layers import graphs
from model.layers.graphs import GraphedModules, KeptGraphs, SharedModule

GPU = torch.device("cuda:0")


def needs_gpu(test: Any) -> Any:
    """Mark a test as one that needs a GPU, and skip it without one."""
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
    return pytest.mark.gpu(skip(test))


class Add(nn.Module):
    """A module that adds weighted y to x in place, and notes in a shared list when it is called."""

    def __init__(self, calls: Counter[str], weight: float = 1.0) -> None:
        super().__init__()
        self.calls = calls
        self.weight = nn.Parameter(torch.tensor([weight]), requires_grad=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Add":
        copy = type(self)(self.calls)
        copy.weight = deepcopy(self.weight, memo)
        return copy

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls["all"] += 1
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            self.calls["captured"] += 1
        tenfold = cached_weights("tenfold", (self.weight,), lambda: 10 * self.weight)
        x += self.weight * y + tenfold
        return x, y


class NotCapturable(Add):
    """A module that fails during capture."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = super().forward(x, y)
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("operation not permitted when stream is capturing")
        return x, y


@torch.inference_mode()
def sums(graphed: GraphedModules, device: torch.device, passes: int, size: int = 3) -> list[float]:
    """Return the results of passes with x = 0, 1, 2 … and y = 10, which the modules multiply with weights."""
    results = []
    for start in range(passes):
        x, y = (torch.full((size,), value, device=device) for value in (float(start), 10.0))
        results.append(float(graphed(5, x, y)[0][-1]))
    return results


def stack(device: torch.device, *weights: float) -> tuple[GraphedModules, Counter[str]]:
    """Return modules with weights, which add 20 times their sum, and their calls."""
    calls: Counter[str] = Counter()
    return GraphedModules([Add(calls, weight).to(device) for weight in weights]), calls


def test_modules_are_called_normally_on_the_cpu() -> None:
    graphed, calls = stack(torch.device("cpu"), 1.0, 2.0)
    assert sums(graphed, torch.device("cpu"), 3) == [60.0, 61.0, 62.0]
    assert calls == {"all": 6}


def test_modules_are_repeated() -> None:
    graphed = GraphedModules([Add(Counter(), weight) for weight in (1.0, 2.0)], repeats=3)
    assert sums(graphed, torch.device("cpu"), 2) == [180.0, 181.0]


def test_hooks_of_contained_modules_are_noticed() -> None:
    module = Add(Counter())
    containing = nn.Sequential(module)
    assert not graphs.module_has_hooks(containing)
    module.register_forward_hook(lambda *arguments: None)
    assert graphs.module_has_hooks(containing) and graphs.module_has_hooks(module)


def test_shared_module_gets_weights_and_the_tensors_prepared_from_them() -> None:
    modules = [Add(Counter(), weight) for weight in (1.0, 2.0, 3.0)]

    def added(module: nn.Module) -> float:
        return float(module(torch.zeros(1), torch.full((1,), 10.0))[0])

    with torch.inference_mode():
        shared = SharedModule(modules)
        # nothing is prepared yet, so weights suffice
        assert shared.is_prepared() and shared.load(1) and added(shared.module) == 40.0
        # now the shared module has prepared weights, and others have none
        assert not shared.is_prepared() and not shared.load(2)
        assert [added(module) for module in modules] == [20.0, 40.0, 60.0]
        assert shared.is_prepared()
        for index in (2, 0, 1, 2):
            assert shared.load(index)
            assert added(shared.module) == 20.0 * (index + 1)
        # changed weights have to be prepared again
        modules[0].weight.fill_(4.0)
        assert not shared.load(0) and shared.load(1)
        assert added(modules[0]) == 80.0 and shared.load(0) and added(shared.module) == 80.0


def add_tenfold(weight: torch.Tensor, calls: Counter[str]) -> Any:
    """Return a function that adds an offset to x, and ten times the weight, which is prepared once."""

    def tenfold() -> torch.Tensor:
        calls["prepared"] += 1
        return 10 * weight

    def function(offset: torch.Tensor) -> Any:
        return lambda x: x + offset + cached_weights("tenfold", (weight,), tenfold)

    return function


def kept_results(device: torch.device, calls: Counter[str]) -> list[float]:
    """Return results of four steps with kept graphs, each of which changes weight and offset."""
    graphs, weight, results = KeptGraphs(), torch.zeros(2, device=device), []
    make = add_tenfold(weight, calls)
    for step in range(4):
        weight += 1
        with torch.inference_mode():
            (offset,) = graphs.hold((torch.full((2,), float(100 * step), device=device),))
            function, x = graphs(make(offset), step > 0), torch.zeros(2, device=device)
            for _ in range(3):
                x = function(x)
        results.append(float(x[0]))
    return results


def test_kept_graphs_read_changed_weights_and_values() -> None:
    calls: Counter[str] = Counter()
    assert kept_results(torch.device("cpu"), calls) == [30.0, 360.0, 690.0, 1020.0]
    assert calls["prepared"] == 4


@needs_gpu
def test_kept_graphs_are_captured_once_and_prepare_weights_once_for_a_step() -> None:
    calls: Counter[str] = Counter()
    assert kept_results(GPU, calls) == [30.0, 360.0, 690.0, 1020.0]
    assert calls["prepared"] == 2


def test_values_of_kept_graphs_stay_in_one_place_while_their_shapes_do() -> None:
    graphs = KeptGraphs()
    places = []
    for size in (3, 3, 3, 4, 4):
        values = (torch.full((size,), 7.0), None, (5, torch.ones(1)))
        held = graphs.hold(values)
        assert torch.equal(held[0], values[0]) and held[1:2] == (None,) and held[2][0] == 5
        places.append(held[0].data_ptr())
    assert places[1] == places[2] != places[4]


@needs_gpu
def test_one_module_is_captured_for_all() -> None:
    graphed, calls = stack(GPU, 1.0, 2.0, 3.0)
    # the first pass prepares weights, the second one captures after a call
    assert sums(graphed, GPU, 1) == [120.0] and calls == {"all": 4}
    assert sums(graphed, GPU, 3) == [120.0, 121.0, 122.0] and calls == {"all": 6, "captured": 1}
    # another shape is called once and then captured
    assert sums(graphed, GPU, 3, size=4) == [120.0, 121.0, 122.0] and calls == {"all": 8, "captured": 2}


@needs_gpu
def test_single_module_is_captured_in_the_first_pass() -> None:
    graphed, calls = stack(GPU, 1.0)
    assert sums(graphed, GPU, 4) == [20.0, 21.0, 22.0, 23.0]
    assert calls == {"all": 2, "captured": 1}


@needs_gpu
def test_repeated_module_is_captured_in_the_first_pass() -> None:
    calls: Counter[str] = Counter()
    graphed = GraphedModules([Add(calls, 1.0).to(GPU)], repeats=4)
    assert sums(graphed, GPU, 3) == [80.0, 81.0, 82.0] and calls == {"all": 2, "captured": 1}


@needs_gpu
def test_loading_is_captured_and_notices_changed_weights() -> None:
    graphed, _ = stack(GPU, 1.0, 2.0)
    assert sums(graphed, GPU, 4) == [60.0, 61.0, 62.0, 63.0]
    assert graphed._shared is not None
    assert all(copies._graph is not None for copies in graphed._shared._copies.values())
    graphed.modules[0].weight.fill_(3.0)
    assert sums(graphed, GPU, 3) == [100.0, 101.0, 102.0]


@needs_gpu
def test_hooks_and_long_proteins_prevent_graphs() -> None:
    graphed, calls = stack(GPU, 1.0, 2.0)
    handle = graphed.modules[0].register_forward_hook(lambda *arguments: None)
    assert sums(graphed, GPU, 3) == [60.0, 61.0, 62.0] and calls == {"all": 6}
    handle.remove()
    with patch.object(graphs, "MAX_GRAPH_RESIDUES", 4):
        assert sums(graphed, GPU, 3) == [60.0, 61.0, 62.0] and calls == {"all": 12}
    assert sums(graphed, GPU, 3) == [60.0, 61.0, 62.0] and calls["captured"] == 1


@needs_gpu
@torch.inference_mode()
def test_later_calls_do_not_overwrite_results() -> None:
    graphed, _ = stack(GPU, 0.0)
    results = [
        graphed(5, torch.full((3,), float(i), device=GPU), torch.ones(3, device=GPU)) for i in range(4)
    ]
    assert [float(x[0]) for x, _ in results] == [0.0, 1.0, 2.0, 3.0]


@needs_gpu
def test_modules_that_cannot_be_captured_are_called_normally() -> None:
    calls: Counter[str] = Counter()
    graphed = GraphedModules([NotCapturable(calls, weight).to(GPU) for weight in (1.0, 2.0)])
    assert sums(graphed, GPU, 6) == [60.0, 61.0, 62.0, 63.0, 64.0, 65.0]
    # one attempt in each pass
    assert not graphed.enabled and calls["captured"] == graphs.MAX_FAILURES


@needs_gpu
def test_captures_that_fail_elsewhere_are_not_used() -> None:
    calls: Counter[str] = Counter()
    answers = iter(["", "rank 1: no", "", ""])
    modules = [Add(calls, weight).to(GPU) for weight in (1.0, 2.0)]
    graphed = GraphedModules(modules, share_error=lambda own: own or next(answers))
    # the second pass captures in vain, the third one in earnest
    assert sums(graphed, GPU, 2) == [60.0, 61.0]
    assert graphed._graph is None and graphed.error == "rank 1: no"
    assert sums(graphed, GPU, 2) == [60.0, 61.0]
    assert graphed._graph is not None and calls["captured"] == 2


@needs_gpu
def test_released_graphs_keep_no_memory() -> None:
    gc.collect()
    graphed, _ = stack(GPU, 1.0, 2.0)
    elements, reserved = 2**24, []
    assert sums(graphed, GPU, 3, elements)[0] == 60.0
    for release in (lambda: None, graphed.release):
        release()
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved(GPU))
    # two inputs, and intermediates in memory of the graph
    assert reserved[0] - reserved[1] >= 3 * 4 * elements
    assert sums(graphed, GPU, 3) == [60.0, 61.0, 62.0] and graphed._graph is not None


@needs_gpu
@pytest.mark.parametrize(("name", "templates"), [("model_3_ptm", 0), ("model_1_ptm", 2)])
def test_passes_with_graphs_are_bit_identical(make_features: Any, name: str, templates: int) -> None:
    config = model_config(name).with_blocks(3, 2)
    arrays = random_parameters(config)
    proteins = [
        make_features(residues=residues, rows=rows, extra=30, templates=templates, iterations=4)
        for residues, rows in ((50, 20), (64, 20), (50, 20), (50, 600))
    ]
    for features in proteins[::2]:
        features["extra_msa_mask"][:, -1] = 0

    def run_passes(max_residues: int) -> tuple[AlphaFold, list[PassOutput]]:
        network = build_network(config, arrays, GPU, torch.bfloat16, "fused")
        outputs: list[PassOutput] = []
        with torch.inference_mode(), patch.object(graphs, "MAX_GRAPH_RESIDUES", max_residues):
            # the third protein is as long as the first, and the last has more rows
            for features in proteins:
                previous = network.initial_state(feature_tensors(features, 0, GPU))
                for iteration in range(4):
                    outputs.append(network.run_pass(feature_tensors(features, iteration, GPU), previous))
                    previous = outputs[-1].recycled_state()
        return network, outputs

    _, plain = run_passes(0)
    network, graphed = run_passes(graphs.MAX_GRAPH_RESIDUES)
    for blocks in (
        network.evoformer.extra_msa_blocks,
        network.evoformer.evoformer_blocks,
        network.structure_module.iterations,
    ):
        assert blocks.enabled and blocks._graph is not None
    for a, b in zip(plain, graphed, strict=True):
        assert torch.equal(a.representations.pair, b.representations.pair)
        assert torch.equal(a.representations.msa, b.representations.msa)
        assert torch.equal(a.positions, b.positions)
