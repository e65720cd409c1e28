"""Checks of passes on a GPU that the tests of both kinds of networks share."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from foldcli.families.alphafold2_networks import plan_passes, start_within
from foldcli.pipeline.network.device import NetworkMemory
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import RecyclingSettings


@contextmanager
def synchronisation_fails() -> Iterator[None]:
    """Raise an error for any operation that makes the CPU wait for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check_peak_memory(network: AlphaFold, features: dict[str, np.ndarray]) -> None:
    """Predict with one recycle, and check that the peak memory is within the plan."""
    memory = NetworkMemory("cuda:0")
    plan = plan_passes(memory, network, features)
    assert plan is not None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    start_within(memory, "target", network, features, RecyclingSettings(1), lambda done, total: None)()
    # the plan neglects small tensors
    assert torch.cuda.max_memory_allocated() - before <= 1.05 * plan.peak_bytes + 2**26
