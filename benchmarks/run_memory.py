"""Resident memory of a run of many short targets, to see what grows with their number.

    python benchmarks/run_memory.py [--targets 2000] [--seconds 20]

The targets are random sequences of 16 to 24 residues. They are searched in 100 random sequences, and
predicted on the CPU by a network with one block. Every few seconds, one line shows the number of finished
targets, and the resident memory, threads and open files of the main process, and of it with all workers.
"""

import argparse
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch

from foldcli.inputs.shard import Shard
from foldcli.params.parameters import find_parameters
from foldcli.pipeline.alignment_settings import AlignmentSettings
from foldcli.pipeline.device import NetworkMemory
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.identity import TargetIdentities
from foldcli.pipeline.run import run_targets
from foldcli.pipeline.run_state import RunSettings
from foldcli.pipeline.search_stage import SearchStage
from foldcli.pipeline.searcher import DatabaseSource
from foldcli.pipeline.settings import FeatureSettings, OutputSettings, PredictSettings
from foldcli.report import ReportSettings
from msa.io.fasta import FastaRecord
from msa.search.settings import AlignmentFilter, SearchSettings
from tests.foldcli.pipeline.tiny_worker import TinyPredictor
from tests.networks import tiny_parameters

LETTERS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8)
PAGE, MIB = os.sysconf("SC_PAGE_SIZE"), 2**20


def resident_mib() -> tuple[float, float]:
    """Return the resident memory of this process, and of it and its children together, MiB."""
    own, total = 0.0, 0.0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            size = int((folder / "statm").read_text().split()[1]) * PAGE / MIB
        except OSError:
            # it has ended
            continue
        is_own = int(folder.name) == os.getpid()
        own += size if is_own else 0.0
        total += size if is_own or parent == os.getpid() else 0.0
    return own, total


def watch(results: Path, seconds: float, ended: threading.Event) -> None:
    """Print a line every few seconds until the run has ended."""
    waiting = True
    while waiting:
        waiting = not ended.wait(seconds)
        own, total = resident_mib()
        finished = sum(1 for _ in results.glob("*/*.done.json"))
        files = len(os.listdir("/proc/self/fd"))
        print(
            f"{finished:6} finished: {own:7.1f} MiB, with workers {total:7.1f} MiB, "
            f"{threading.active_count()} threads, {files} open files",
            flush=True,
        )


def run_settings(folder: Path) -> RunSettings:
    """Return the settings of a run that searches, predicts and writes into a folder."""
    settings = PredictSettings(num_recycles=0)
    sources = find_parameters(tiny_parameters(), (3,), "auto")
    predictor = TinyPredictor(sources, settings, NetworkMemory("cpu"))
    source = DatabaseSource(str(folder / "targets.fasta"), "cpu")
    search = SearchStage(
        source.make_searcher(source.open()),
        AlignmentSettings(SearchSettings(), AlignmentFilter()),
        show_progress=False,
    )
    content = [{"label": s.label, "network": s.config_name, "content": "one block"} for s in sources]
    identities = TargetIdentities(sources, content, settings, search.request)
    output = OutputSettings(folder / "out", "default", Shard(), False, ReportSettings(False, False))
    return RunSettings(output, FeatureSettings(folder / "cache"), predictor, identities, search)


def main() -> None:
    """Run all targets while a thread prints the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--targets", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)

    def sequence(low: int, high: int) -> str:
        return rng.choice(LETTERS, rng.integers(low, high + 1)).tobytes().decode()

    targets = [(f"t{k}", FastaRecord(f"t{k}", sequence(16, 24))) for k in range(arguments.targets)]
    with tempfile.TemporaryDirectory() as name:
        folder, ended = Path(name), threading.Event()
        (folder / "out").mkdir()
        (folder / "targets.fasta").write_text("".join(f">d{k}\n{sequence(100, 500)}\n" for k in range(100)))
        thread = threading.Thread(target=watch, args=(folder / "out", arguments.seconds, ended))
        thread.start()
        try:
            run_targets(targets, run_settings(folder), Failures(folder / "out", Shard()))
        finally:
            ended.set()
            thread.join()


if __name__ == "__main__":
    main()
