"""Tests of ranks that replay modules with communication as graphs, which all of them must do alike."""

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.random_parameters import random_parameters
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.recycling import RecyclingSettings, predict
from model.checkpoints.alphafold2 import build_network
from tests.model.parallel.host_graphs import predict_as_graphs, sum_as_graphs
from tests.rank_processes import RankProcesses


class UnusualError(Exception):
    """An error of a kind that nobody expects."""


def test_no_rank_captures_before_all_are_prepared(ranks: RankProcesses) -> None:
    # with one row, other ranks have none, and prepare no weights
    counts = [1, 7, 1, 7]
    answers = ranks.call(sum_as_graphs, counts, [None] * len(ranks.processes))
    sums, captures, replays, error = answers[0]
    assert all(answer == answers[0] for answer in answers)
    # after the modules, 10, 20 and 30 for each row
    assert sums == [60.0 * count for count in counts for _ in range(3)]
    # one pass prepares the weights, and one with seven rows those of the other ranks
    assert captures == counts and replays == 3 * (2 + 2 + 3 + 3) and error == ""


@pytest.mark.parametrize(
    "error",
    [RuntimeError(), torch.OutOfMemoryError("no"), KeyError("no"), AssertionError("no"), UnusualError()],
)
def test_capture_that_fails_on_one_rank_is_given_up_by_all(ranks: RankProcesses, error: Exception) -> None:
    last = len(ranks.processes) - 1
    for sums, captures, replays, shared in ranks.call(sum_as_graphs, [7, 9], [*[None] * last, error]):
        assert sums == [420.0] * 3 + [540.0] * 3
        # two attempts with seven rows, and the last one with nine
        assert captures == [7, 7, 9] and replays == 0
        assert shared.startswith(f"rank {last}: ")


def test_network_as_graphs_predicts_what_one_process_predicts(
    ranks: RankProcesses, tiny_config: ModelConfig, make_features: Any
) -> None:
    # of two lengths, numbers of rows that give rank 0 the same shapes, and none for other ranks
    sizes = [(9, 1), (9, 8), (9, 7), (13, 8), (9, 8)]
    samples = [make_features(residues=n, iterations=2, rows=rows, extra=rows) for n, rows in sizes]
    network = build_network(tiny_config, random_parameters(tiny_config))
    expected = [predict(network, features, RecyclingSettings(1)).atom_positions for features in samples]
    answers = ranks.call(predict_as_graphs, tiny_config, samples)
    stacks = (tiny_config.extra_msa.blocks, tiny_config.evoformer.blocks)
    for positions, captured, replays in answers:
        # reference kernels prepare nothing, so all passes are replayed
        assert captured == [True, True] and replays == 2 * len(sizes) * sum(stacks)
        for ours, theirs in zip(positions, expected, strict=True):
            assert np.linalg.norm(ours - theirs) < 1e-5 * np.linalg.norm(theirs)
