"""Functions that the ranks of a test group call; see `tests.rank_processes`."""

from functools import cache
from typing import Any

import numpy as np
import torch

from model.alphafold import AlphaFold
from model.config import ModelConfig
from model.parallel.communication import CommunicationRecord, RankGroup
from model.parallel.network import ParallelAlphaFold
from model.parallel.triangle import multiply_factors
from model.parameters import random_parameters
from model.prediction import Prediction
from model.recycling import RecyclingSettings, predict


@cache
def _network(config: ModelConfig) -> AlphaFold:
    """Return a parallel network with random parameters."""
    network = AlphaFold.from_parameters(config, random_parameters(config))
    return ParallelAlphaFold(network, RankGroup())


def predict_together(
    config: ModelConfig, features: dict[str, np.ndarray], settings: RecyclingSettings
) -> Prediction:
    """Predict with random parameters."""
    return predict(_network(config), features, settings)


def multiply(left: torch.Tensor, right: torch.Tensor, outgoing: bool, by_channels: bool) -> Any:
    """Multiply this rank's rows of two factors [M, N, K]; return its rows of the product."""
    group = RankGroup()
    residues = group.shards(left.shape[1])
    rows = residues.of(group.rank)
    return multiply_factors(
        group, residues, left[:, rows].contiguous(), right[:, rows].contiguous(),
        outgoing=outgoing, by_channels=by_channels,
    ).numpy()  # fmt: skip


def exchange_and_return(x: torch.Tensor) -> tuple[Any, Any, dict[str, tuple[int, int]]]:
    """Exchange this rank's rows of x [S, N, C] for columns and back; return both, and the traffic."""
    group = RankGroup()
    group.record = CommunicationRecord()
    sequences, residues = group.shards(x.shape[0]), group.shards(x.shape[1])
    rows = x[sequences.of(group.rank)]
    columns = group.exchange(rows, 1, residues, 0, sequences, "columns").wait()
    back = group.exchange(columns, 0, sequences, 1, residues, "rows").wait()
    totals = {
        kind: (traffic.calls, traffic.received_bytes) for kind, traffic in group.record.totals().items()
    }
    return columns.numpy(), back.numpy(), totals
