"""Seconds per target of `foldcli predict` with many targets, and the share of the network.

usage: python benchmarks/many_targets.py [--targets 16] [--residues 256] [--rows 2000] [--demo] [--no-plots]

The alignments are random; the network is model_3_ptm with random parameters, or the demo network with --demo.
The command runs twice, so that kernels are compiled before the measured run. The time is measured between
the first target's done.json and the last one's. "network" is the part of it in which the network runs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from feature_loading import write_alignment

from model.config import model_config
from model.parameters import random_parameters


def run(folder: Path, options: argparse.Namespace, name: str) -> list[dict[str, float]]:
    """Run all targets, and return the seconds of each target's stages and when it was finished."""
    out = folder / name
    command = [sys.executable, "-m", "foldcli", "predict", str(folder / "alignments"), "-o", str(out)]
    command += ["--params", "demo" if options.demo else str(folder / "params"), "--models", "3", "-q"]
    command += ["--no-plots"] if options.no_plots else []
    subprocess.run(command, check=True, env=os.environ | {"FOLDCLI_CACHE": str(folder / "cache")})
    found = []
    for path in out.rglob("*.done.json"):
        stages = {stage["stage"]: stage["seconds"] for stage in json.loads(path.read_text())["stages"]}
        found.append(stages | {"finished": path.stat().st_mtime_ns / 1e9})
    return sorted(found, key=lambda target: target["finished"])


def main() -> None:
    """Run the benchmark and print one row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", type=int, default=16)
    parser.add_argument("--residues", type=int, default=256)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--no-plots", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("alignments", "params"):
            (folder / name).mkdir()
        for k in range(options.targets):
            write_alignment(folder / "alignments" / f"t{k:04}.a3m.gz", options.rows, options.residues, k)
        if not options.demo:
            config = model_config("model_3_ptm")
            np.savez(folder / "params" / "params_model_3_ptm.npz", **random_parameters(config))
        run(folder, options, "first")
        targets = run(folder, options, "second")
    each = len(targets) - 1
    wall = (targets[-1]["finished"] - targets[0]["finished"]) / each
    network, report = (sum(target[stage] for target in targets[1:]) / each for stage in ("predict", "report"))
    print(
        f"| {options.residues} residues, {len(targets)} targets | {wall:.2f} s per target | "
        f"network {network:.2f} s, {network / wall:.0%} | report {report:.2f} s |"
    )


if __name__ == "__main__":
    main()
