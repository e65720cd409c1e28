"""Seconds of `foldcli fold` for many real proteins, next to those of its network alone, and the GPU's load.

    python benchmarks/fold.py SEQUENCES.fasta.gz [--targets 48] [--fast] [--options "..."]

SEQUENCES is the database; the targets are sequences from it with 80 to 380 residues, drawn at random. The
network is model_3_ptm with random parameters, 3 recycles. The rows:

    first run     a fresh cache: kernels are compiled
    fold          a fresh feature cache, and compiled kernels
    network       the same predictions alone: random features are sampled before, and nothing is written. The
                  first figure is for one prediction after the other; for the second, each is started before
                  the previous one has finished, as in a run

For each run, the phases of its start are printed. Python's bytecode is compiled before, as installers do. The
GPU's load is the share of samples (nvidia-smi, ten a second) with any kernel running, between the beginning
and the end of the process. On a machine without a GPU, `--tiny` runs a tiny network instead.

--many: also run this many targets; --options: further options of fold; --tiny: run a tiny network;
--max-records: sequences of the database.
"""

import argparse
import itertools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from options import parse_options
from processes import compile_bytecode, python_environment
from random_parameters import network_config, random_parameters, write_random_parameters

from features.alphafold2.sampling import SamplingSettings, sample_features
from features.cache.cache import FeatureCache
from foldcli.pipeline.network.device import choose_device, choose_kernels, choose_precision
from foldcli.process_state import set_numba_cache_folder
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.recycling import RecyclingSettings, predict, start_prediction
from model.checkpoints.alphafold2 import build_network
from msa.alignments.files import read_alignment
from msa.io.fasta import FastaRecord, read_fasta

MIN_RESIDUES, MAX_RESIDUES = 80, 380


class GpuLoad:
    """Samples of the GPU's utilization while a block runs."""

    def __enter__(self) -> "GpuLoad":
        self._values: list[tuple[float, int]] = []
        # the first visible GPU, on which foldcli runs: its index or UUID
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
        query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
        command = ["nvidia-smi", *query, "-i", gpu]
        try:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        except FileNotFoundError:
            self._process = None
            return self
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().isdigit():
                self._values.append((time.time(), int(line)))

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._thread.join()

    def text(self, since: float = 0.0) -> str:
        """Return mean utilization and the share of samples with any, from a time on."""
        values = [value for moment, value in self._values if moment >= since]
        if not values:
            return "unknown"
        busy = sum(value > 0 for value in values) / len(values)
        return f"{np.mean(values):.0f} % mean, some load in {100 * busy:.0f} % of {len(values)} samples"


@dataclass(frozen=True)
class CommandRun:
    """One run of a foldcli command with -v: when it began, wall seconds, the GPU's load and its messages."""

    began: float
    seconds: float
    gpu: GpuLoad
    log: str
    # CPU seconds of all processes, and of the main thread, which launches the GPU's work
    host_seconds: float
    main_seconds: float

    @property
    def first_block(self) -> float:
        """Seconds from the start to the end of the network's first block; 0 if the log has none."""
        found = re.search(r"first block finished ([\d.]+) s", self.log)
        return float(found[1]) if found else 0.0

    @property
    def load(self) -> str:
        """The GPU's load in words, of the whole run and after the first block."""
        return f"{self.gpu.text()}; after the first block: {self.gpu.text(self.began + self.first_block)}"

    @property
    def compiled(self) -> int:
        """Number of kernels that were compiled in mid-run."""
        return sum(map(int, re.findall(r"(\d+) kernels were compiled", self.log)))

    @property
    def phases(self) -> str:
        """The phases of the run's start that -v logs, after their ends in seconds after its start."""
        found = re.findall(r"^(.+) ([\d.]+) s after the start$", self.log, re.MULTILINE)
        return ", ".join(f"{end:.2f} {phase}" for end, phase in sorted((float(x), name) for name, x in found))


@dataclass(frozen=True)
class Measured:
    """One run of `foldcli fold`: the run, and what its files say."""

    run: CommandRun
    first_target: float
    report: str


def run_foldcli(arguments: list[str], folder: Path, name: str, cache: Path) -> CommandRun:
    """Run a foldcli command, with its messages in FOLDER/NAME.log; end with them if it fails.

    Args:
        arguments: its arguments, with -v.
        folder: folder of the benchmark.
        name: name of the run.
        cache: foldcli's cache.
    """
    log = folder / f"{name}.log"
    # all runs share what numba compiles, as runs of a user do
    set_numba_cache_folder()
    environment = python_environment(folder) | {"FOLDCLI_CACHE": str(cache)}
    began = time.time()
    with GpuLoad() as load, log.open("w") as stream:
        before, main_seconds = children_seconds(), 0.0
        command = [sys.executable, "-m", "foldcli", *arguments]
        with subprocess.Popen(command, stderr=stream, env=environment) as process:
            while process.poll() is None:
                main_seconds = thread_seconds(process.pid) or main_seconds
                time.sleep(0.05)
    seconds = time.time() - began
    if process.returncode:
        sys.exit(f"{arguments[0]} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    host_seconds = children_seconds() - before
    return CommandRun(began, seconds, load, log.read_text(), host_seconds, main_seconds)


def children_seconds() -> float:
    """Return the CPU seconds of all ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def thread_seconds(process: int) -> float:
    """Return the CPU seconds of the main thread of a process so far."""
    try:
        values = Path(f"/proc/{process}/task/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def run_fold(folder: Path, name: str, cache: Path, options: argparse.Namespace, targets: int) -> Measured:
    """Run `foldcli fold` on all targets into a folder of its own."""
    out = folder / name
    arguments = ["fold", str(folder / f"{targets}.fasta"), "--db", str(folder / "db"), "-o", str(out)]
    arguments += ["--cache", str(folder / f"features-{name}"), "--models", "3", "-v"]
    arguments += ["--params", str(folder / "params"), *options.options.split()]
    run = run_foldcli(arguments, folder, name, cache)
    times = sorted(path.stat().st_mtime for path in out.rglob("*.done.json"))
    facts = [json.loads(path.read_text()) for path in out.rglob("*.done.json")]
    stages: dict[str, float] = {}
    for content in facts:
        for stage in content["stages"]:
            stages[stage["stage"]] = stages.get(stage["stage"], 0.0) + stage["seconds"]
    waited = sum(content["facts"].get("waited_for_features_seconds", 0.0) for content in facts)
    report = ", ".join(f"{stage} {value:.1f}" for stage, value in stages.items())
    rows = np.median([content["facts"]["alignment_rows"] for content in facts])
    return Measured(
        run, times[0] - run.began,
        f"summed seconds: {report}; waited {waited:.1f}; median rows {rows:.0f}; {len(times)} finished",
    )  # fmt: skip


def network_of(options: argparse.Namespace) -> ModelConfig:
    """Return the architecture of the network, whose parameters are random."""
    return network_config("model_3_ptm", options.tiny)


def network_seconds(folder: Path, name: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return the seconds of the network alone for the targets of a finished run, the longest first.

    Returns:
        Seconds if each prediction is started when the one before has finished, and if it is started earlier.
    """
    device = choose_device("auto")
    config = network_of(options)
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[choose_precision(None, device)]
    network = build_network(
        config, random_parameters(config, seed=3), device, dtype, choose_kernels("auto", device)
    )
    cache = FeatureCache(folder / f"features-{name}")
    samples = []
    for path in (folder / name).rglob("*.a3m"):
        features, _ = cache.load_or_make([read_alignment(path)])
        samples.append(sample_features(features, SamplingSettings(), 4, 0))
    samples.sort(key=lambda sample: -sample["aatype"].shape[1])
    recycling = RecyclingSettings()
    predict(network, samples[0], recycling)
    start = time.perf_counter()
    for sample in samples:
        predict(network, sample, recycling)
    middle = time.perf_counter()
    collect = start_prediction(network, samples[0], recycling)
    for sample in samples[1:]:
        following = start_prediction(network, sample, recycling)
        collect()
        collect = following
    collect()
    return middle - start, time.perf_counter() - middle


def write_database(folder: Path, records: list[FastaRecord]) -> None:
    """Write a target database of all records, FOLDER/db."""
    (folder / "db.fasta").write_text("".join(f">{r.header}\n{r.sequence}\n" for r in records))
    createdb = [sys.executable, "-m", "foldcli", "createdb", str(folder / "db.fasta"), "-q"]
    subprocess.run([*createdb, "-o", str(folder / "db")], check=True)


def write_targets(path: Path, records: list[FastaRecord], targets: int) -> float:
    """Write the FASTA of randomly drawn targets, and return their mean length."""
    suitable = [record for record in records if MIN_RESIDUES <= len(record.sequence) <= MAX_RESIDUES]
    chosen = [suitable[k] for k in np.random.default_rng(17).choice(len(suitable), targets, replace=False)]
    path.write_text("".join(f">t{k:04}\n{record.sequence}\n" for k, record in enumerate(chosen)))
    return float(np.mean([len(record.sequence) for record in chosen]))


def main() -> None:
    """Run the benchmark and print the table."""
    options = parse_options(__doc__, "sequences", targets=48, many=0, options="", tiny=False, max_records=int)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        records = list(itertools.islice(read_fasta(options.sequences), options.max_records))
        write_database(folder, records)
        write_random_parameters(folder / "params", network_of(options))
        mean = write_targets(folder / f"{options.targets}.fasta", records, options.targets)
        print(
            f"{options.targets} targets, mean {mean:.0f} residues; database of {len(records):,} sequences",
            flush=True,
        )
        compile_bytecode(folder)
        rows = [("first run", run_fold(folder, "first", folder / "cache", options, options.targets))]
        print_row(*rows[0])
        rows.append(("fold", run_fold(folder, "second", folder / "cache", options, options.targets)))
        print_row(*rows[1])
        print_network(rows[1][1], network_seconds(folder, "second", options))
        if options.many:
            write_targets(folder / f"{options.many}.fasta", records, options.many)
            many = run_fold(folder, "many", folder / "cache", options, options.many)
            print_row(f"{options.many} targets", many)
            print_network(many, network_seconds(folder, "many", options))


def print_network(measured: Measured, seconds: tuple[float, float]) -> None:
    """Print the seconds of the network alone, and the ratio of a run to the first of them."""
    alone, overlapping = seconds
    print(
        f"network alone: {alone:.1f} s, {overlapping:.1f} s with overlapping predictions; "
        f"fold takes {measured.run.seconds / alone:.2f} of the former",
        flush=True,
    )


def print_row(name: str, measured: Measured) -> None:
    """Print the result of one run."""
    run = measured.run
    first = f"first target after {measured.first_target:.1f} s, first block after {run.first_block:.1f} s"
    print(f"{name}: {run.seconds:.1f} s; {first}; {run.compiled} kernels compiled in mid-run")
    print(f"    GPU: {run.load}")
    print(f"    {measured.report}")
    print(f"    s after the start: {run.phases}", flush=True)


if __name__ == "__main__":
    main()
