"""Seconds of `foldcli predict` for many targets of mixed lengths, on one GPU and on several.

    python benchmarks/many_targets.py [--targets 200] [--devices cuda:0 cuda:0,1] [--tiny]
                                      [--options "..."]

The targets are random alignments with 60 to 700 residues, short ones more often, and 200 to 6,000 rows; the
network is model_3_ptm with random parameters. A first run, with the last of the devices, compiles the kernels
and makes the cached features, and is not counted; `--no-first-run` leaves it out. Python's bytecode is
compiled before, as installers do. Seconds for which workers waited for features are summed over targets.
Structures must not depend on the devices; the exit code is 1 if they do.
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from runs import (
    compile_bytecode,
    network_config,
    python_environment,
    random_alignment,
    write_random_parameters,
)

MIN_RESIDUES, MAX_RESIDUES = 60, 700
MIN_ROWS, MAX_ROWS = 200, 6000


def write_targets(folder: Path, count: int) -> int:
    """Write the alignments of all targets; return the number of their residues."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    total = 0
    for number in range(count):
        residues = int(np.exp(rng.uniform(np.log(MIN_RESIDUES), np.log(MAX_RESIDUES))))
        rows = int(np.exp(rng.uniform(np.log(MIN_ROWS), np.log(MAX_ROWS))))
        (folder / f"t{number}.a3m").write_bytes(random_alignment(rng, f"t{number}", residues, rows))
        total += residues
    return total


def predict(folder: Path, device: str, options: list[str]) -> tuple[float, float, str]:
    """Predict all targets.

    Returns:
        The seconds, those for which workers waited for features, and a hash of all structures.

    Args:
        folder: of targets, parameters, features and results.
        device: value of `--device`.
        options: more options.
    """
    out = folder / "out"
    command = [
        sys.executable, "-m", "foldcli", "predict", str(folder / "targets"), "-o", str(out),
        "-q", "--overwrite",
        "--cache", str(folder / "cache"), "--models", "3", "--no-templates",
        "--device", device, *options,
    ]  # fmt: skip
    start = time.perf_counter()
    subprocess.run(command, env=python_environment(folder), check=True)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256()
    for path in sorted(out.glob("*/*_rank_*.pdb")):
        digest.update(path.name.encode() + path.read_bytes())
    facts = [json.loads(path.read_text())["facts"] for path in out.glob("*/*.done.json")]
    waited = sum(fact.get("waited_for_features_seconds", 0.0) for fact in facts)
    return seconds, waited, digest.hexdigest()


def main() -> None:
    """Print the seconds of each list of devices, and the ratio to the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--targets", type=int, default=200)
    parser.add_argument("--devices", nargs="+", default=["cuda:0", "cuda:0,1"])
    parser.add_argument("--tiny", action="store_true", help="run a tiny network, for CPUs")
    parser.add_argument("--no-first-run", action="store_true", help="compile kernels in the first run")
    parser.add_argument("--options", default="", help="more options of foldcli predict")
    arguments = parser.parse_args()
    hashes, first = set(), 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        residues = write_targets(folder / "targets", arguments.targets)
        print(f"{arguments.targets} targets, {residues:,} residues, {os.cpu_count()} cores", flush=True)
        write_random_parameters(folder / "params", network_config("model_3_ptm", arguments.tiny))
        compile_bytecode(folder)
        options = ["--params", str(folder / "params"), *shlex.split(arguments.options)]
        if not arguments.no_first_run:
            predict(folder, arguments.devices[-1], options)
        for device in arguments.devices:
            seconds, waited, digest = predict(folder, device, options)
            first = first or seconds
            hashes.add(digest)
            ratio = first / seconds
            print(f"{device:20} {seconds:8.1f} s   {ratio:5.2f} x   waited {waited:.1f} s", flush=True)
    print("structures:", "equal" if len(hashes) == 1 else "DIFFERENT")
    sys.exit(len(hashes) > 1)


if __name__ == "__main__":
    main()
