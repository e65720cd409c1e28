"""Seconds and memory of `foldcli predict` for one long protein, on one GPU and divided among several.

    python benchmarks/long_target.py [--residues 4096] [--gpus 1 2] [--tiny] [--options "..."]

The target is a random alignment of 6,000 rows, which fills 508 + 5,120 rows of the network; the network is
model_3_ptm with random parameters and 3 recycles. Kernels and cached features are made before by a run with
one pass of each number of GPUs, which is not counted; `--no-first-run` leaves it out. Python's bytecode is
compiled before, as installers do. For each number it prints the seconds of the whole command and of its
prediction, and the peak memory of a GPU, as done.json states them, the ratio of the predictions to the first
number, and the root mean square difference of the CA atoms to its structure.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import gemmi
import numpy as np
from runs import (
    compile_bytecode,
    network_config,
    python_environment,
    random_alignment,
    write_random_parameters,
)

ROWS = 6000


@dataclass(frozen=True)
class LongRun:
    """One run of the command.

    Args:
        seconds: of the whole command.
        prediction_seconds: of the network's passes.
        peak_gib: peak memory of a GPU, 0 on a CPU.
        positions: [N, 3], the CA atoms, Å.
    """

    seconds: float
    prediction_seconds: float
    peak_gib: float
    positions: np.ndarray


def run(folder: Path, gpus: int, options: list[str]) -> LongRun:
    """Predict the target with a number of GPUs.

    Args:
        folder: of target, parameters, features and results.
        gpus: number of GPUs.
        options: more options.
    """
    out = folder / "out"
    command = [
        sys.executable, "-m", "foldcli", "predict", str(folder / "long.a3m"), "-o", str(out),
        "-q", "--overwrite", "--cache", str(folder / "cache"), "--models", "3", "--no-templates",
        "--params", str(folder / "params"), "--gpus-per-target", str(gpus), *options,
    ]  # fmt: skip
    start = time.perf_counter()
    subprocess.run(command, env=python_environment(folder), check=True)
    seconds = time.perf_counter() - start
    done = json.loads((out / "long" / "long.done.json").read_text())
    prediction = sum(stage["seconds"] for stage in done["stages"] if stage["stage"] == "predict")
    peak = done["facts"].get("peak_gpu_memory_bytes", 0) / 2**30
    structure = gemmi.read_structure(str(next((out / "long").glob("*_rank_001_*.pdb"))))
    positions = [atom.pos.tolist() for residue in structure[0][0] for atom in residue if atom.name == "CA"]
    return LongRun(seconds, prediction, peak, np.array(positions))


def main() -> None:
    """Print a line for each number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--residues", type=int, default=4096)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tiny", action="store_true", help="run a tiny network, for CPUs")
    parser.add_argument("--no-first-run", action="store_true", help="count the time of compiling kernels")
    parser.add_argument("--options", default="", help="more options of foldcli predict")
    arguments = parser.parse_args()
    config = network_config("model_3_ptm", arguments.tiny)
    options, first = shlex.split(arguments.options), None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        (folder / "long.a3m").write_bytes(random_alignment(rng, "long", arguments.residues, ROWS))
        write_random_parameters(folder / "params", config)
        compile_bytecode(folder)
        for gpus in arguments.gpus:
            if not arguments.no_first_run:
                run(folder, gpus, [*options, "--num-recycle", "0"])
            result = run(folder, gpus, options)
            first = first or result
            speedup = first.prediction_seconds / result.prediction_seconds
            difference = np.sqrt(np.square(result.positions - first.positions).sum(-1).mean())
            print(
                f"{arguments.residues} residues, {gpus} GPUs: command {result.seconds:.1f} s, "
                f"prediction {result.prediction_seconds:.1f} s, {speedup:.2f} x, "
                f"peak {result.peak_gib:.1f} GiB, CA atoms differ by {difference:.2f} Å",
                flush=True,
            )


if __name__ == "__main__":
    main()
