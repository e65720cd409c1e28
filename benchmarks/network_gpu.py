"""Seconds, peak memory and time budget of one pass through model_3_ptm on a GPU, with random parameters.

    python benchmarks/network_gpu.py [--lengths 256,512,1024] [--kernels reference,fused] [--dtype bfloat16]

508 + 5,120 MSA rows, all masks full, the median of five passes after one. The budget is that of one more,
by events around each heavy operation. At the shortest length the representations are compared with the
float32 reference's: relative root mean square.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from functools import wraps
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from network_pass import random_features

import model.alphafold
from model.alphafold import AlphaFold, Representations
from model.config import model_config
from model.kernels import Kernels, select_kernels
from model.parameters import random_parameters
from model.recycling import feature_tensors

ROWS, EXTRA_ROWS = 508, 5120
Events = dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call on the GPU, and its result."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    result = call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3, result


def recording(kernels: Kernels, events: Events) -> Kernels:
    """The same operations, with events around each call."""

    def recorded(name: str, operation: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        @wraps(operation)
        def called(*given: Any, **named: Any) -> torch.Tensor:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            result = operation(*given, **named)
            end.record()
            events[name].append((start, end))
            return result

        return called

    operations = {field.name: getattr(kernels, field.name) for field in fields(kernels)}
    return replace(kernels, **{name: recorded(name, operation) for name, operation in operations.items()})


def build(arrays: dict[str, np.ndarray], kernels: str, dtype: torch.dtype, events: Events) -> AlphaFold:
    """The network with recorded operations."""

    def chosen(name: str, device: torch.device | str) -> Kernels:
        return recording(select_kernels(name, device), events)

    with patch.object(model.alphafold, "select_kernels", chosen):
        return AlphaFold.from_parameters(model_config("model_3_ptm"), arrays, "cuda", dtype, kernels)


def run(network: AlphaFold, length: int, events: Events, title: str) -> Representations:
    """Print a line for one length; what the trunk computes."""
    features = feature_tensors(random_features(length, ROWS, EXTRA_ROWS), 0, torch.device("cuda"))
    with torch.inference_mode():
        previous = network.first_recycled(features)
        torch.cuda.reset_peak_memory_stats()
        first, _ = timed(lambda: network.run_pass(features, previous))
        passes = [timed(lambda: network.run_pass(features, previous)) for _ in range(5)]
        events.clear()
        whole, _ = timed(lambda: network.run_pass(features, previous))
    spent = {
        name: sum(start.elapsed_time(end) for start, end in pairs) / 1e3 for name, pairs in events.items()
    }
    spent["other"] = whole - sum(spent.values())
    budget = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in spent.items())
    median = float(np.median([seconds for seconds, _ in passes]))
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(
        f"{title} N {length}: {median:.3f} s (first {first:.1f} s), peak {peak:.1f} GiB; {budget}", flush=True
    )
    return passes[-1][1].representations


def main() -> None:
    """Print a line for each length and implementation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="256,512,1024")
    parser.add_argument("--kernels", default="reference,fused")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    options = parser.parse_args()
    lengths = sorted(int(n) for n in options.lengths.split(","))
    arrays = random_parameters(model_config("model_3_ptm"))
    events: Events = defaultdict(list)
    exact = build(arrays, "reference", torch.float32, events)
    expected = run(exact, lengths[0], events, "reference float32")
    del exact
    dtype = getattr(torch, options.dtype)
    for kernels in options.kernels.split(","):
        network = build(arrays, kernels, dtype, events)
        for length in lengths:
            title = f"{kernels} {options.dtype}"
            try:
                found = run(network, length, events, title)
            except torch.OutOfMemoryError as error:
                print(f"{title} N {length}: {error}")
                continue
            if length == lengths[0]:
                for name in ("msa", "pair", "single"):
                    a, b = getattr(expected, name).double(), getattr(found, name).double()
                    print(f"  {name}: {float((a - b).norm() / a.norm()):.2e} of float32's")


if __name__ == "__main__":
    main()
