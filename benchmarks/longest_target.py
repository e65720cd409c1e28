"""Check that the longest proteins that the memory plan admits can be predicted.

    python benchmarks/longest_target.py [--gpus 1 2] [--networks model_3_ptm:0 model_1_ptm:4] [--lengths ...]

For each number of GPUs and each network with a number of templates, it predicts a protein of the largest
length whose planned peak fits in the GPUs' free memory, with 508 + 5,120 MSA rows, random parameters and one
recycle. Only one block of each stack runs: the peak is that of all blocks. --lengths gives lengths instead.

It prints the planned peak beside the largest peaks of a GPU's tensors and of the memory that torch reserved
for them, or the allocation that failed, and the seconds of the prediction with these blocks.

--networks: and numbers of templates.
"""

import itertools
import multiprocessing
import tempfile
import time
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import torch
from options import parse_options
from random_inputs import ROWS, monomer_features
from random_parameters import random_parameters
from torch import distributed

from foldcli.families.alphafold2_networks import plan_passes
from foldcli.pipeline.network.device import NetworkMemory
from model.alphafold2.modules.config import ModelConfig, model_config
from model.alphafold2.recycling import RecyclingSettings, predict
from model.checkpoints.alphafold2 import build_network
from model.parallel.communication import RankGroup
from model.parallel.network import ParallelAlphaFold
from model.planning.memory_plan import MIN_CHUNK_ELEMENTS, PassSize, estimate_peak_bytes, usable_bytes

EXTRA_ROWS = 5120
PASSES = 2
GIB = 2**30
# lengths are multiples of this
STEP = 10


def longest(config: ModelConfig, templates: int, gpus: int, available_bytes: int) -> int:
    """Return the largest length whose planned peak fits, with the smallest chunks."""

    def fits(residues: int) -> bool:
        size = PassSize(residues, ROWS + templates, EXTRA_ROWS, templates, ranks=gpus)
        return estimate_peak_bytes(config, size, MIN_CHUNK_ELEMENTS) <= usable_bytes(size, available_bytes)

    length = next(n for n in itertools.count(STEP, STEP) if not fits(n))
    return length - STEP


def predict_rank(
    rank: int, gpus: int, name: str, templates: int, residues: int | None, store: str, results: Any
) -> None:
    """Predict one target in one process, and put a line about it into a queue."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    config = model_config(name).with_blocks(1, 1)
    network = build_network(config, random_parameters(config), device, torch.bfloat16, "fused")
    reason = ""
    if gpus > 1:
        distributed.init_process_group(
            "nccl",
            store=distributed.FileStore(store, gpus),
            rank=rank,
            world_size=gpus,
            timeout=timedelta(minutes=5),
        )
        group = RankGroup()
        reason = group.open_copies(device)
        network = ParallelAlphaFold(network, group)
    memory = NetworkMemory(str(device), ranks=gpus)
    available = memory.available_bytes()
    length = residues or longest(config, templates, gpus, available)
    drawn = monomer_features(length, templates, extra_rows=EXTRA_ROWS)
    features = {name: np.broadcast_to(x, (PASSES, *x.shape[1:])) for name, x in drawn.items()}
    plan = plan_passes(memory, network, features)
    assert plan is not None
    torch.cuda.reset_peak_memory_stats()
    start, outcome = time.perf_counter(), "predicted"
    try:
        predict(network, features, RecyclingSettings(PASSES - 1), None, plan.chunk_elements)
    except torch.OutOfMemoryError as error:
        outcome = f"FAILED, {memory.describe_shortage(str(error))}"
    seconds = time.perf_counter() - start
    peaks = torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB
    results.put(
        f"{name}, {templates} templates, {gpus} GPUs, rank {rank}{reason and f' ({reason})'}: {length} "
        f"residues {outcome}; {plan}, allocated {peaks[0]:.1f}, reserved {peaks[1]:.1f} GiB, {seconds:.1f} s"
    )


def main() -> None:
    """Print a line for each rank of each case."""
    options = parse_options(__doc__, gpus=[1, 2], networks=["model_3_ptm:0", "model_1_ptm:4"], lengths=[0])
    context = multiprocessing.get_context("spawn")
    for gpus, network, length in itertools.product(options.gpus, options.networks, options.lengths):
        name, _, templates = network.partition(":")
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            case = gpus, name, int(templates), length or None, str(Path(folder, "store")), results
            processes = [context.Process(target=predict_rank, args=(rank, *case)) for rank in range(gpus)]
            for process in processes:
                process.start()
            wait([process.sentinel for process in processes])
            for process in processes:
                # a rank whose partner has failed waits for it forever
                process.join(20)
                process.kill()
            if results.empty():
                print(f"{network}, {gpus} GPUs: a process has failed", flush=True)
            while not results.empty():
                print(results.get(), flush=True)


if __name__ == "__main__":
    main()
