"""Measure the samples per second of training, the peak memory, and the share of time waiting for samples.

    python benchmarks/training.py --data FOLDER --batch 16,32 --crop 128 --seconds 40
    python benchmarks/training.py --config examples/train/alphafold2.yaml --batch 1 --cuda-graphs
    python benchmarks/training.py --batch 1 --crop 1536 --checkpoint-blocks --max-recycles 0 --seconds 0
    torchrun --nproc-per-node 2 benchmarks/training.py --data FOLDER --batch 16 --crop 128 --seconds 40
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # as foldcli train
    python benchmarks/training.py --family openfold3 --crops 384 512 640 768 --profile --peer FOLDER
    torchrun --nproc-per-node 2 benchmarks/training.py --family openfold3 --crops 384

One line for each batch size, counted on one GPU; with torchrun samples per second are those of all GPUs.
Without --data, chains are made up; they are shorter than long crops, which are padded and take as long.

With --family openfold3, a step of an all-atom network of OpenFold3's sizes, optimiser included: made-up
protein, 8 atoms per token, 1,024 rows of alignment, 4 templates, batch 1, one cycle, a rollout of 20 steps.
--profile adds the parts and kernels of a step. --peer FOLDER, with the packages of openfold3 0.5, adds its
step in bfloat16, with its losses and checkpoints, without permutations of atoms: with cuEquivariance if
FOLDER has it, and without. --gigabytes limits the memory of the GPU.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from all_atom_gpu import ATOMS_PER_TOKEN, ROWS, Peer, make_inputs, print_kernels
from options import parse_options

from model.training.alphafold2.task import ChainTask
from model.training.alphafold3 import network as all_atom_pass
from model.training.alphafold3 import task as all_atom_task
from model.training.alphafold3.network import PassSettings
from model.training.alphafold3.permutation import Crop, Experiment, Molecules
from model.training.alphafold3.task import AllAtomTask, AllAtomTrainingSample, AllAtomTrainingSettings
from model.training.data.data import ChainSet, Split, read_split
from model.training.data.prepare import prepare
from model.training.runtime.processes import TrainingProcesses
from model.training.runtime.settings import Phase, TrainingSettings, read_content, settings_of
from model.training.runtime.step import EAGER_CALLS
from model.training.runtime.trainer import StepReport, Trainer

ROOT = Path(__file__).parents[1]
MADE_UP_CHAINS = 16
LOSSES = "plddt", "pde", "pae", "experimentally_resolved", "mse", "bond", "smooth_lddt", "distogram"


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def benchmark_settings(arguments: argparse.Namespace, size: int, processes: int) -> TrainingSettings:
    settings = settings_of(TrainingSettings, read_content(arguments.config), arguments.config)
    losses = settings.phases[arguments.phase].losses
    settings = replace(
        settings,
        batch=size * processes,
        phases=(Phase(steps=10**6, crop=arguments.crop, micro_batch=size, losses=losses),),
        checkpoint_blocks=arguments.checkpoint_blocks,
        cuda_graphs=(settings.cuda_graphs or arguments.cuda_graphs) and not arguments.checkpoint_blocks,
        compile=not arguments.no_compile,
        validate_every=0,
        checkpoint_every=0,
    )
    if arguments.memory_budget is not None:
        settings = replace(settings, memory_budget=arguments.memory_budget)
    if arguments.max_recycles is not None:
        settings = replace(settings, max_recycles=arguments.max_recycles)
    if arguments.kernels is not None:
        settings = replace(settings, kernels=arguments.kernels)
    return settings if arguments.workers is None else replace(settings, workers=arguments.workers)


def made_up_chains(count: int, length: int) -> ChainSet:
    """Return chains of random residues and atoms with alignments of four rows; each is a template of one."""
    random = np.random.default_rng(1)
    residues, steps = count * length, np.arange(length, dtype=np.int16)
    aatype = random.integers(0, 20, residues).astype(np.uint8)
    rows = random.integers(0, 22, (count, 4, length)).astype(np.uint8)
    rows[:, 0] = aatype.reshape(count, length)
    return ChainSet(
        ids=tuple(map(str, range(count))),
        num_full_atom=count,
        chain_offset=np.arange(count + 1) * length,
        aatype=aatype,
        atom14=random.normal(0, 1000, (residues, 14, 3)).astype(np.int16),  # 0.01 Å
        atom_bits=np.full(residues, 0b11111, np.int16),  # the backbone and CB
        break_before=np.zeros(residues, np.uint8),
        group=np.arange(count, dtype=np.int32),
        cluster_size=np.ones(count, np.int32),
        row_offset=np.arange(count) * 4 * length,
        row_count=np.full(count, 4, np.int32),
        tokens=rows.reshape(-1),
        hit_offset=np.arange(count + 1),
        hit_target=((np.arange(count) + 1) % count).astype(np.int32),
        hit_identity=np.full(count, 0.3, np.float32),
        hit_evalue=np.full(count, 1e-5, np.float32),
        column_offset=np.arange(count + 1) * length,
        columns=np.tile(np.stack([steps, steps], axis=1), (count, 1)),
    )


def training_data(arguments: argparse.Namespace) -> tuple[ChainSet, Split]:
    """Return the chains and their division, or made-up chains to train on."""
    if arguments.data is not None:
        chains = prepare(arguments.data, arguments.prepared)
        return chains, read_split(chains, arguments.data)
    none = np.arange(0)
    return made_up_chains(MADE_UP_CHAINS, 200), Split(np.arange(MADE_UP_CHAINS), none, none, none)


def measure(
    arguments: argparse.Namespace, size: int, data: tuple[ChainSet, Split], processes: TrainingProcesses
) -> str:
    """Train for a while and return one line of results."""
    settings = benchmark_settings(arguments, size, processes.count)
    trainer = Trainer(ChainTask(settings, *data, processes), None, processes)
    on_gpu = processes.device.type == "cuda"
    begin = time.monotonic()
    steps = trainer.train()
    # each number of recycles is captured apart, and passes with and without gradients are compiled apart
    calls = EAGER_CALLS + 1 if settings.cuda_graphs else 1
    kinds = settings.max_recycles + 1 if settings.cuda_graphs else min(2, settings.max_recycles + 1)
    warm: Counter[int] = Counter()
    for report in steps:
        warm[min(report.recycles, kinds - 1)] += 1
        if len(warm) == kinds and min(warm.values()) >= calls:
            break
    compiled = time.monotonic() - begin
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    slowest = torch.tensor(max(next(steps).seconds for _ in range(2)), device=processes.device)
    # the sum over all processes, so that all measure the same number of steps
    processes.add(slowest)
    count = max(1, int(arguments.seconds * processes.count / float(slowest)))
    measured = [next(steps) for _ in range(count)]
    seconds = sum(report.seconds for report in measured)
    waited = sum(report.waited for report in measured) / seconds
    by_recycles = []
    for recycles in range(settings.max_recycles + 1):
        step_seconds = [report.seconds for report in measured if report.recycles == recycles]
        by_recycles.append(
            f"{settings.batch * len(step_seconds) / sum(step_seconds):.2f}" if step_seconds else "-"
        )
    numbers_of_recycles = ", ".join(map(str, range(settings.max_recycles + 1)))
    memory = float("nan")
    if on_gpu:
        # the memory of graphs is not counted as allocated
        peak = torch.cuda.max_memory_reserved if settings.cuda_graphs else torch.cuda.max_memory_allocated
        memory = peak() / 2**30
    return (
        f"{processes.count} x {size:3d} samples of {arguments.crop}: "
        f"{settings.batch * count / seconds:7.2f} samples/s "
        f"({numbers_of_recycles} recycles: {', '.join(by_recycles)}), "
        f"{memory:.1f} GiB, waiting {100 * waited:.2f} %, {compiled:.0f} s until compiled"
    )


def complex_sample(tokens: int, device: str) -> AllAtomTrainingSample:
    """Return a made-up protein as dense as real ones; every third residue has two equivalent orders."""
    generator = torch.Generator().manual_seed(0)
    index, count = torch.arange(tokens), ATOMS_PER_TOKEN
    centres = (count * tokens / 0.055) ** (1 / 3) * torch.rand(tokens, 1, 3, generator=generator)
    positions = (centres + 1.5 * torch.randn(tokens, count, 3, generator=generator)).flatten(0, 1)
    zeros = torch.zeros_like(index)
    molecules = Molecules(
        zeros, zeros, index, index, zeros.bool(), index * count + 1, index.repeat_interleave(count)
    )
    orders = torch.arange(count).repeat(2, 1)
    orders[1, -2:] = orders[1, -2:].flip(0)
    symmetries = {(0, 0, residue): orders for residue in range(0, tokens, 3)}
    resolved = torch.ones(len(positions), dtype=torch.bool)
    return AllAtomTrainingSample(
        make_inputs(tokens, ROWS, device),
        Crop(molecules, symmetries),
        Experiment(molecules, positions, resolved),
    )


def timed_parts(totals: dict[str, float]) -> Callable[[], None]:
    """Add the seconds of the parts of a step to totals; return a function that ends it."""
    saved = []
    for module, name in (
        (all_atom_pass, "run_trunk"),
        (all_atom_pass, "rollout"),
        (all_atom_pass, "denoise"),
        (all_atom_pass, "confidence"),
        (all_atom_task, "best_targets"),
        (all_atom_task, "total_loss"),
        (all_atom_task, "run_pass"),
        (torch.Tensor, "backward"),
    ):
        function = getattr(module, name)
        saved.append((module, name, function))

        def timed(*args: Any, function: Any = function, name: str = name, **options: Any) -> Any:
            torch.cuda.synchronize()
            begin = time.monotonic()
            result = function(*args, **options)
            torch.cuda.synchronize()
            totals[name] += time.monotonic() - begin
            return result

        setattr(module, name, timed)

    def end() -> None:
        for module, name, function in saved:
            setattr(module, name, function)

    return end


def show_profile(steps: Iterator[StepReport], rows: int = 32) -> None:
    """Print the parts of a step and its kernels."""
    totals: dict[str, float] = defaultdict(float)
    end = timed_parts(totals)
    next(steps)
    end()
    print("parts, s: " + ", ".join(f"{name} {value:.3f}" for name, value in totals.items()))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as result:
        next(steps)
        torch.cuda.synchronize()
    print_kernels("step", result, rows)


class TrainingPeer(Peer):
    """OpenFold3's network with random parameters, its losses and Adam."""

    def __init__(self, copies: int, cuequivariance: bool, device: str = "cuda", blocks: int | None = None):
        self.copies, self.cuequivariance = copies, cuequivariance
        super().__init__(device, blocks)
        from openfold3.core.loss.loss_module import OpenFold3Loss
        from openfold3.projects.of3_all_atom import model

        model.safe_multi_chain_permutation_alignment = lambda **_: None
        self.network.train().requires_grad_(True)
        self.losses = OpenFold3Loss(self.network.config.architecture.loss_module)
        self.optimizer = torch.optim.Adam(self.network.parameters(), 1e-5)

    def configure(self, config: Any) -> str:
        """Set what its preset "train" sets, and one cycle; return the name of the kernels."""
        config.settings.blocks_per_ckpt, config.settings.ckpt_intermediate_steps = 1, True
        config.settings.memory.train.use_cueq_triangle_kernels = self.cuequivariance
        architecture = config.architecture
        architecture.loss_module.diffusion.chunk_size = 4
        architecture.shared.num_recycles, architecture.shared.diffusion.no_samples = 0, self.copies
        return "openfold3, cuEquivariance" if self.cuequivariance else "openfold3, eager"

    def training_batch(self, sample: AllAtomTrainingSample, tokens: int) -> dict[str, Any]:
        """Return features, a structure and the weights of the losses in the first phase of training."""
        positions, weights = sample.experiment.positions, dict.fromkeys(LOSSES, 1.0)
        weights |= dict.fromkeys(("plddt", "pde", "experimentally_resolved"), 1e-4) | {"mse": 4.0, "pae": 0.0}
        truth = {"atom_positions": positions, "atom_resolved_mask": sample.experiment.resolved.float()}
        return self.batch(tokens) | {
            "ground_truth": {name: x[None].to(self.device) for name, x in truth.items()},
            "loss_weights": {name: torch.tensor([x], device=self.device) for name, x in weights.items()},
        }

    def step(self, batch: dict[str, Any]) -> tuple[float, float]:
        """Run a step; return the loss and the norm of the gradient."""
        self.optimizer.zero_grad()
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.losses(*self.network(dict(batch)))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
        self.optimizer.step()
        return float(loss), float(norm)


def measure_all_atom(arguments: argparse.Namespace, processes: TrainingProcesses) -> dict[int, float]:
    """Print a line for each crop, and return the seconds of a step."""
    passes = PassSettings(copies=arguments.copies, rollout_steps=20, most_cycles=1)
    settings = AllAtomTrainingSettings(learning_rate=1e-5, batch=processes.count, passes=passes)
    device = str(processes.device)
    if arguments.gigabytes:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, arguments.gigabytes * 1e9 / total))
    times: dict[int, float] = {}
    for tokens in arguments.crops:
        sample = complex_sample(tokens, device)
        trainer = Trainer(AllAtomTask(settings, lambda _, x=sample: x, processes), None, processes)
        steps = trainer.train()

        def step(steps: Iterator[StepReport] = steps) -> tuple[float, float]:
            report = next(steps)
            return report.terms["loss"], report.gradient_norm

        line, times[tokens] = measured_steps(step, 4)
        if processes.rank == 0:
            print(f"{processes.count} x {tokens} tokens x {arguments.copies} copies: {line}", flush=True)
        if arguments.profile and times[tokens] < float("inf"):
            show_profile(steps)
        del trainer, steps, step
        torch.cuda.empty_cache()
    return times


def measure_peer(arguments: argparse.Namespace, ours: dict[int, float]) -> None:
    """Print a line for each crop and kernels of OpenFold3."""
    sys.path.append(str(arguments.peer))
    for cuequivariance in (True, False) if find_spec("cuequivariance_torch") else (False,):
        torch.cuda.empty_cache()
        peer = TrainingPeer(arguments.copies, cuequivariance)
        for tokens in arguments.crops:
            batch = peer.training_batch(complex_sample(tokens, "cpu"), tokens)
            # plain PyTorch compiles nothing in its first steps
            count = 3 if cuequivariance else 2
            line, seconds = measured_steps(lambda peer=peer, batch=batch: peer.step(batch), count)
            print(f"{tokens} tokens, {peer.kernels}: {line}, {seconds / ours[tokens]:.2f} x ours", flush=True)
        del peer, batch


def measured_steps(step: Callable[[], tuple[float, float]], count: int) -> tuple[str, float]:
    """Describe the time and peak memory of some steps after a first one, and return the median time."""
    times = []
    try:
        for _ in range(count):
            torch.cuda.reset_peak_memory_stats()
            begin = time.monotonic()
            loss, norm = step()
            torch.cuda.synchronize()
            times.append(time.monotonic() - begin)
    except torch.OutOfMemoryError:
        return "out of memory", float("inf")
    first, *times = times
    return (
        f"{median(times):.3f} s ({min(times):.3f} to {max(times):.3f}, first {first:.1f}), "
        f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB "
        f"({torch.cuda.max_memory_reserved() / 2**30:.1f} with graphs), loss {loss:.3f}, gradient {norm:.3g}"
    ), median(times)


def main() -> None:
    arguments = parse_options(
        __doc__, config=ROOT / "examples/train/compact.yaml", data=Path,
        prepared=Path("/tmp/foldcli-training"), batch=numbers, crop=128, phase=0, seconds=40.0,
        memory_budget=float, checkpoint_blocks=False, cuda_graphs=False, max_recycles=int, no_compile=False,
        kernels=str, workers=int, family=("alphafold2", "openfold3"), crops=[384, 512, 640, 768], copies=48,
        profile=False, peer=Path, gigabytes=float,
    )  # fmt: skip
    processes = TrainingProcesses.from_environment("cuda" if torch.cuda.is_available() else "cpu")
    try:
        if arguments.family == "openfold3":
            times = measure_all_atom(arguments, processes)
            if arguments.peer is not None:
                measure_peer(arguments, times)
            return
        data = training_data(arguments)
        for size in arguments.batch or [16]:
            try:
                line = measure(arguments, size, data, processes)
            except torch.OutOfMemoryError:
                line = f"{processes.count} x {size:3d} samples of {arguments.crop}: out of memory"
            if processes.rank == 0:
                print(line, flush=True)
            if processes.device.type == "cuda":
                torch.cuda.empty_cache()
    finally:
        processes.close()


if __name__ == "__main__":
    main()
