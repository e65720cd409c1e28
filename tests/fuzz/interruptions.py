"""Kill `foldcli fold` at any point, run it again, and compare the files with those of an uninterrupted run.

    python -m tests.fuzz.interruptions [--parts points,random,concurrent] [--every 1] [--random 200]
        [--search-process]

    points      kill before each rename, link, unlink, rmdir, mkdir and fsync in the folder of results, a run
                per operation, in six situations: a first run, a run that adds a model, one that replaces
                results of another sequence with --overwrite, one that adds files to a model, one in
                ColabFold's layout, and one of a complex; the feature cache is in the folder too
    random      kill at random times
    concurrent  two and four runs at once in one folder; one of them is killed in a third of the trials

After each kill, no unfinished target may look finished: a target with done.json must have exactly the files
that it had before the run, or those that an uninterrupted run gives it. After the next run, all files
must be those of an uninterrupted run; only times may differ. Tiny networks run on the CPU.

All points divided among 16 cores:

    for k in $(seq 16); do python -m tests.fuzz.interruptions --parts points --every 16 --first $k & done
    wait

Runs are forked from one process that has loaded all libraries, which makes thousands of them affordable. The
processes that write the results are started as usual. With `--search-process`, a further process searches, as
in runs on a GPU.
"""

import argparse
import functools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from features.alphafold2.deterministic import make_features
from features.alphafold2.sampling import SamplingSettings, sample_features
from foldcli import __main__ as foldcli_main
from foldcli.commands import fold as fold_command
from foldcli.params import verify
from foldcli.pipeline.runs import prediction, run
from foldcli.pipeline.search import search_process as searching
from foldcli.pipeline.search import searcher
from msa.alignments.files import parse_alignment
from msa.cpu import engine
from msa.database.build import BuildSettings, build_database
from tests.networks import tiny_parameters

# of one model, the first one
MORE_FILES = ("--save-recycles", "--save-all", "--zip", "--stop-at-score", "0")
LOADED = (fold_command, verify, prediction, run, searcher, engine)
UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
OPTIONS = (
    *("--num-recycle", "0", "--fast", "--max-msa", "8:4"),
    *("--threads", "1", "--device", "cpu", "--no-plots", "-q"),
)
MANY = ("many.fasta", "--models", "3")
GB1 = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
# loaded by every process of a run, also by those that multiprocessing starts
HOOK = """
import fcntl, os, signal
if "KILL_AT" in os.environ:
    folder, counter, at = os.environ["KILL_IN"], os.environ["KILL_COUNTER"], int(os.environ["KILL_AT"])
    def inside(target):
        try:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
        except (OSError, TypeError):
            return False
        return str(path).startswith(folder)
    def counted(function, of_descriptor):
        def call(target, *arguments, **keywords):
            where = keywords.get("dir_fd") if keywords.get("dir_fd") is not None else target
            if inside(where):
                with open(counter, "a") as stream:
                    fcntl.flock(stream, fcntl.LOCK_EX)
                    stream.write(".")
                    stream.flush()
                    if os.fstat(stream.fileno()).st_size == at:
                        os.kill(int(os.environ["KILL_MAIN"]), signal.SIGKILL)
                        os.kill(os.getpid(), signal.SIGKILL)
            return function(target, *arguments, **keywords)
        return call
    for name in ("rename", "replace", "link", "unlink", "remove", "rmdir", "mkdir", "fsync"):
        setattr(os, name, counted(getattr(os, name), name == "fsync"))
"""


@dataclass(frozen=True)
class Scenario:
    """Two commands: the second is killed, and repeated.

    Args:
        name: for the table.
        before: arguments of the finished run before; None is an empty folder.
        arguments: arguments of the run that is killed.
    """

    name: str
    before: Sequence[str] | None
    arguments: Sequence[str]


class Runner:
    """Runs `foldcli fold` in forked processes.

    Args:
        folder: for the inputs, the database and the caches.
        search_process: let a process search.
    """

    def __init__(self, folder: Path, search_process: bool) -> None:
        self.folder = folder
        sequences = {"one": {"a": UBIQUITIN[:14]}, "two": {"a": GB1[20:32]}}
        sequences["complex"] = {"a": f"{UBIQUITIN[:14]}:{GB1[20:32]}"}
        sequences["many"] = {f"t{k}": UBIQUITIN[k : k + 12] for k in range(6)}
        for name, records in sequences.items():
            text = "".join(f">{target}\n{sequence}\n" for target, sequence in records.items())
            (folder / f"{name}.fasta").write_text(text)
        self._database = folder / "db.fasta"
        self._database.write_text(f">ubq\n{UBIQUITIN}\n>gb1\n{GB1}\n")
        if search_process:
            build_database([self._database], folder / "db", BuildSettings(threads=1))
            self._database = folder / "db"
            # without a GPU, the process searches on the CPU
            searching.needs_process = lambda *arguments: True
        (folder / "hook").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(HOOK)
        path = f"{folder / 'hook'}:{Path(foldcli_main.__file__).parents[1]}"
        os.environ |= {"FOLDCLI_CACHE": str(folder / "cache"), "FOLDCLI_PARAMS": tiny_parameters()}
        os.environ["PYTHONPATH"] = path
        for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
            os.environ[name] = "1"
        torch.set_num_threads(1)

    def start(self, out: Path, arguments: Sequence[str], kill_at: int = 0) -> int:
        """Start a run, and return its process id.

        Args:
            out: folder of the results.
            arguments: see Scenario.
            kill_at: kill the run before this operation (1-based); 0 only counts them.
        """
        inputs = [str(self.folder / text) if text.endswith(".fasta") else text for text in arguments]
        command = ["foldcli", "fold", *inputs, *OPTIONS, "--db", str(self._database)]
        # in the folder of the results, so that it is part of what is killed and compared
        command += ["--cache", str(out / "cache"), "-o", str(out)]
        counter = self.folder / "counter"
        counter.unlink(missing_ok=True)
        sys.stdout.flush()
        if (pid := os.fork()) != 0:
            return pid
        try:
            hooks = {"KILL_AT": str(kill_at), "KILL_IN": str(out), "KILL_COUNTER": str(counter)}
            os.environ |= hooks | {"KILL_MAIN": str(os.getpid())}
            exec(HOOK, {})
            log = os.open(self.folder / f"log.{os.getpid()}", os.O_CREAT | os.O_WRONLY)
            os.dup2(log, 2)
            os.dup2(log, 1)
            sys.argv = command
            foldcli_main.main()
        except SystemExit as end:
            os._exit(int(end.code or 0))
        finally:
            os._exit(1)

    def wait(self, pid: int) -> int:
        """Return the exit code of a run, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def log(self, pid: int) -> str:
        """Return what a run wrote."""
        return (self.folder / f"log.{pid}").read_text()

    def operations(self) -> int:
        """Return the number of operations of the last run."""
        return (self.folder / "counter").stat().st_size

    def run(self, out: Path, arguments: Sequence[str]) -> None:
        """Run to the end, which must succeed."""
        pid = self.start(out, arguments)
        if code := self.wait(pid):
            sys.exit(f"{arguments} ended with {code}:\n{self.log(pid)}")

    @functools.cached_property
    def many_targets(self) -> tuple[dict[str, Any], float]:
        """The `contents` of an uninterrupted run of MANY, and its seconds."""
        start = time.perf_counter()
        self.run(self.folder / "many", MANY)
        return contents(self.folder / "many"), time.perf_counter() - start


def contents(out: Path) -> dict[str, Any]:
    """Return the files of a folder without times and sources: done.json in part, pages and logs by name."""
    found: dict[str, Any] = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        # temporary files of no single target are removed by a run that begins a minute later
        shared = name.startswith((".", "cache/tmp/")) or path.parent.name == "viewer"
        if path.is_dir() or name in ("summary.tsv", "log.txt") or (shared and name.endswith(".tmp")):
            continue
        if path.name.endswith(".done.json"):
            content = json.loads(path.read_text())
            ranking = [{k: v for k, v in model.items() if k != "seconds"} for model in content["ranking"]]
            facts = {k: content["facts"].get(k) for k in ("residues", "alignment_rows", "search")}
            found[name] = [content["fingerprint"], content["settings"], ranking, facts, content["warnings"]]
        elif path.suffix == ".zip":
            found[name] = zipfile.ZipFile(path).namelist()
        elif path.suffix == ".safetensors":
            entry = path.read_bytes()
            # without the header, which names the source
            found[name] = entry[8 + int.from_bytes(entry[:8], "little") :]
        else:
            found[name] = "page" if path.suffix == ".html" else path.read_bytes()
    return found


def of_target(files: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the files of one target."""
    return {
        file: value for file, value in files.items() if Path(file).name.startswith((f"{name}.", f"{name}_"))
    }


def check_finished_targets(now: dict[str, Any], allowed: Sequence[dict[str, Any]]) -> str:
    """Return the name of a target that has done.json without the files of a whole run; "" if none."""
    for file in now:
        if file.endswith(".done.json"):
            name = Path(file).name.removesuffix(".done.json")
            published = {f: v for f, v in of_target(now, name).items() if "/.work/" not in f}
            if published not in [of_target(files, name) for files in allowed]:
                return name
    return ""


def find_difference(runner: Runner, pids: Sequence[int], out: Path, expected: dict[str, Any]) -> str:
    """Wait for runs that may have been killed, and compare their folder with that of an uninterrupted run.

    Args:
        runner: has started the runs.
        pids: their process ids.
        out: their folder, which is kept if there is a difference.
        expected: `contents` of the folder of an uninterrupted run.

    Returns:
        Exit codes, names of files that differ, the kept folder and ends of the logs; "" without a difference.
    """
    codes = [runner.wait(pid) for pid in pids]
    found = contents(out)
    names = sorted(name for name in expected | found if expected.get(name) != found.get(name))
    if not names and all(code == 0 for code in codes if code != -signal.SIGKILL or len(pids) == 1):
        return ""
    kept = Path(tempfile.mkdtemp(prefix="interruptions-"))
    shutil.copytree(out, kept / "out", symlinks=True)
    logs = "\n".join(runner.log(pid)[-600:] for pid in pids)
    return f"exit codes {codes}, kept as {kept}, {len(names)} files differ: {names[:10]}\n{logs}"


def kill_at_points(runner: Runner, scenario: Scenario, first: int, every: int) -> str:
    """Kill a run before each operation from `first` (1-based) on, and return the counts as text."""
    work = runner.folder / "work"

    whole, template = work / "whole", work / "template"
    if scenario.before is not None:
        runner.run(template, scenario.before)
        os.system(f"cp -a {template} {whole}")
    before = contents(whole) if whole.exists() else {}
    runner.run(whole, scenario.arguments)
    operations, expected = runner.operations(), contents(whole)
    killed = wrong = misleading = 0
    for point in range(first, operations + 1, every):
        out = work / "out"
        os.system(f"rm -rf {out}")
        if template.exists():
            os.system(f"cp -a {template} {out}")
        code = runner.wait(runner.start(out, scenario.arguments, point))
        killed += code == -signal.SIGKILL
        if name := check_finished_targets(contents(out) if out.exists() else {}, (before, expected)):
            misleading += 1
            print(f"    after point {point}: {name} looks finished and is not")
        pid = runner.start(out, scenario.arguments)
        if difference := find_difference(runner, [pid], out, expected):
            wrong += 1
            print(f"    after point {point}: {difference}")
    os.system(f"rm -rf {work}")
    counts = f"{operations} operations, {killed} kills, {misleading} misleading, {wrong} wrong afterwards"
    return f"{scenario.name}: {counts}"


def kill_at_random(runner: Runner, trials: int, seed: int) -> str:
    """Kill runs at random times until they are done, and return the counts as text."""
    work, generator = runner.folder / "random", random.Random(seed)
    expected, seconds = runner.many_targets
    kills = wrong = misleading = 0
    while kills < trials:
        out = work / "out"
        os.system(f"rm -rf {out}")
        ends = []
        for _ in range(generator.randrange(1, 5)):
            pid = runner.start(out, MANY)
            pause = generator.uniform(0, 1.1 * seconds)
            time.sleep(pause)
            os.kill(pid, generator.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
            code = runner.wait(pid)
            ends.append(f"{code} at {pause:.2f} s")
            kills += code in (-signal.SIGKILL, 130, 143)
            misleading += bool(check_finished_targets(contents(out) if out.exists() else {}, (expected,)))
        pid = runner.start(out, MANY)
        if difference := find_difference(runner, [pid], out, expected):
            wrong += 1
            print(f"    after {', '.join(ends)}: {difference}", flush=True)
    return f"random: {kills} kills, {misleading} misleading, {wrong} wrong afterwards"


def run_concurrently(runner: Runner, runs: int, trials: int) -> str:
    """Run several processes in one folder, and return the counts as text."""
    work, generator = runner.folder / "concurrent", random.Random(6)
    expected, _ = runner.many_targets
    wrong = killed = 0
    for trial in range(trials):
        out = work / "out"
        os.system(f"rm -rf {out}")
        pids = [runner.start(out, MANY) for _ in range(runs)]
        if trial % 3 == 2:
            time.sleep(generator.uniform(0.5, 3.0))
            os.kill(pids[0], signal.SIGKILL)
            killed += 1
        if difference := find_difference(runner, pids, out, expected):
            wrong += 1
            print(f"    trial {trial}: {difference}", flush=True)
    os.system(f"rm -rf {work}")
    return f"{runs} runs at once: {trials} trials, {killed} with one run killed, {wrong} wrong"


def main() -> None:
    """Run the parts and print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="points,random,concurrent")
    parser.add_argument("--every", type=int, default=1, help="kill at every N-th operation only")
    parser.add_argument("--first", type=int, default=1, help="first operation, to divide all by --every")
    parser.add_argument("--seed", type=int, default=5, help="of the times of random kills")
    parser.add_argument("--random", type=int, default=200, help="random kills")
    parser.add_argument("--trials", type=int, default=6, help="trials of concurrent runs")
    parser.add_argument("--search-process", action="store_true", help="let a process search")
    options = parser.parse_args()
    multiprocessing.set_executable(sys.executable)
    load_everything()
    scenarios = [
        Scenario("first run", None, ("one.fasta", "--models", "3,4")),
        Scenario("further model", ("one.fasta", "--models", "3"), ("one.fasta", "--models", "3,4")),
        Scenario(
            "overwrite", ("one.fasta", "--models", "3,4"), ("two.fasta", "--models", "3", "--overwrite")
        ),
        Scenario("more files", ("one.fasta", "--models", "3"), ("one.fasta", "--models", "3,4", *MORE_FILES)),
        Scenario("ColabFold's layout", None, ("one.fasta", "--models", "3", "--layout", "colabfold")),
        Scenario("complex", None, ("complex.fasta", "--models", "3")),
    ]
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder), options.search_process)
        parts: list[Callable[[], str]] = []
        if "points" in options.parts:
            parts += [lambda s=s: kill_at_points(runner, s, options.first, options.every) for s in scenarios]  # type: ignore[misc]
        if "random" in options.parts:
            parts.append(lambda: kill_at_random(runner, options.random, options.seed))
        if "concurrent" in options.parts:
            parts += [lambda n=n: run_concurrently(runner, n, options.trials) for n in (2, 4)]  # type: ignore[misc]
        for part in parts:
            print(part(), flush=True)


def load_everything() -> None:
    """Load what runs need, without starting threads, which forked processes would lack."""
    features = make_features([parse_alignment(b">a\nAC\n>b\nAG\n>c\nCC\n")])
    sample_features(features, SamplingSettings(max_seq=6, max_extra_seq=1), 1, 0)
    np.random.default_rng(0).random(4)


if __name__ == "__main__":
    main()
