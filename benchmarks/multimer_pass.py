"""Time and peak memory of a pass of AlphaFold-Multimer and of the monomer network with the same rows.

    python benchmarks/multimer_pass.py [--lengths 1024,2048,4096] [--repeats 3] [--templates 0] [--blocks 48]
                                       [--device cuda:0] [--precision bf16] [--kernels fused] [--warm-up 2]

Random parameters and features: a complex of two chains of equal length, 508 sampled and 2,048 extra rows,
--templates of four slots filled. The time is the median of --repeats passes after --warm-up others; that of
the multimer network includes the sampling of its rows, which is also given alone.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from random_inputs import (
    EXTRA_ROWS,
    ROWS,
    SLOTS,
    Arrays,
    monomer_features,
    multimer_features,
    random_features,
)

from cuda.fused.chunking import chunk_budget
from foldcli.families.alphafold2_networks import plan_passes
from foldcli.pipeline.network.device import NetworkMemory
from model.alphafold2.modules.config import model_config
from model.alphafold2.modules.embedders import Features
from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.alphafold2.multimer.inputs import MultimerInputs
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.alphafold2 import build_network, random_parameters

MONOMER, MULTIMER, COLABFOLD_MONOMER = "model_1_ptm", "model_1_multimer_v3", "model_3_ptm"
GIB = 2**30
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Measured(NamedTuple):
    """The costs of a network's passes; memory is 0 on the CPU.

    The first pass compiles kernels that are not in the cache.
    """

    seconds: float
    first_seconds: float
    sampling_seconds: float
    peak_bytes: int
    planned_bytes: int


def measure(
    network: AlphaFold, features: Arrays, inputs: Callable[[int], Features], options: argparse.Namespace
) -> Measured:
    """Run passes and measure them; inputs are drawn for each pass, as in a prediction."""
    plan = plan_passes(NetworkMemory(options.device), network, features)
    with torch.inference_mode(), chunk_budget(plan and plan.chunk_elements):
        if plan is not None:
            torch.cuda.reset_peak_memory_stats()

        def run(iteration: int) -> None:
            drawn = inputs(iteration)
            network.run_pass(drawn, network.initial_state(drawn))

        passes = [
            seconds_of(partial(run, i), options.device) for i in range(options.warm_up + options.repeats)
        ]
        sampling = [seconds_of(partial(inputs, i), options.device) for i in range(options.repeats)]
    peak = 0 if plan is None else torch.cuda.max_memory_allocated()
    planned = 0 if plan is None else plan.peak_bytes
    return Measured(median(passes[options.warm_up :]), passes[0], median(sampling), peak, planned)


def seconds_of(call: Callable[[], Any], device: str) -> float:
    """Return the seconds that a call takes, until the device has finished."""
    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure_one(network_kind: str, options: argparse.Namespace) -> Measured:
    """Measure passes of one length of a network that ColabFold has, too; see colabfold_pass.py."""
    device = torch.device(options.device)
    config = model_config(MULTIMER if network_kind == "multimer" else COLABFOLD_MONOMER)
    config = config.with_blocks(options.blocks, min(4, options.blocks))
    kernels = "reference" if options.device == "cpu" else "fused"
    network = build_network(config, random_parameters(config), device, torch.bfloat16, kernels)
    if config.multimer is not None:
        features = multimer_features(options.length, templates=0)
        inputs = MultimerInputs(features, config.multimer, partial(PhiloxMsaDraws, 0), device)
        return measure(network, features, inputs, options)
    features = random_features(options.length, ROWS, EXTRA_ROWS)
    tensors = feature_tensors(features, 0, device)
    return measure(network, features, lambda _: tensors, options)


def main() -> None:
    """Print one row for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lengths", default="1024,2048,4096")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=2, help="passes that are not counted")
    parser.add_argument("--templates", type=int, choices=range(SLOTS + 1), default=0)
    parser.add_argument("--blocks", type=int, default=48)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precision", choices=list(DTYPES), default="bf16")
    parser.add_argument("--kernels", choices=["fused", "reference"], default="fused")
    parser.add_argument(
        "--json", type=json.loads, help="options of colabfold_pass.py, which runs this script"
    )
    options = parser.parse_args()
    if options.json:
        print(json.dumps(measure_one(options.json["network"], argparse.Namespace(**options.json))._asdict()))
        return
    device = torch.device(options.device)
    networks = []
    for name in (MONOMER, MULTIMER):
        config = model_config(name).with_blocks(options.blocks, min(4, options.blocks))
        arrays = random_parameters(config)
        networks.append(build_network(config, arrays, device, DTYPES[options.precision], options.kernels))
    multimer_config = networks[1].config.multimer
    assert multimer_config is not None
    print("| residues | monomer | multimer | ratio | of it sampling | GiB, both | planned, both |")
    for length in map(int, options.lengths.split(",")):
        features = monomer_features(length, options.templates)
        tensors = feature_tensors(features, 0, device)
        monomer = measure(networks[0], features, lambda _, tensors=tensors: tensors, options)  # type: ignore[misc]
        del tensors
        features = multimer_features(length, options.templates)
        inputs = MultimerInputs(features, multimer_config, partial(PhiloxMsaDraws, 0), device)
        multimer = measure(networks[1], features, inputs, options)
        del inputs
        print(
            f"| {length} | {monomer.seconds:.3f} s | {multimer.seconds:.3f} s | "
            f"{multimer.seconds / monomer.seconds:.3f} | {multimer.sampling_seconds:.3f} s | "
            f"{monomer.peak_bytes / GIB:.1f}, {multimer.peak_bytes / GIB:.1f} | "
            f"{monomer.planned_bytes / GIB:.1f}, {multimer.planned_bytes / GIB:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
