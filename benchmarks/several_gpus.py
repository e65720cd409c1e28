"""Seconds of `foldcli predict` on one GPU and on several: for many targets, or for one long one.

    python benchmarks/several_gpus.py [--targets 200] [--devices cuda:0 cuda:0,1] [--tiny] [--options "..."]
    python benchmarks/several_gpus.py --residues 4096 [--gpus 1 2] [--tiny] [--options "..."]

Targets are random alignments with 60 to 700 residues, short ones more often, and 200 to 6,000 rows. The long
target, which --gpus divide among themselves, has 6,000 rows, which fill 508 + 5,120 of the network. The
network is model_3_ptm with random parameters; --tiny makes it small enough for CPUs. First runs, which
compile kernels and make the cached features, are not counted; --no-first-run leaves them out. Python's
bytecode is compiled before, as installers do.

Lines have the seconds of the whole command and of its prediction, the ratio to the first line, the seconds
for which workers waited for features, and the peak memory of a GPU, as done.json states them, and the root
mean square difference of CA atoms to the first line. Structures of whole targets must not depend on the
devices: the exit code is 1 if they do.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import gemmi
import numpy as np
from options import parse_options
from processes import compile_bytecode, python_environment
from random_parameters import network_config, write_random_parameters

MIN_RESIDUES, MAX_RESIDUES = 60, 700
MIN_ROWS, MAX_ROWS = 200, 6000
LETTERS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8)
GAP = ord("-")


class Run(NamedTuple):
    """One run of the command: the sum of its targets' seconds, the peak of a GPU, and CA atoms [N, 3], Å."""

    seconds: float
    prediction_seconds: float
    waited_seconds: float
    peak_gib: float
    positions: np.ndarray


def random_alignment(rng: np.random.Generator, name: str, residues: int, rows: int) -> bytes:
    """Return an alignment whose rows share between a fifth and all of their residues with the query."""
    query = rng.choice(LETTERS, residues)
    letters = rng.choice(LETTERS, (rows, residues))
    kept = rng.random((rows, residues)) < rng.uniform(0.2, 1.0, (rows, 1))
    letters = np.where(kept, query, letters)
    letters[rng.random((rows, residues)) < 0.1] = GAP
    lines = [f">{name}\n".encode() + query.tobytes()]
    lines += [f">row{number}\n".encode() + row.tobytes() for number, row in enumerate(letters)]
    return b"\n".join(lines) + b"\n"


def write_targets(folder: Path, count: int) -> int:
    """Write the alignments of all targets; return the number of their residues."""
    rng = np.random.default_rng(0)
    total = 0
    for number in range(count):
        residues = int(np.exp(rng.uniform(np.log(MIN_RESIDUES), np.log(MAX_RESIDUES))))
        rows = int(np.exp(rng.uniform(np.log(MIN_ROWS), np.log(MAX_ROWS))))
        (folder / f"t{number}.a3m").write_bytes(random_alignment(rng, f"t{number}", residues, rows))
        total += residues
    return total


def predict(folder: Path, options: list[str]) -> Run:
    """Predict all targets in the folder `targets` of a folder."""
    out = folder / "out"
    command = [
        sys.executable, "-m", "foldcli", "predict", str(folder / "targets"), "-o", str(out), "-q",
        "--overwrite", "--cache", str(folder / "cache"), "--params", str(folder / "params"), "--models", "3",
        "--no-templates", *options,
    ]  # fmt: skip
    start = time.perf_counter()
    subprocess.run(command, env=python_environment(folder), check=True)
    seconds = time.perf_counter() - start
    records = [json.loads(path.read_text()) for path in out.glob("*/*.done.json")]
    facts = [record["facts"] for record in records]
    stages = [stage for record in records for stage in record["stages"] if stage["stage"] == "predict"]
    atoms = [
        atom.pos.tolist()
        for path in sorted(out.glob("*/*_rank_*.pdb"))
        for residue in gemmi.read_structure(str(path))[0][0]
        for atom in residue
        if atom.name == "CA"
    ]
    return Run(
        seconds,
        sum(stage["seconds"] for stage in stages),
        sum(fact.get("waited_for_features_seconds", 0.0) for fact in facts),
        max(fact.get("peak_gpu_memory_bytes", 0) for fact in facts) / 2**30,
        np.array(atoms),
    )


def main() -> None:
    """Print a line for each list of devices, or for each number of GPUs."""
    arguments = parse_options(
        __doc__, targets=200, devices=["cuda:0", "cuda:0,1"], residues=int, gpus=[1, 2], tiny=False,
        no_first_run=False, options="",
    )  # fmt: skip
    is_long, options = arguments.residues is not None, shlex.split(arguments.options)
    first: Run | None = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "targets").mkdir()
        if is_long:
            alignment = random_alignment(np.random.default_rng(0), "long", arguments.residues, MAX_ROWS)
            (folder / "targets" / "long.a3m").write_bytes(alignment)
            cases = [["--gpus-per-target", str(gpus)] for gpus in arguments.gpus]
        else:
            residues = write_targets(folder / "targets", arguments.targets)
            print(f"{arguments.targets} targets, {residues:,} residues, {os.cpu_count()} cores", flush=True)
            cases = [["--device", device] for device in arguments.devices]
        write_random_parameters(folder / "params", network_config("model_3_ptm", arguments.tiny))
        compile_bytecode(folder)
        if not arguments.no_first_run and not is_long:
            predict(folder, [*options, *cases[-1]])
        for case in cases:
            if not arguments.no_first_run and is_long:
                predict(folder, [*options, *case, "--num-recycle", "0"])
            run = predict(folder, [*options, *case])
            first = first or run
            difference = np.sqrt(np.square(run.positions - first.positions).sum(-1).mean())
            speedup = (
                first.prediction_seconds / run.prediction_seconds if is_long else first.seconds / run.seconds
            )
            print(
                f"{' '.join(case)}: {run.seconds:.1f} s, prediction {run.prediction_seconds:.1f} s, "
                f"{speedup:.2f} x, waited {run.waited_seconds:.1f} s, peak {run.peak_gib:.1f} GiB, "
                f"CA atoms differ by {difference:.2f} Å",
                flush=True,
            )
            if not is_long and not np.array_equal(run.positions, first.positions):
                sys.exit("structures: DIFFERENT")


if __name__ == "__main__":
    main()
