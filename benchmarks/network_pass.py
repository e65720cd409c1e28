"""Time and peak memory of passes of AlphaFold2 networks, with random parameters and features.

    python benchmarks/network_pass.py [--networks model_3_ptm ...] [--lengths 256 512 1024 2048] [--rows 508]
        [--extra-rows 5120] [--templates 0] [--blocks 48] [--repeats 5] [--warm-up 1] [--device cuda:0]
        [--precision bf16] [--kernels fused] [--threads 1]

Masks are all ones; --templates of four slots are filled. A multimer network gets a complex of two chains of
equal length, and its time includes the sampling of rows, which is also given alone. Times are medians of
--repeats passes after --warm-up others, the first of which compiles kernels that are not in the cache;
"queued" is the time that the CPU needs to launch a pass. With --blocks 1, the peak of memory on a GPU equals
that of all blocks. ColabFold's figures were measured on the same kind of GPU. operations.py times single
operations. --json has the options of colabfold_pass.py, which runs this script.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from options import parse_options
from random_inputs import monomer_features, multimer_features, random_features
from random_parameters import random_parameters

from cuda.fused.chunking import chunk_budget
from foldcli.families.alphafold2_networks import plan_passes
from foldcli.pipeline.network.device import NetworkMemory
from model.alphafold2.modules.config import model_config
from model.alphafold2.modules.embedders import Features
from model.alphafold2.multimer.draws import PhiloxMsaDraws
from model.alphafold2.multimer.inputs import MultimerInputs
from model.alphafold2.network import AlphaFold
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.alphafold2 import build_network

# Seconds and GiB of a pass by residues: alphafold-colabfold 2.3.27 with colabfold-kernels 0.9 (use_pallas),
# model_3_ptm, 508 + 5,120 rows, bf16, without compilation, one NVIDIA H200. Peaks up to 2,048 residues are
# upper bounds.
COLABFOLD = {
    256: (0.207, 3.5), 512: (0.572, 7.5), 1024: (1.866, 17.8), 2048: (7.75, 47.3), 2560: (12.85, 38.5),
    3072: (19.6, 54.7), 4096: (38.8, 90.8),
}  # fmt: skip
COLABFOLD_NETWORKS = {"multimer": "model_1_multimer_v3", "monomer": "model_3_ptm"}
GIB = 2**30
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Measured(NamedTuple):
    """The costs of a network's passes; the plan of memory is 0 on a CPU, where the peak is the process's."""

    seconds: float
    first_seconds: float
    queued_seconds: float
    sampling_seconds: float
    peak_bytes: int
    planned_bytes: int


def times_of(call: Callable[[], Any], device: torch.device) -> tuple[float, float]:
    """Return the seconds that a call takes until the device has finished, and until it is queued."""
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    call()
    queued = time.perf_counter() - start
    synchronize()
    return time.perf_counter() - start, queued


def draw_inputs(
    network: AlphaFold, length: int, options: argparse.Namespace
) -> tuple[dict[str, Any], Callable[[int], Features]]:
    """Return random features, and a function that makes the inputs of a pass from them."""
    device, rows = torch.device(options.device), (options.rows, options.extra_rows)
    if network.config.multimer is not None:
        features = multimer_features(length, options.templates, *rows)
        return features, MultimerInputs(features, network.config.multimer, partial(PhiloxMsaDraws, 0), device)
    has_templates = network.config.template is not None
    features = (
        monomer_features(length, options.templates, *rows)
        if has_templates
        else random_features(length, *rows)
    )
    tensors = feature_tensors(features, 0, device)
    return features, lambda _: tensors


def measure(network: AlphaFold, length: int, options: argparse.Namespace) -> Measured:
    """Run passes and measure them; inputs are drawn for each pass, as in a prediction."""
    device = torch.device(options.device)
    features, inputs = draw_inputs(network, length, options)
    plan = plan_passes(NetworkMemory(options.device), network, features)
    with torch.inference_mode(), chunk_budget(plan and plan.chunk_elements):
        if plan is not None:
            torch.cuda.reset_peak_memory_stats()

        def run(iteration: int) -> None:
            drawn = inputs(iteration)
            network.run_pass(drawn, network.initial_state(drawn))

        passes = [times_of(partial(run, i), device) for i in range(options.warm_up + options.repeats)]
        sampling = [times_of(partial(inputs, i), device)[0] for i in range(options.repeats)]
    seconds, queued = map(median, zip(*passes[options.warm_up :], strict=True))
    if plan is None:
        peak, planned = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    else:
        peak, planned = torch.cuda.max_memory_allocated(), plan.peak_bytes
    return Measured(seconds, passes[0][0], queued, median(sampling), peak, planned)


def make_network(name: str, options: argparse.Namespace) -> AlphaFold:
    """Return a network with random parameters."""
    config = model_config(name)
    config = config.with_blocks(
        min(options.blocks, config.evoformer.blocks), min(options.blocks, config.extra_msa.blocks)
    )
    dtype = DTYPES[options.precision]
    return build_network(
        config, random_parameters(config), torch.device(options.device), dtype, options.kernels
    )


def main() -> None:
    """Print one row for each network and length."""
    options = parse_options(
        __doc__, networks=["model_3_ptm"], lengths=[256, 512, 1024, 2048], rows=508, extra_rows=5120,
        templates=0, blocks=48, repeats=5, warm_up=1, device="cuda:0", precision=tuple(DTYPES),
        kernels=("fused", "reference"), threads=1, json=json.loads,
    )  # fmt: skip
    if options.json is not None:
        vars(options).update(options.json, extra_rows=2048)
        options.kernels = "reference" if options.device == "cpu" else "fused"
        network = make_network(COLABFOLD_NETWORKS[options.network], options)
        print(json.dumps(measure(network, options.length, options)._asdict()))
        return
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    print("| network | residues | pass, s | first | queued | sampling | GiB | planned | ColabFold, s, GiB |")
    for name in options.networks:
        network = make_network(name, options)
        for length in options.lengths:
            try:
                figures = measure(network, length, options)
            except torch.OutOfMemoryError as error:
                print(f"| {name} | {length} | {error}")
                continue
            finally:
                torch.cuda.empty_cache()
            cells = [f"{seconds:.3f}" for seconds in figures[:4]]
            cells += [f"{size / GIB:.1f}" for size in figures[4:]]
            theirs = COLABFOLD.get(length, "") if name == "model_3_ptm" else ""
            print(f"| {name} | {length} | {' | '.join(cells)} | {theirs} |", flush=True)


if __name__ == "__main__":
    main()
