"""Training of the whole AlphaFold2: seconds a sample, and the longest crop that fits into a GPU's memory.

    python benchmarks/training_alphafold.py [--parts speed,length] [--kernels fused,reference] [--graphs]
                                            [--crops 1024,1152] [--seconds 20] [--tiny]

speed: model_3_ptm with 48 blocks, random parameters, crop 256, 128 + 1,024 rows, one sample a step; a step is
one pass of recycling, one pass forward and backward, and the update. Bar: 0.6 s with the fused kernels.
length: two steps with each of --crops, the blocks recomputed in the backward pass, each in a process of its
own. Bar: 1.35 × the longest crop of the reference.

"reference" is plain PyTorch; both are compiled by torch.compile. --graphs captures a step as a CUDA graph.
Chains are made up; crops are padded, which changes neither time nor memory. --tiny runs a tiny network on the
CPU.
"""

import argparse
import subprocess
import sys
import time

import numpy as np
import torch

from model.config import model_config
from model.training.data import Split
from model.training.processes import TrainingProcesses
from model.training.sampling import TrainingSampleSettings
from model.training.settings import LossWeights, Phase, TrainingSettings
from model.training.trainer import StepReport, Trainer
from tests.model.training.helices import helix_chains
from tests.networks import tiny_version

CHAINS, LENGTH = 16, 200
SPEED_BAR = 0.6
# steps with a pass of recycling that are timed at least
MIN_STEPS = 5


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="speed")
    parser.add_argument("--kernels", default="fused,reference")
    parser.add_argument("--crops", default="1024,1152")
    parser.add_argument("--seconds", type=float, default=20.0, help="timed after compilation")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    # one crop of the second part, in a process of its own
    parser.add_argument("--one-crop", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def make_trainer(crop: int, kernels: str, checkpoint_blocks: bool, arguments: argparse.Namespace) -> Trainer:
    """Return a trainer of one sample a step."""
    network = (tiny_version if arguments.tiny else model_config)("model_3_ptm")
    # AlphaFold2's losses of the initial training
    losses = LossWeights(predicted_aligned_error=0.1)
    settings = TrainingSettings(
        network=network,
        batch=1,
        max_recycles=1,
        phases=(Phase(steps=10**6, crop=crop, micro_batch=1, losses=losses),),
        sampling=TrainingSampleSettings(msa_rows=128, extra_rows=1024, templates=0, backbone_rate=0.0),
        validate_every=0,
        checkpoint_every=0,
        checkpoint_blocks=checkpoint_blocks,
        compile=not arguments.tiny,
        cuda_graphs=arguments.graphs,
        kernels=kernels,
        workers=2,
    )
    chains = helix_chains(CHAINS, LENGTH)
    none = np.arange(0)
    split = Split(np.arange(CHAINS), none, none, none)
    processes = TrainingProcesses.from_environment("cuda" if torch.cuda.is_available() else "cpu")
    return Trainer(settings, chains, split, None, processes)


def peak_gib() -> float:
    """Return the peak of the GPU's allocated memory since it was last reset."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else float("nan")


def print_speed(kernels: str, arguments: argparse.Namespace) -> None:
    """Print the seconds a sample with and without a pass of recycling."""
    begin = time.monotonic()
    crop = 16 if arguments.tiny else 256
    steps = make_trainer(crop, kernels, False, arguments).train()
    counts = {0: 0, 1: 0}
    # passes with and without gradients are compiled apart, and captured after two calls
    while min(counts.values()) < 4:
        counts[next(steps).recycles] += 1
    compiled = time.monotonic() - begin
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    reports: list[StepReport] = []
    begin = time.monotonic()
    while time.monotonic() - begin < arguments.seconds or sum(r.recycles for r in reports) < MIN_STEPS:
        reports.append(next(steps))
    seconds = {k: np.median([r.seconds for r in reports if r.recycles == k]) for k in (0, 1)}
    waited = sum(r.waited for r in reports) / sum(r.seconds for r in reports)
    print(
        f"{kernels:10} {seconds[1]:.3f} s a sample with one recycle (bar {SPEED_BAR}), {seconds[0]:.3f} "
        f"without; {peak_gib():.1f} GiB; waiting {100 * waited:.1f} %; {compiled:.0f} s until compiled",
        flush=True,
    )


def print_crop(kernels: str, arguments: argparse.Namespace) -> None:
    """Print whether a crop fits, with the peak memory of two steps."""
    begin = time.monotonic()
    steps = make_trainer(arguments.one_crop, kernels, True, arguments).train()
    try:
        seconds = [next(steps).seconds for _ in range(2)]
    except torch.OutOfMemoryError as error:
        print(f"{kernels:10} crop {arguments.one_crop}: out of memory ({str(error).partition('. ')[0]})")
        return
    print(
        f"{kernels:10} crop {arguments.one_crop}: fits, {peak_gib():.1f} GiB, "
        f"{seconds[-1]:.1f} s for the second step, {time.monotonic() - begin:.0f} s in all"
    )


def main() -> None:
    arguments = parse()
    kinds = arguments.kernels.split(",")
    if arguments.one_crop:
        print_crop(kinds[0], arguments)
        return
    if "speed" in arguments.parts:
        for kernels in kinds:
            print_speed(kernels, arguments)
            torch.cuda.empty_cache()
    if "length" in arguments.parts:
        for kernels in kinds:
            for crop in arguments.crops.split(","):
                command = [sys.executable, __file__, "--kernels", kernels, "--one-crop", crop]
                subprocess.run([*command, *(["--tiny"] if arguments.tiny else [])], check=True)


if __name__ == "__main__":
    main()
