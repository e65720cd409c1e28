"""Sensitivity of `foldcli search` compared with blastp, MMseqs2, DIAMOND, phmmer and jackhmmer.

    python benchmarks/sensitivity.py FOLDER [--threads 2] [--tools foldcli,phmmer,…]
    python benchmarks/sensitivity.py FOLDER --evalue 1e-3 --max-targets 300    # the time of a usual search
    python benchmarks/sensitivity.py FOLDER --molecule rna [--ancestors FASTA]  # foldcli next to nhmmer

FOLDER contains db.fasta(.gz), queries.fasta and labels.tsv (id and SCOPe class, such as a.1.1.2, of each
labelled domain). Ids that begin with rev_ are decoys: reversed domains.

Prints for each program:
- ROC1: the fraction of a query's family (or superfamily) ranked before the first false positive, averaged
  over the queries. False positives are decoys and domains of another fold.
- The wall time and the CPU time of the search.
- Calibration: the number of decoys per query with an E-value up to 0.01, 0.03, 0.1 …, divided by the number
  expected from the decoys' share of the database.

Programs that are not installed are skipped.

With --ancestors, FOLDER is created: each sequence of the FASTA file, cut to 60 to 150 nucleotides, evolves by
substitutions and indels at sites of different rates into ten relatives (a superfamily of two families), which
random nucleotides surround. Decoys are relatives with shuffled nucleotides.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from options import parse_options

from msa.io.fasta import read_nucleotides

EVALUE, MAX_TARGETS = "1000", "4000"
LEVELS = {"family": 4, "superfamily": 3}
LIMITS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
HitTable = dict[str, list[tuple[float, str]]]
"""(E-value, target id) of the hits of each query, by query id, best first."""


@dataclass(frozen=True)
class Benchmark:
    """The inputs of the benchmark, and the settings that all programs share.

    Args:
        folder: contains queries, database and labels.
        work: folder for results.
        threads: threads of each program.
        device: device of foldcli.
        evalue: largest E-value of a hit.
        max_targets: maximum number of hits of a query; HMMER has no such limit.
    """

    folder: Path
    work: Path
    threads: int
    device: str
    evalue: str = EVALUE
    max_targets: str = MAX_TARGETS
    molecule: str = "protein"

    @property
    def queries(self) -> Path:
        """The FASTA file of queries."""
        return self.folder / "queries.fasta"

    @property
    def fasta(self) -> Path:
        """The uncompressed database."""
        plain = self.work / "db.fasta"
        if not plain.exists():
            compressed = self.folder / "db.fasta.gz"
            content = gzip.decompress(compressed.read_bytes()) if compressed.exists() else None
            plain.write_bytes((self.folder / "db.fasta").read_bytes() if content is None else content)
        return plain


def run(*command: object) -> None:
    """Run a program; end the benchmark if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"sensitivity: {command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")


def measure_times(command: Callable[[], None]) -> tuple[float, float]:
    """Return the wall and the CPU seconds of a call that runs a program."""
    start, before = time.perf_counter(), os.times()
    command()
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu


def read_hits(path: Path, query: int, target: int, evalue: int) -> HitTable:
    """Read a table of hits with the given column indices of query, target and E-value."""
    best: dict[str, dict[str, float]] = defaultdict(dict)
    with path.open() as stream:
        for line in stream:
            if line.startswith("#") or not line.strip():
                continue
            fields = line.split()
            name, value = fields[target], float(fields[evalue])
            query_hits = best[fields[query]]
            query_hits[name] = min(value, query_hits.get(name, value))
    # sort by E-value alone: ties stay in the program's own order
    return {
        name: sorted(((value, target) for target, value in hits.items()), key=lambda hit: hit[0])
        for name, hits in best.items()
    }


@dataclass(frozen=True)
class Tool:
    """A program that searches.

    Args:
        program: its name; "" for foldcli.
        command: the search; `{out}`, `{db}` and names of attributes of Benchmark are filled in.
        build: makes the database `{db}`, if the program has its own.
        columns: columns of query, target and E-value in its table.
    """

    program: str
    command: str
    build: str = ""
    columns: tuple[int, int, int] = (0, 1, 10)

    def search(self, benchmark: Benchmark) -> tuple[tuple[float, float], HitTable]:
        """Search, and return the times without those of the database, and the hits."""
        # HMMER uses one more thread to read the database
        values = {name: getattr(benchmark, name) for name in _VALUES}
        values |= {"out": benchmark.work / "hits", "db": benchmark.work / f"{self.program}_db"}
        values |= {"workers": max(benchmark.threads - 1, 1), "python": sys.executable}
        if self.build and not benchmark.work.joinpath(f"{self.program}_built").exists():
            run(*(word.format(**values) for word in self.build.split()))
            benchmark.work.joinpath(f"{self.program}_built").touch()
        with tempfile.TemporaryDirectory(dir=benchmark.work) as scratch:
            command = [word.format(scratch=scratch, **values) for word in self.command.split()]
            times = measure_times(lambda: run(*command))
        return times, read_hits(benchmark.work / "hits", *self.columns)


_VALUES = ("queries", "fasta", "threads", "device", "evalue", "max_targets", "molecule")


def foldcli(iterations: int) -> Tool:
    return Tool(
        "",
        "{python} -m foldcli search {queries} {db} -o {out} --overwrite -e {evalue} --max-seqs {max_targets} "
        f"--threads {{threads}} --device {{device}} --num-iterations {iterations} --molecule {{molecule}}",
        "{python} -m foldcli createdb {fasta} -o {db} --threads {threads} --molecule {molecule}",
    )


def mmseqs(options: str) -> Tool:
    return Tool(
        "mmseqs",
        "mmseqs easy-search {queries} {fasta} {out} {scratch} -s 8.5 -e {evalue} --max-seqs {max_targets} "
        f"--threads {{threads}} {options}",
    )


def hmmer(program: str, options: str = "") -> Tool:
    return Tool(
        program,
        f"{program} {options} --cpu {{workers}} -E {{evalue}} --noali -o {os.devnull} --tblout {{out}} "
        "{queries} {fasta}",
        columns=(2, 0, 12 if program == "nhmmer" else 4),
    )


def evolve(
    rng: np.random.Generator, parent: np.ndarray, rates: np.ndarray, distance: float
) -> list[np.ndarray]:
    """Return a relative of a sequence, uint8 codes 0 to 3 of ACGU, and the rates of its sites.

    Args:
        rng: of the changes.
        parent: the sequence.
        rates: relative rate of each site.
        distance: expected substitutions per site; six in ten are transitions.
    """
    changed = rng.random(len(parent)) < 1 - np.exp(-distance * rates)
    kinds = rng.choice(np.array([2, 1, 3], np.uint8), len(parent), p=[0.6, 0.2, 0.2])
    child = np.where(changed, (parent + kinds) % 4, parent)
    kept = np.ones(len(child), bool)
    for site in np.flatnonzero(rng.random(len(child)) < 0.1 * distance * rates):
        kept[site : site + rng.geometric(0.5)] = False
    child, rates = child[kept], rates[kept]
    for site in np.flatnonzero(rng.random(len(child)) < 0.1 * distance * rates)[::-1]:
        size = rng.geometric(0.5)
        child = np.insert(child, site, rng.integers(0, 4, size))
        rates = np.insert(rates, site, np.full(size, rates[site]))
    return [child.astype(np.uint8), rates]


def make_rna(ancestors: Path, folder: Path) -> None:
    """Write a folder of simulated families; see the module's documentation."""
    rng, letters = np.random.default_rng(0), np.frombuffer(b"ACGU", np.uint8)
    targets, queries, labels = [], [], []
    with ancestors.open("rb") as stream:
        records = list(read_nucleotides(stream, str(ancestors)))
    for number, record in enumerate(records):
        text = np.array(["ACGU".find(letter) % 4 for letter in record.sequence], np.uint8)
        length = min(len(text), int(rng.integers(60, 151)))
        start = int(rng.integers(len(text) - length + 1))
        rates, scale = rng.gamma(0.7, 1 / 0.7, length), rng.uniform(0.5, 1.5)
        for family in range(2):
            branch = evolve(rng, text[start : start + length], rates, 0.2 * scale)
            for member in range(5):
                sequence, _ = evolve(rng, *branch, scale * rng.uniform(0.05, 0.25))
                name = f"f{number}_{family}_{member}"
                labels.append(f"{name}\trna.{number}.1.{family}\n")
                if (family, member) == (0, 0):
                    queries.append(f">{name}\n{letters[sequence].tobytes().decode()}\n")
                flanks = [rng.integers(0, 4, rng.integers(100)).astype(np.uint8) for _ in range(2)]
                targets.append((name, np.concatenate([flanks[0], sequence, flanks[1]])))
    for number in range(20 * len(records)):
        targets += [
            (f"rev_{number}_{k}", rng.permutation(targets[rng.integers(len(labels))][1])) for k in range(10)
        ]
    folder.mkdir(parents=True)
    (folder / "labels.tsv").write_text("".join(labels))
    (folder / "queries.fasta").write_text("".join(queries))
    texts = (f">{name}\n{letters[sequence].tobytes().decode()}\n" for name, sequence in targets)
    (folder / "db.fasta").write_text("".join(texts))


TOOLS = {
    "foldcli": foldcli(1),
    "blastp": Tool(
        "blastp",
        "blastp -query {queries} -db {db} -out {out} -outfmt 6 -evalue {evalue} "
        "-max_target_seqs {max_targets} -num_threads {threads}",
        "makeblastdb -in {fasta} -dbtype prot -out {db}",
    ),
    "mmseqs": mmseqs(""),
    "diamond": Tool(
        "diamond",
        "diamond blastp -q {queries} -d {db} -o {out} --ultra-sensitive -e {evalue} -k {max_targets} "
        "-p {threads}",
        "diamond makedb --in {fasta} -d {db}",
    ),
    "phmmer": hmmer("phmmer"),
    "foldcli-3": foldcli(3),
    "mmseqs-3": mmseqs("--num-iterations 3 --e-profile 0.1"),
    "jackhmmer-3": hmmer("jackhmmer", "-N 3"),
}
"""The tools by name; -3 means three iterations."""
_NHMMER = "--watson --dna --qformat fasta --qsingle_seqs"
RNA_TOOLS = {
    "foldcli": TOOLS["foldcli"],
    "foldcli-3": TOOLS["foldcli-3"],
    "nhmmer": hmmer("nhmmer", _NHMMER),
    "nhmmer-max": hmmer("nhmmer", f"{_NHMMER} --max"),
}


def roc1(results: HitTable, queries: list[str], labels: dict[str, str], level: str) -> float:
    """Compute ROC1, 0 to 1, over the queries whose class has other members."""
    depth = LEVELS[level]
    classes = {name: ".".join(label.split(".")[:depth]) for name, label in labels.items()}
    folds = {name: ".".join(label.split(".")[:2]) for name, label in labels.items()}
    sizes = Counter(classes.values())
    fractions = []
    for query in queries:
        others = sizes[classes[query]] - 1
        if not others:
            continue
        true = 0
        for _, target in results.get(query, []):
            if target == query:
                continue
            if target.startswith("rev_"):
                break
            if target not in labels:
                continue
            if classes[target] == classes[query]:
                true += 1
            elif folds[target] != folds[query]:
                break
        fractions.append(true / others)
    return sum(fractions) / len(fractions)


def decoy_ratios(results: HitTable, queries: int, share: float) -> list[float]:
    """Compute the ratio of observed to expected decoys up to each E-value of LIMITS."""
    values = [value for hits in results.values() for value, target in hits if target.startswith("rev_")]
    return [sum(value <= limit for value in values) / (limit * share * queries) for limit in LIMITS]


def main() -> None:
    options = parse_options(
        __doc__, "folder", threads=2, tools=str, molecule=("protein", "rna"), ancestors=Path, device="cpu",
        evalue=EVALUE, max_targets=MAX_TARGETS
    )  # fmt: skip
    available = RNA_TOOLS if options.molecule == "rna" else TOOLS
    tools = options.tools.split(",") if options.tools else list(available)
    if options.ancestors is not None:
        make_rna(options.ancestors, options.folder)
    if unknown := set(tools) - set(available):
        raise SystemExit(f"unknown tools: {', '.join(sorted(unknown))}; known: {', '.join(available)}")
    labels = dict(line.split()[:2] for line in (options.folder / "labels.tsv").read_text().splitlines())
    limits = ", ".join(f"{limit:g}" for limit in LIMITS)
    columns = f"{'family':>8}{'superfamily':>13}{'seconds':>9}{'CPU':>8}"
    print(f"{'':14}{columns}   decoys found ÷ expected at E ≤ {limits}")
    with tempfile.TemporaryDirectory() as name:
        benchmark = Benchmark(
            options.folder, Path(name), options.threads, options.device, options.evalue, options.max_targets,
            options.molecule,
        )  # fmt: skip
        queries, ids = (
            [line[1:].split()[0] for line in path.read_text().splitlines() if line.startswith(">")]
            for path in (benchmark.queries, benchmark.fasta)
        )
        share = sum(each.startswith("rev_") for each in ids) / len(ids)
        for tool in tools:
            program = available[tool].program
            if program and shutil.which(program) is None:
                print(f"{tool:14}not installed")
                continue
            (wall, cpu), results = available[tool].search(benchmark)
            roc1_by_level = [roc1(results, queries, labels, level) for level in LEVELS]
            calibration = "  ".join(f"{ratio:.2f}" for ratio in decoy_ratios(results, len(queries), share))
            print(
                f"{tool:14}{roc1_by_level[0]:8.4f}{roc1_by_level[1]:13.4f}{wall:9.1f}{cpu:8.1f}"
                f"   {calibration}",
                flush=True,
            )


if __name__ == "__main__":
    main()
