"""Full-length proteins: hits that tools agree on, and chance hits.

    python benchmarks/full_length.py PROTEINS.fasta [--queries 200] [--tools foldcli,…]
    python benchmarks/full_length.py PROTEINS.fasta --queries 300 --seed 24 --exclude-seed 23

Queries are random proteins of 200 to 800 residues; --exclude-seed leaves out the 200 that another seed
selects, so that a second set has no query of the first. Prints for each tool:
- Missed: of the hits that at least two of the other tools (of blastp, MMseqs2 and phmmer) find at E ≤ 1e-3,
  the number and percentage that the tool does not, with a 95 % interval from a bootstrap over queries, and
  the number in each of five folds of the queries.
- Chance hits: the number of hits of reversed queries with an E-value of at most 0.01, 0.1, 1
  and 10, divided by the expected number, with intervals. blastp, MMseqs2 and phmmer skip many such targets.

Tools are those of sensitivity.py with one iteration; programs that are not installed are skipped.

--tools: comma-separated; --device: device of foldcli.
"""

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from options import parse_options
from sensitivity import TOOLS, Benchmark, HitTable

from msa.io.fasta import read_fasta

PEERS = ("blastp", "mmseqs", "phmmer")
LEVEL = 1e-3
LIMITS = (0.01, 0.1, 1.0, 10.0)
MIN_LENGTH, MAX_LENGTH = 200, 800
QUERIES = 200
FOLDS = 5
Sequences = dict[str, str]


def write_fasta(path: Path, sequences: Sequences) -> None:
    path.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in sequences.items()))


def search(tool: str, queries: Sequences, fasta: Path, options: argparse.Namespace) -> HitTable:
    """Search with one tool."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_fasta(folder / "queries.fasta", queries)
        (folder / "db.fasta").symlink_to(fasta)
        benchmark = Benchmark(folder, folder, options.threads, options.device, evalue="10")
        _, hits = TOOLS[tool].search(benchmark)
    return hits


def hits_below(hits: HitTable, evalue: float) -> set[tuple[str, str]]:
    return {(query, target) for query, found in hits.items() for value, target in found if value <= evalue}


def describe_missed(tool: str, results: dict[str, HitTable], queries: Iterable[str]) -> str:
    """Describe the hits that the other tools agree on and the tool misses."""
    votes = Counter(
        pair
        for peer in PEERS
        if peer != tool and peer in results
        for pair in hits_below(results[peer], LEVEL)
    )
    found = hits_below(results[tool], LEVEL)
    agreed, missed = Counter[str](), Counter[str]()
    for pair, count in votes.items():
        if count >= 2:
            agreed[pair[0]] += 1
            missed[pair[0]] += pair not in found
    names = list(queries)
    counts = np.array([(missed[name], agreed[name]) for name in names])
    if not counts[:, 1].sum():
        return "the other tools agree on no hit"
    rng = np.random.default_rng(0)
    samples = counts[rng.integers(0, len(names), (1000, len(names)))].sum(axis=1)
    low, high = np.percentile(100 * samples[:, 0] / np.maximum(samples[:, 1], 1), [2.5, 97.5])
    total, of = counts.sum(axis=0).tolist()
    folds = " ".join(str(counts[fold::FOLDS, 0].sum()) for fold in range(FOLDS))
    return f"missed {total} of {of}: {100 * total / of:.2f} % ({low:.2f} to {high:.2f}), folds {folds}"


def describe_chance_hits(hits: HitTable, queries: Iterable[str]) -> str:
    """Describe the ratio of found to expected chance hits up to each limit, with bootstrap intervals."""
    names = list(queries)
    rng = np.random.default_rng(0)
    samples = rng.integers(0, len(names), (1000, len(names)))
    ratios = []
    for limit in LIMITS:
        counts = np.array([sum(value <= limit for value, _ in hits.get(name, [])) for name in names])
        low, high = np.percentile(counts[samples].mean(axis=1) / limit, [2.5, 97.5])
        ratios.append(f"{counts.mean() / limit:.2f} ({low:.2f} to {high:.2f})")
    return " ".join(ratios)


def choose_queries(lengths: dict[str, int], count: int, rng: np.random.Generator) -> list[str]:
    """Choose proteins of suitable lengths at random."""
    names = [name for name, length in lengths.items() if MIN_LENGTH <= length <= MAX_LENGTH]
    return [names[k] for k in rng.choice(len(names), count, replace=False)]


def compare_tools(tools: list[str], options: argparse.Namespace) -> None:
    """Print missed and chance hits of each tool."""
    rng = np.random.default_rng(options.seed)
    # number the targets, because some tools shorten names
    proteins = {f"t{k}": record.sequence for k, record in enumerate(read_fasta(options.proteins))}
    lengths = {name: len(sequence) for name, sequence in proteins.items()}
    if options.exclude_seed is not None:
        for name in choose_queries(lengths, QUERIES, np.random.default_rng(options.exclude_seed)):
            del lengths[name]
    chosen = choose_queries(lengths, options.queries, rng)
    sets = {
        "real": {name: proteins[name] for name in chosen},
        "reversed": {name: proteins[name][::-1] for name in chosen},
    }
    with tempfile.TemporaryDirectory() as folder:
        fasta = Path(folder) / "db.fasta"
        write_fasta(fasta, proteins)
        results = {tool: search(tool, sets["real"], fasta, options) for tool in tools}
        for tool in tools:
            print(f"{tool:10}{describe_missed(tool, results, chosen)}", flush=True)
        for tool in tools:
            chance = search(tool, sets["reversed"], fasta, options)
            print(
                f"{tool:10}found ÷ expected at E ≤ 0.01, 0.1, 1, 10: {describe_chance_hits(chance, chosen)}"
            )


def main() -> None:
    options = parse_options(
        __doc__, "proteins", queries=QUERIES, seed=23, exclude_seed=int, tools=",".join(("foldcli", *PEERS)),
        threads=2, device="cpu"
    )  # fmt: skip
    programs = {tool: TOOLS[tool].program for tool in options.tools.split(",")}
    tools = [tool for tool, program in programs.items() if not program or shutil.which(program)]
    compare_tools(tools, options)


if __name__ == "__main__":
    main()
