"""First hits and bit scores beside mmseqs and blastp, on the same queries and database.

    python benchmarks/search_agreement.py DATABASE.fasta QUERIES.fasta [--queries 100] [--threads 2]

Two comparisons, each like with like. Plain: no composition correction, no masking, on any side. Default: each
tool with its own corrections and masking. mmseqs runs its gapless prefilter and its alignment, as we do, so
that its k-mer heuristics do not matter. Of several targets with a tool's best bit score any counts as its first
hit. Bits are compared on pairs of query and target that both tools report at E ≤ 1e-3, in the plain comparison
beside those whose alignments have the same ends.

Needs `mmseqs`, `blastp` and `makeblastdb` on the PATH (Debian: mmseqs2, ncbi-blast+).
"""

import argparse
import statistics
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from msa.build import BuildSettings, build_database
from msa.database import TargetDatabase
from msa.fasta import FastaRecord, read_fasta
from msa.search import SearchSettings, search


@dataclass(frozen=True)
class Row:
    """One reported hit."""

    bits: float
    ends: tuple[int, int, int, int]


Results = dict[str, dict[str, Row]]  # query → target → hit


def run(*arguments: object) -> str:
    return subprocess.run(list(map(str, arguments)), check=True, capture_output=True, text=True).stdout


def parse(text: str) -> Results:
    """Lines of query, target, bits, qstart, qend, tstart, tend; the first of a pair counts."""
    results: Results = defaultdict(dict)
    for line in text.splitlines():
        query, target, bits, *ends = line.split("\t")
        results[query].setdefault(target, Row(float(bits), tuple(map(int, ends))))  # type: ignore[arg-type]
    return results


def blastp(folder: Path, threads: int, plain: bool) -> Results:
    corrections = ["-comp_based_stats", "0", "-seg", "no"] if plain else []
    return parse(
        run(
            "blastp", "-query", folder / "queries.fasta", "-db", folder / "blast", "-evalue", "1e-3",
            "-num_threads", threads, "-outfmt", "6 qseqid sseqid bitscore qstart qend sstart send",
            "-gapopen", 11, "-gapextend", 1, *corrections,
        )
    )  # fmt: skip


def mmseqs(folder: Path, threads: int, plain: bool) -> Results:
    bias = ["--comp-bias-corr", int(not plain)]
    quiet = ["--threads", threads, "-v", 1]
    queries, targets = folder / "mq", folder / "mt"
    for path in folder.glob("m[pa].*"):
        path.unlink()
    run("mmseqs", "ungappedprefilter", queries, targets, folder / "mp.db", *bias, *quiet)
    run("mmseqs", "align", queries, targets, folder / "mp.db", folder / "ma.db", "-a", "-e", "1e-3", *bias, *quiet)
    columns = "query,target,bits,qstart,qend,tstart,tend"
    run("mmseqs", "convertalis", queries, targets, folder / "ma.db", folder / "mp.table", "--format-output", columns,
        *quiet)  # fmt: skip
    return parse((folder / "mp.table").read_text())


def foldcli(folder: Path, queries: list[FastaRecord], threads: int, plain: bool) -> Results:
    database = TargetDatabase.open(folder / ("plain" if plain else "masked"))
    settings = SearchSettings(comp_bias_corr=not plain, threads=threads)
    return {
        query.id: {
            hit.id: Row(hit.bits, (hit.qstart, hit.qend, hit.tstart, hit.tend))
            for hit in search(query, database, settings)
        }
        for query in queries
    }


def first_hits(found: dict[str, Row]) -> set[str]:
    """Targets with the best bit score, as far as the printed digits tell them apart."""
    best = max((row.bits for row in found.values()), default=0.0)
    return {target for target, row in found.items() if row.bits >= best - 0.5}


def compare(peer: str, ours: Results, theirs: Results, queries: list[FastaRecord]) -> None:
    same, neither, different = 0, 0, []
    changes, same_ends = [], []
    for query in queries:
        a, b = ours.get(query.id, {}), theirs.get(query.id, {})
        if not a and not b:
            neither += 1
        elif first_hits(a) & first_hits(b):
            same += 1
        else:
            different.append(query.id)
        for target in a.keys() & b.keys():
            # mmseqs rounds bits and blastp truncates them from 100 on: half a bit is the unit of comparison
            change = a[target].bits / b[target].bits - 1
            changes.append(change)
            if a[target].ends == b[target].ends:
                same_ends.append(change)
    within = sum(abs(change) <= 0.02 for change in changes) / max(1, len(changes))
    print(
        f"  {peer:7s} same first hit {same} of {len(queries)} (+ {neither} without hits in both); bits, "
        f"{len(changes)} pairs: median difference {100 * statistics.median(changes):+.2f} %, median size "
        f"{100 * statistics.median(map(abs, changes)):.2f} %, {100 * within:.0f} % of pairs within 2 %"
    )
    print(
        f"          {len(same_ends)} pairs with the same ends: median {100 * statistics.median(same_ends):+.2f} %"
    )
    hits = [sum(map(len, results.values())) for results in (ours, theirs)]
    print(f"          hits {hits[0]} and {hits[1]}; other first hit: {', '.join(different) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("queries")
    parser.add_argument("--queries", dest="count", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    queries = list(read_fasta(options.queries))[: options.count]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "queries.fasta").write_text("".join(f">{q.header}\n{q.sequence}\n" for q in queries))
        # by number: mmseqs and blastp cut some names short
        with (folder / "targets.fasta").open("w") as stream:
            stream.writelines(f">t{i}\n{r.sequence}\n" for i, r in enumerate(read_fasta(options.database)))
        for kind, mask in (("plain", False), ("masked", True)):
            build_database([folder / "targets.fasta"], folder / kind, BuildSettings(mask=mask))
        run("mmseqs", "createdb", folder / "queries.fasta", folder / "mq", "-v", 1)
        run("mmseqs", "createdb", folder / "targets.fasta", folder / "mt", "-v", 1)
        run("makeblastdb", "-in", folder / "targets.fasta", "-dbtype", "prot", "-out", folder / "blast")
        for plain in (True, False):
            print("plain:" if plain else "default:")
            ours = foldcli(folder, queries, options.threads, plain)
            for peer, theirs in (
                ("blastp", blastp(folder, options.threads, plain)),
                ("mmseqs", mmseqs(folder, options.threads, plain)),
            ):
                compare(peer, ours, theirs, queries)


if __name__ == "__main__":
    main()
