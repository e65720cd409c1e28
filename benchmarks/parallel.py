"""Time and communication of passes that are divided among several devices.

    python benchmarks/parallel.py --blocks 2                                   # small, on the CPU
    python benchmarks/parallel.py --device cuda --ranks 1 2 --residues 1024 2048 4096 --rows 508 --extra 5120
    python benchmarks/parallel.py ... --blocks 2 8                             # one Evoformer block
    python benchmarks/parallel.py ... --transfers graphs copies --launching free pinned --tokens 1024

For each length and number of ranks it runs `--passes` passes after some that are not counted, with random
parameters and features, and prints

- the median seconds of a pass, and those after which the CPU has launched everything; the speed-up over the
  first number of ranks; on a GPU the largest peak of allocated memory of a rank; and the root mean square
  difference of atom positions to those of the first number of ranks;
- for each kind of communication, per block of the Evoformer stack: received MB and exposed ms of rank 0, the
  time that its computation waited. Communication outside of the stack is counted, too.

--transfers says how several ranks exchange results: "default", as the commands do; "graphs", at once, in CUDA
graphs; "at-once", without graphs, by NCCL; "copies", in pieces by copy engines. --launching pinned pins each
process to one core, beside a process that is always busy. --tokens measures whole predictions of the all-atom
network (on a GPU 4 cycles, 200 steps, 5 samples): "pass" means such a prediction, and blocks are those of the
pairformer. Another prediction, which waits for the GPU after each phase, gives the seconds of each phase, and
those after which the CPU has launched it.

With two numbers of --blocks, all figures per block are differences between the two networks divided by the
number of additional blocks: those of the stack alone, in a few seconds.

Exposed times are measured in a separate pass, without influence on the median. NCCL reads the environment.
"""

import argparse
import gc
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from benchmarks.all_atom_gpu import CYCLES, ROWS, SAMPLES, STEPS, make_inputs, make_network, prediction_size
from benchmarks.options import parse_options
from benchmarks.random_inputs import random_features
from benchmarks.random_parameters import random_parameters
from cuda.fused.chunking import chunk_budget
from model.alphafold2.modules.config import ModelConfig, model_config
from model.alphafold2.recycling import feature_tensors
from model.alphafold3.config import OPENBIND, AlphaFold3Config
from model.alphafold3.network import AlphaFold3
from model.alphafold3.sampling import SeededDraws
from model.checkpoints.alphafold2 import build_network
from model.parallel.all_atom import ParallelAlphaFold3
from model.parallel.communication import MAX_PAIRS_AT_ONCE, Pending, RankGroup
from model.parallel.network import ParallelAlphaFold
from model.planning.alphafold3 import plan_prediction
from model.planning.memory_plan import PassSize, plan_memory

MEGABYTE = 1e6


@dataclass(frozen=True)
class Case:
    """One measurement.

    Args:
        residues: length of the protein.
        ranks: number of processes.
        transfers: see the options.
        launching: "pinned" to share one core with a busy process, or "free".
        all_atom: whether `residues` are tokens of the all-atom network.
        options: of the command line.
        store: file through which the processes meet.
    """

    residues: int
    ranks: int
    transfers: str
    launching: str
    all_atom: bool
    options: argparse.Namespace
    store: str


@dataclass(frozen=True)
class Measured:
    """The result of a rank.

    Args:
        seconds: of each pass.
        launched: seconds of each pass until the CPU has launched everything; empty for all-atom networks.
        peak_bytes: peak of allocated GPU memory, 0 on a CPU.
        traffic: calls, received bytes and seconds that computation waited, by kind of communication, [3].
        positions: [N, 37, 3], Å, after a pass.
    """

    seconds: list[float]
    launched: list[float]
    peak_bytes: int
    traffic: dict[str, np.ndarray]
    positions: np.ndarray


class RecordingGroup(RankGroup):
    """A group that measures the communication of single passes."""

    traffic: dict[str, np.ndarray] | None = None

    @property
    def can_be_captured(self) -> bool:
        """True if blocks shall be replayed as CUDA graphs, whose communication is not measured."""
        return self.traffic is None and super().can_be_captured

    def record(self, run: Callable[[], object]) -> dict[str, np.ndarray]:
        """Run a pass, and return its traffic; see `Measured`."""
        self.traffic, self._events = defaultdict(lambda: np.zeros(3)), []
        run()
        for kind, start, end in self._events:
            end.synchronize()
            self.traffic[kind][2] += start.elapsed_time(end) / 1000
        traffic, self.traffic = dict(self.traffic), None
        return traffic

    def _start_pending(
        self, wait: Callable[[], object], on_gpu: bool, received_bytes: int, kind: str
    ) -> Pending[None]:
        if (traffic := self.traffic) is None:
            return super()._start_pending(wait, on_gpu, received_bytes, kind)
        traffic[kind] += 1, received_bytes, 0

        def timed_wait() -> None:
            if on_gpu:
                # the current stream waits, not the CPU
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                wait()
                end.record()
                self._events.append((kind, start, end))
            else:
                begin = time.perf_counter()
                wait()
                traffic[kind][2] += time.perf_counter() - begin

        return super()._start_pending(timed_wait, on_gpu, received_bytes, kind)


def measure(cases: list[Case], rank: int, results: Any) -> None:
    """Measure cases that differ in launching in one rank, and put the results into a queue."""
    case = cases[0]
    on_gpu = case.options.device == "cuda"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // case.ranks))
    group = None
    if case.ranks > 1:
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=distributed.FileStore(case.store, case.ranks),
            rank=rank,
            world_size=case.ranks,
            timeout=timedelta(minutes=5),
        )
        limits = {"default": MAX_PAIRS_AT_ONCE, "copies": 0}
        group = RecordingGroup(max_pairs_at_once=limits.get(case.transfers, sys.maxsize))
        if on_gpu and (reason := group.open_copies(device)):
            raise SystemExit(f"parallel: {reason}")
    found = []
    for case in cases:
        found.append(measure_case(case, group, device))
        # a group cannot end before the graphs that communicate in it
        gc.collect()
    results.put((rank, found))
    if group is not None:
        distributed.destroy_process_group()


def measure_case(case: Case, group: RecordingGroup | None, device: torch.device) -> list[Measured]:
    """Measure networks with each number of blocks."""
    blocks = case.options.blocks
    if case.all_atom:
        configs = [replace(OPENBIND, pairformer_blocks=n) for n in blocks or [OPENBIND.pairformer_blocks]]
        return [measure_all_atom(case, config, group, device) for config in configs]
    config = model_config(case.options.network)
    networks = [config.with_blocks(n, 1) for n in blocks or ()] or [config]
    return [measure_network(case, network, group, device) for network in networks]


@contextmanager
def shared_core(case: Case, rank: int) -> Iterator[None]:
    """Let all threads of this process share one core with a busy process, if the case says so."""
    if case.launching == "free":
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    core = {cores[rank % len(cores)]}
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(busy.pid, core)
        set_affinity(core)
        yield
    finally:
        busy.kill()
        set_affinity(set(cores))


def set_affinity(cores: set[int]) -> None:
    """Let all threads of this process run on some cores."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # a thread that has ended
            os.sched_setaffinity(int(thread), cores)


def measure_all_atom(
    case: Case, config: AlphaFold3Config, group: RecordingGroup | None, device: torch.device
) -> Measured:
    """Run whole predictions of an all-atom network in one rank."""
    options, on_gpu = case.options, device.type == "cuda"
    precision, kernels = (options.precision, "fused") if on_gpu else ("fp32", "reference")
    network = make_network(config, precision, kernels, device.type)
    size = replace(prediction_size(case.residues, network), on_gpu=on_gpu, ranks=case.ranks)
    if group is not None:
        network = ParallelAlphaFold3(network, group)
    inputs = make_inputs(case.residues, ROWS if on_gpu else 8, device.type)
    plan = plan_prediction(config, size, torch.cuda.mem_get_info(device)[0] if on_gpu else 0)
    if on_gpu:
        # as predictions do
        torch.backends.cuda.matmul.allow_tf32 = options.precision == "bf16"
        torch.cuda.reset_peak_memory_stats()

    def predict() -> np.ndarray:
        samples = network.predict(
            inputs,
            SeededDraws(0),
            cycles=CYCLES if on_gpu else 1,
            steps=STEPS if on_gpu else 2,
            samples=SAMPLES,
            chunk_elements=plan.chunk_elements,
            samples_at_once=plan.samples_at_once,
        )
        array: np.ndarray = samples.positions.cpu().numpy()
        return array

    seconds, positions = [], predict()
    with shared_core(case, 0 if group is None else group.rank):
        for _ in range(options.passes):
            start = time.perf_counter()
            positions = predict()
            seconds.append(time.perf_counter() - start)
    with timed_phases(network, None if group is None else group.rank):
        predict()
    if network.graph_error:
        print(f"    steps or blocks were no CUDA graphs: {network.graph_error}", flush=True)
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    return Measured(seconds, [], peak, {}, positions)


@contextmanager
def timed_phases(network: AlphaFold3, rank: int | None) -> Iterator[None]:
    """Print the seconds of each phase of a prediction, and those until the CPU has launched it."""

    def timed(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = run(*arguments, **options)
            launched = time.perf_counter() - start
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            whole = time.perf_counter() - start
            print(f"    rank {rank or 0}: {name} {whole:.3f} s, launched after {launched:.3f} s", flush=True)
            return result

        return call

    names = ("trunk", "sample", "score")
    for name in names:
        setattr(network, name, timed(name, getattr(network, name)))
    yield
    for name in names:
        delattr(network, name)


def measure_network(
    case: Case, config: ModelConfig, group: RecordingGroup | None, device: torch.device
) -> Measured:
    """Run the passes of one network in one rank."""
    options = case.options
    on_gpu = device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu and options.precision == "bf16" else torch.float32
    kernels = "fused" if on_gpu else "reference"
    network = build_network(config, random_parameters(config), device, dtype, kernels)
    if group is not None:
        network = ParallelAlphaFold(network, group)
    features = random_features(case.residues, options.rows, options.extra)
    chunk = None
    if on_gpu:
        size = PassSize.from_features(network, features, case.ranks)
        plan = plan_memory(config, size, torch.cuda.mem_get_info(device)[0])
        chunk = plan.chunk_elements
        if group is not None and isinstance(network, ParallelAlphaFold):
            chunk, fit = group.least([chunk, plan.graphs])
            network.parallel_trunk.graphs_fit = bool(fit) and case.transfers != "at-once"
        torch.cuda.reset_peak_memory_stats()
    tensors = feature_tensors(features, 0, device)

    with torch.inference_mode():
        first = network.initial_state(tensors)

    def run_pass() -> tuple[float, float, np.ndarray]:
        previous = deepcopy(first)
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        positions = network.run_pass(tensors, previous).positions
        launched = time.perf_counter() - start
        array = positions.cpu().numpy()
        return time.perf_counter() - start, launched, array

    traffic: dict[str, np.ndarray] = {}
    with torch.inference_mode(), chunk_budget(chunk):
        # the second pass captures graphs, the third replays all
        for _ in range(3):
            run_pass()
        with shared_core(case, 0 if group is None else group.rank):
            seconds, launched, positions = zip(*(run_pass() for _ in range(options.passes)), strict=True)
        if group is not None:
            traffic = group.record(run_pass)
        peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    return Measured(list(seconds), list(launched), peak, traffic, positions[-1])


def run_cases(cases: list[Case]) -> list[list[list[Measured]]]:
    """Run the processes of cases that differ in launching.

    Returns:
        The results by case, rank and number of blocks.
    """
    context, ranks = multiprocessing.get_context("spawn"), cases[0].ranks
    results = context.Queue()
    processes = [context.Process(target=measure, args=(cases, r, results), daemon=True) for r in range(ranks)]
    for process in processes:
        process.start()
    found = []
    while len(found) < ranks:
        if any(process.exitcode for process in processes):
            raise SystemExit("parallel: a process has failed")
        if not results.empty():
            found.append(results.get())
        time.sleep(0.05)
    for process in processes:
        process.join()
    by_rank = [measured for _, measured in sorted(found, key=lambda pair: pair[0])]
    return [list(ranks) for ranks in zip(*by_rank, strict=True)]


def per_block(measured: list[Measured], blocks: list[int]) -> tuple[float, dict[str, np.ndarray]]:
    """Return the seconds and the communication of one block.

    Args:
        measured: results of one rank for one or two numbers of blocks.
        blocks: these numbers.
    """
    last = measured[-1]
    first = measured[0] if len(measured) > 1 else Measured([0.0], [0.0], 0, {}, last.positions)
    count = blocks[-1] - (blocks[0] if len(measured) > 1 else 0)
    seconds = (statistics.median(last.seconds) - statistics.median(first.seconds)) / count
    return seconds, {kind: (each - first.traffic.get(kind, 0)) / count for kind, each in last.traffic.items()}


def print_traffic(traffic: dict[str, np.ndarray]) -> None:
    """Print the communication of a block."""
    total = sum(traffic.values(), np.zeros(3))
    for kind, (calls, received, waited) in [
        *sorted(traffic.items(), key=lambda item: -item[1][1]),
        ("all", total),
    ]:
        print(
            f"    {kind:24s} {calls:7.1f} calls {received / MEGABYTE:10.2f} MB "
            f"{waited * 1000:9.3f} ms exposed, per block",
            flush=True,
        )


def main() -> None:
    options = parse_options(
        __doc__, device=("cpu", "cuda"), ranks=[1, 2], residues=[64], network="model_3_ptm",
        precision=("bf16", "fp32"), blocks=[int], rows=16, extra=32, passes=3,
        transfers=[("default", "graphs", "at-once", "copies")], launching=[("free", "pinned")], tokens=[int],
    )  # fmt: skip
    blocks = options.blocks or [model_config(options.network).evoformer.blocks]
    if len(blocks) > 2 or blocks != sorted(set(blocks)):
        raise SystemExit("parallel: --blocks takes one number or two increasing ones")
    numbers = " and ".join(map(str, blocks))
    print(f"{options.network}, {numbers} blocks, {options.rows} + {options.extra} rows, {options.device}")
    for size in options.residues:
        measure_size(options, size, blocks)
    for size in options.tokens or ():
        measure_size(options, size, options.blocks or [OPENBIND.pairformer_blocks], all_atom=True)


def measure_size(
    options: argparse.Namespace, size: int, blocks: list[int], *, all_atom: bool = False
) -> None:
    """Measure all cases of a length, and print them."""
    first: Measured | None = None
    for ranks in options.ranks:
        for transfers in options.transfers if ranks > 1 else [""]:
            with tempfile.TemporaryDirectory() as folder:
                store = str(Path(folder, "store"))
                cases = [
                    Case(size, ranks, transfers, launching, all_atom, options, store)
                    for launching in options.launching
                ]
                for case, measured in zip(cases, run_cases(cases), strict=True):
                    first = first or measured[0][-1]
                    print_case(case, measured, blocks, first)


def print_case(case: Case, measured: list[list[Measured]], blocks: list[int], first: Measured) -> None:
    """Print the results of a case by rank and number of blocks next to those of the first case."""
    last = measured[0][-1]
    seconds = statistics.median(last.seconds)
    speedup = statistics.median(first.seconds) / seconds
    difference = np.sqrt(np.square(last.positions - first.positions).mean())
    peak = max(rank[-1].peak_bytes for rank in measured) / 2**30
    block_seconds, traffic = per_block(measured[0], blocks)
    launched = f"launched after {statistics.median(last.launched):.3f} s, " if last.launched else ""
    print(
        f"{case.residues:5d} {'tokens' if case.all_atom else 'residues'}, {case.ranks} ranks "
        f"{case.transfers}, {case.launching}: {seconds:8.3f} s a pass, "
        f"{launched}"
        f"{speedup:5.2f} × the speed of the first, {block_seconds * 1000:.2f} ms a block, "
        f"peak {peak:.2f} GiB, positions differ by {difference:.1e} Å",
        flush=True,
    )
    print_traffic(traffic)


if __name__ == "__main__":
    main()
