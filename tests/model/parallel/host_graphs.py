"""Graphs of operations on the CPU, in place of CUDA graphs, and what ranks replay as such."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.random_parameters import random_parameters
from cuda.fused.weights import cached_weights
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.recycling import RecyclingSettings, predict
from model.alphafold3.config import AlphaFold3Config
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.sampling import SeededDraws
from model.checkpoints.alphafold2 import build_network
from model.layers import graphs
from model.layers.graphs import GraphedModules
from model.parallel.all_atom import ParallelAlphaFold3
from model.parallel.communication import RankGroup
from model.parallel.network import ParallelAlphaFold
from tests.model.parallel.cases import all_atom_network, predict_all_atom
from tests.model.parallel.host_driver import HostStream


class HostGraph(TorchDispatchMode):
    """Operations that run when they are captured, and again in the same memory, transfers included."""

    # of the graph that captures now
    current: "HostGraph | None" = None
    # of all graphs
    replays = 0

    def __init__(self) -> None:
        super().__init__()
        self._operations: list[tuple[Any, ...]] = []

    def capture_begin(self, **_: object) -> None:
        """Record all operations from now on."""
        HostGraph.current = self.__enter__()

    def capture_end(self) -> None:
        """Stop to record."""
        HostGraph.current = None
        self.__exit__(None, None, None)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and record an operation."""
        result = function(*args, **(kwargs or {}))
        self._operations.append((function, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        """Run all operations again."""
        HostGraph.replays += 1
        transfers: list[Any] = []
        for function, args, kwargs, results in self._operations:
            if function.namespace == "c10d":
                works = tree_leaves(function(*args, **kwargs))
                transfers += [work for work in works if not isinstance(work, torch.Tensor)]
                continue
            while transfers:
                transfers.pop(0).wait()
            again = tree_leaves(function(*args, **kwargs))
            for result, new in zip(tree_leaves(results), again, strict=True):
                if isinstance(result, torch.Tensor) and result.data_ptr() != new.data_ptr():
                    result.copy_(new)
        for work in transfers:
            work.wait()


@contextmanager
def graphs_on_the_cpu() -> Iterator[None]:
    """Let modules be captured and replayed on the CPU."""
    HostGraph.replays = 0
    with (
        mock.patch.multiple(
            torch.cuda, CUDAGraph=HostGraph, Stream=HostStream, current_stream=HostStream,
            stream=nullcontext, graph_pool_handle=int,
        ),
        mock.patch.object(GraphedModules, "_use_graphs", lambda self, residues, tensors: self.enabled),
    ):  # fmt: skip
        yield
    graphs._capture_resources.cache_clear()


class SumOfRows(nn.Module):
    """A module that adds a prepared weight to this rank's rows, if there are any, and sums all rows.

    Args:
        group: the ranks.
        error: raised by a capture.
        captures: a list to which each capture adds the number of rows.
    """

    def __init__(self, group: RankGroup, error: Exception | None, captures: list[int]) -> None:
        super().__init__()
        self.group, self.error, self.captures = group, error, captures
        self.weight = nn.Parameter(torch.ones(1), requires_grad=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> "SumOfRows":
        return SumOfRows(self.group, self.error, self.captures)

    def forward(self, rows: torch.Tensor, total: torch.Tensor, sequences: torch.Tensor) -> Any:
        """Add 10 to the rows [n], and the sum of all rows to the total [1]; sequences are [N, 0]."""
        if len(rows):
            rows += cached_weights("tenfold", (self.weight,), lambda: 10 * self.weight)
        total += self.group.sum(rows.sum(dim=0, keepdim=True), "test")
        if HostGraph.current is not None:
            self.captures.append(len(sequences))
            if self.error is not None:
                raise self.error
        return rows, total


@torch.inference_mode()
def sum_as_graphs(
    counts: list[int], errors: list[Exception | None]
) -> tuple[list[float], list[int], int, str]:
    """Sum rows that are divided among ranks, three times for each number of rows.

    Args:
        counts: numbers of rows.
        errors: what the captures of each rank raise.

    Returns:
        The sums, the captured numbers of rows, the number of replays, and the error of the modules.
    """
    group, captures, found = RankGroup(), list[int](), []
    modules = [SumOfRows(group, errors[group.rank], captures) for _ in range(3)]
    graphed = GraphedModules(modules, share_error=group.first_error)
    with graphs_on_the_cpu():
        for count in counts:
            for _ in range(3):
                own = group.shards(count).counts[group.rank]
                result = graphed(1, torch.zeros(own), torch.zeros(1), torch.zeros(count, 0))
                found.append(float(result[1]))
        return found, captures, HostGraph.replays, graphed.error


def predict_as_graphs(
    config: ModelConfig, samples: list[dict[str, np.ndarray]]
) -> tuple[list[np.ndarray], list[bool], int]:
    """Predict samples with random parameters as graphs with communication.

    Returns:
        The positions, whether each stack was captured at the end, and the number of replays.
    """
    network = ParallelAlphaFold(build_network(config, random_parameters(config)), RankGroup())
    settings = RecyclingSettings(1)
    with graphs_on_the_cpu():
        positions = [predict(network, features, settings).atom_positions for features in samples]
        captured = [stack._graph is not None for stack in network.parallel_trunk.graphs]
        network.parallel_trunk.release_graphs()
        return positions, captured, HostGraph.replays


def predict_all_atom_as_graphs(config: AlphaFold3Config, inputs: AlphaFold3Inputs) -> tuple[Any, Any, int]:
    """Predict as `predict_all_atom`, with pairformer blocks as graphs; also return the number of replays."""
    with graphs_on_the_cpu():
        samples, trunk = predict_all_atom(config, inputs, 1, len(inputs.token_mask))
        return samples.positions, trunk.pair, HostGraph.replays


def all_atom_graph_error(config: AlphaFold3Config, inputs: AlphaFold3Inputs) -> tuple[str, str]:
    """Compute a trunk whose captures fail in one rank; return the error of both, and after a new trunk."""
    network = ParallelAlphaFold3(deepcopy(all_atom_network(config)), RankGroup(), len(inputs.token_mask))
    end = HostGraph.capture_end

    def fail(graph: HostGraph) -> None:
        end(graph)
        # other ranks wait for the communication of blocks
        if any(function.namespace == "c10d" for function, *_ in graph._operations):
            raise RuntimeError("no graphs here")

    with graphs_on_the_cpu():
        with mock.patch.object(HostGraph, "capture_end", fail if network.group.rank == 1 else end):
            network.trunk(inputs, SeededDraws(3), cycles=2)
        failed, network.graph_error = network.graph_error, ""
        network.trunk(inputs, SeededDraws(3), cycles=2)
    return failed, network.graph_error
