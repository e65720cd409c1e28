"""Time and peak memory of model_3_ptm on a GPU, with random parameters.

    python benchmarks/network_gpu.py [--lengths 256,512,1024,2048] [--repeats 5] [--memory 6144]
                                     [--precision bf16] [--kernels fused]

508 + 5,120 MSA rows, masks of all ones. The time of a pass is the median of --repeats passes after a first
one; with --repeats 0, the time of that first pass. --memory prints the peak of a pass with one block in each
stack, which equals that of all blocks. ColabFold's figures were measured on the same kind of GPU.
operations.py times single operations.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import torch
from fused_timing import Floors
from random_inputs import random_features

from cuda.fused.chunking import chunk_budget
from foldcli.families.alphafold2_networks import plan_passes
from foldcli.pipeline.network.device import NetworkMemory
from model.alphafold2.modules.config import model_config
from model.alphafold2.network import AlphaFold, PassOutput
from model.alphafold2.recycling import feature_tensors
from model.checkpoints.alphafold2 import build_network, random_parameters
from model.planning.memory_plan import MemoryPlan

ROWS, EXTRA_ROWS = 508, 5120

# Seconds and GiB of a pass by residues: alphafold-colabfold 2.3.27 with colabfold-kernels 0.9 (use_pallas),
# model_3_ptm, same MSA rows, bf16, without compilation, one NVIDIA H200. Peaks up to 2,048 residues are upper
# bounds.
COLABFOLD = {
    256: (0.207, 3.5),
    512: (0.572, 7.5),
    1024: (1.866, 17.8),
    2048: (7.75, 47.3),
    2560: (12.85, 38.5),
    3072: (19.6, 54.7),
    4096: (38.8, 90.8),
}
CONFIG = model_config("model_3_ptm")
GPU = torch.device("cuda:0")
MEMORY = NetworkMemory("cuda:0")
GIB, NAN = 2**30, float("nan")
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def time_call(call: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that a call takes on the GPU, and the seconds that the CPU needs to queue it."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin = time.perf_counter()
    start.record()
    call()
    end.record()
    queued = time.perf_counter() - begin
    end.synchronize()
    return start.elapsed_time(end) / 1e3, queued


@contextmanager
def prepared_pass(network: AlphaFold, length: int) -> Iterator[tuple[Callable[[], PassOutput], MemoryPlan]]:
    """Yield a function that runs a pass on random features, and its memory plan, which applies inside."""
    drawn = random_features(length, ROWS, EXTRA_ROWS)
    plan = plan_passes(MEMORY, network, drawn)
    assert plan is not None
    with torch.inference_mode(), chunk_budget(plan.chunk_elements):
        features = feature_tensors(drawn, 0, GPU)
        yield lambda: network.run_pass(features, network.initial_state(features)), plan


def print_pass(network: AlphaFold, length: int, repeats: int) -> None:
    """Print time and memory of a pass as one row, with ColabFold's figures."""
    with prepared_pass(network, length) as (run_pass, plan):
        torch.cuda.reset_peak_memory_stats()
        times = [time_call(run_pass) for _ in range(repeats + 1)]
    peak = torch.cuda.max_memory_allocated() / GIB
    first = times[0][0]
    seconds, queued = (median(column) for column in zip(*times[min(1, repeats) :], strict=True))
    print(
        f"| {network.config.evoformer.blocks} blocks, {comparison_cells(length, seconds, peak, plan)} | "
        f"first {first:.2f} s, queued in {queued:.3f} s |",
        flush=True,
    )


def comparison_cells(length: int, seconds: float, peak: float, plan: MemoryPlan) -> str:
    """Return table cells that compare a pass with ColabFold's."""
    theirs, their_peak = COLABFOLD.get(length, (NAN, NAN))
    return (
        f"{length} | {seconds:.3f} s | ColabFold {theirs} s, {theirs / seconds:.2f} × | "
        f"{peak:.1f} GiB (planned {plan.peak_bytes / GIB:.1f}; ColabFold {their_peak})"
    )


def numbers(text: str) -> list[int]:
    """Parse an option such as 256,512."""
    return sorted(int(number) for number in text.split(",") if number)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lengths", type=numbers, default="256,512,1024,2048")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", type=numbers, default="6144")
    parser.add_argument("--kernels", choices=["fused", "reference"], default="fused")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    options = parser.parse_args()
    arrays = random_parameters(CONFIG)
    Floors.measure()
    torch.cuda.empty_cache()
    network = build_network(CONFIG, arrays, GPU, DTYPES[options.precision], options.kernels)
    shallow = build_network(
        CONFIG.with_blocks(1, 1),
        random_parameters(CONFIG.with_blocks(1, 1)),
        GPU,
        DTYPES[options.precision],
        options.kernels,
    )
    jobs = [partial(print_pass, network, length, options.repeats) for length in options.lengths]
    jobs += [partial(print_pass, shallow, length, 1) for length in options.memory]
    for job in jobs:
        try:
            job()
        except torch.OutOfMemoryError as error:
            print(f"| {job.args[1]} | {error}")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
