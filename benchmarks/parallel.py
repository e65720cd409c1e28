"""Time and communication of passes that are divided among several devices.

    python benchmarks/parallel.py                                              # tiny, on the CPU
    python benchmarks/parallel.py --device cuda --ranks 1 2 --residues 1024 2048 4096 --network model_3_ptm \
        --rows 508 --extra 5120

For each length and number of ranks it runs `--passes` passes after one that is not counted, with random
parameters and features, and prints

- the median seconds of a pass, the speed-up over the first number of ranks, and on a GPU the largest peak of
  allocated memory of a rank; and the root mean square difference of atom positions to those of the first
  number of ranks;
- for each kind of communication, per block of the Evoformer stack: received MB and exposed ms of rank 0, the
  time that its computation waited. Communication outside of the stack is counted, too.

Exposed times are measured in a pass of their own, whose time is not part of the median. NCCL's settings come
from the environment.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from benchmarks.network_pass import random_features
from cuda.fused.chunking import chunk_budget
from model.alphafold import AlphaFold
from model.config import model_config
from model.memory_plan import PassSize, plan_memory
from model.parallel.communication import CommunicationRecord, RankGroup, Traffic
from model.parallel.network import ParallelAlphaFold
from model.parameters import random_parameters
from model.recycling import feature_tensors

MEGABYTE = 1e6


@dataclass(frozen=True)
class Case:
    """One measurement.

    Args:
        residues: length of the protein.
        ranks: number of processes.
        options: of the command line.
        store: file through which the processes meet.
    """

    residues: int
    ranks: int
    options: argparse.Namespace
    store: str


@dataclass(frozen=True)
class Measured:
    """The result of a rank.

    Args:
        seconds: of each pass.
        peak_bytes: peak of allocated GPU memory, 0 on a CPU.
        traffic: communication of one pass by kind.
        positions: [N, 37, 3], Å, after a pass.
    """

    seconds: list[float]
    peak_bytes: int
    traffic: dict[str, Traffic]
    positions: np.ndarray


def measure(case: Case, rank: int, results: Any) -> None:
    """Run the passes of one rank, and put the result into a queue."""
    options = case.options
    on_gpu = options.device == "cuda"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // case.ranks))
    config = model_config(options.network)
    if options.blocks is not None:
        config = config.with_blocks(options.blocks, 1)
    dtype = torch.bfloat16 if on_gpu and options.precision == "bf16" else torch.float32
    kernels = "fused" if on_gpu else "reference"
    network = AlphaFold.from_parameters(config, random_parameters(config), device, dtype, kernels)
    group = None
    if case.ranks > 1:
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=distributed.FileStore(case.store, case.ranks),
            rank=rank,
            world_size=case.ranks,
            timeout=timedelta(minutes=5),
        )
        group = RankGroup()
        network = ParallelAlphaFold(network, group)
    features = random_features(case.residues, options.rows, options.extra)
    chunk = None
    if on_gpu:
        size = PassSize.from_features(network, features, case.ranks)
        chunk = plan_memory(config, size, torch.cuda.mem_get_info(device)[0]).chunk_elements
    tensors = feature_tensors(features, 0, device)
    seconds = []
    with torch.inference_mode(), chunk_budget(chunk):
        for index in range(options.passes + 2):
            if group is not None and index == options.passes + 1:
                group.record = CommunicationRecord()
            if on_gpu:
                torch.cuda.synchronize()
            start = time.perf_counter()
            positions = network.run_pass(tensors, network.initial_state(tensors)).positions.cpu()
            seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    traffic = {} if group is None or group.record is None else group.record.totals()
    results.put((rank, Measured(seconds[1:-1], peak, traffic, positions.numpy())))
    if group is not None:
        distributed.destroy_process_group()


def run_case(case: Case) -> list[Measured]:
    """Run the processes of a case; return the results by rank."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=measure, args=(case, r, results)) for r in range(case.ranks)]
    for process in processes:
        process.start()
    found = []
    while len(found) < case.ranks:
        if any(process.exitcode for process in processes):
            raise SystemExit("parallel: a process has failed")
        if not results.empty():
            found.append(results.get())
        time.sleep(0.05)
    for process in processes:
        process.join()
    return [measured for _, measured in sorted(found, key=lambda pair: pair[0])]


def print_traffic(traffic: dict[str, Traffic], blocks: int) -> None:
    """Print the communication of a pass per block."""
    total = Traffic(
        sum(t.calls for t in traffic.values()),
        sum(t.received_bytes for t in traffic.values()),
        sum(t.exposed_seconds for t in traffic.values()),
    )
    for kind, t in [*sorted(traffic.items(), key=lambda item: -item[1].received_bytes), ("all", total)]:
        print(
            f"    {kind:24s} {t.calls / blocks:7.1f} calls {t.received_bytes / MEGABYTE / blocks:10.2f} MB "
            f"{t.exposed_seconds * 1000 / blocks:9.3f} ms exposed, per block",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--residues", type=int, nargs="+", default=[64])
    parser.add_argument("--network", default="demo")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16", help="on a GPU")
    parser.add_argument("--blocks", type=int, help="Evoformer blocks, if not those of the network")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--extra", type=int, default=32)
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    blocks = options.blocks or model_config(options.network).evoformer.blocks
    print(f"{options.network}, {blocks} blocks, {options.rows} + {options.extra} rows, {options.device}")
    for residues in options.residues:
        first: Measured | None = None
        for ranks in options.ranks:
            with tempfile.TemporaryDirectory() as folder:
                measured = run_case(Case(residues, ranks, options, str(Path(folder, "store"))))
            seconds = statistics.median(measured[0].seconds)
            first = first or measured[0]
            speedup = statistics.median(first.seconds) / seconds
            difference = np.sqrt(np.square(measured[0].positions - first.positions).mean())
            peak = max(rank.peak_bytes for rank in measured) / 2**30
            print(
                f"{residues:5d} residues, {ranks} ranks: {seconds:8.3f} s a pass, {speedup:5.2f} × the "
                f"speed of {options.ranks[0]}, peak {peak:.2f} GiB, positions differ by {difference:.1e} Å",
                flush=True,
            )
            print_traffic(measured[0].traffic, blocks)


if __name__ == "__main__":
    main()
