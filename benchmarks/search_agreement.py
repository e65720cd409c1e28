"""First hits, scores and bits beside mmseqs and blastp, on the same queries and database.

    python benchmarks/search_agreement.py DATABASE.fasta QUERIES.fasta [--queries 100] [--threads 2]

Two comparisons, each like with like. Plain: no composition correction, no masking, on any side. Default: each
tool with its own corrections and masking. mmseqs runs its gapless prefilter and its alignment, as we do, so
that its k-mer heuristics do not matter. Of several targets within half a bit of a tool's best any counts as
its first hit; where the database holds the query itself, the first of the others says more, so both are
counted, over the queries for which either tool has one. Scores and bits are compared on pairs of query and
target that both tools report at E ≤ 1e-3.

Gap costs named 11/1 are not the same everywhere: a gap's first residue costs 11 here and in mmseqs, and 12 in
blastp. So blastp also runs with 10/1, where its raw scores are ours; its bits are then of other statistics.

Needs `mmseqs`, `blastp` and `makeblastdb` on the PATH (Debian: mmseqs2, ncbi-blast+).
"""

import argparse
import statistics
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord, read_fasta
from msa.search.search import search
from msa.search.settings import SearchSettings


@dataclass(frozen=True)
class Row:
    """One reported hit."""

    raw: int
    bits: float


Results = dict[str, dict[str, Row]]  # query → target → hit


def run(*arguments: object) -> str:
    return subprocess.run(list(map(str, arguments)), check=True, capture_output=True, text=True).stdout


def parse(text: str) -> Results:
    """Lines of query, target, raw score, bits; the first of a pair counts."""
    results: Results = defaultdict(dict)
    for line in text.splitlines():
        query, target, raw, bits = line.split("\t")
        results[query].setdefault(target, Row(int(raw), float(bits)))
    return results


def blastp(folder: Path, threads: int, plain: bool, gap_open: int = 11) -> Results:
    corrections = ["-comp_based_stats", "0", "-seg", "no"] if plain else []
    return parse(
        run(
            "blastp", "-query", folder / "queries.fasta", "-db", folder / "blast", "-evalue", "1e-3",
            "-num_threads", threads, "-outfmt", "6 qseqid sseqid score bitscore",
            "-gapopen", gap_open, "-gapextend", 1, *corrections,
        )
    )  # fmt: skip


def mmseqs(folder: Path, threads: int, plain: bool) -> Results:
    bias = ["--comp-bias-corr", int(not plain)]
    quiet = ["--threads", threads, "-v", 1]
    queries, targets = folder / "mq", folder / "mt"
    for path in folder.glob("m[pa].*"):
        path.unlink()
    # without -e the prefilter drops what has no gapless E-value below 1e-3
    run("mmseqs", "ungappedprefilter", queries, targets, folder / "mp.db", "-e", "1e9", *bias, *quiet)
    run(
        "mmseqs",
        "align",
        queries,
        targets,
        folder / "mp.db",
        folder / "ma.db",
        "-a",
        "-e",
        "1e-3",
        *bias,
        *quiet,
    )
    run("mmseqs", "convertalis", queries, targets, folder / "ma.db", folder / "mp.table", "--format-output",
        "query,target,raw,bits", *quiet)  # fmt: skip
    return parse((folder / "mp.table").read_text())


def foldcli(folder: Path, queries: list[FastaRecord], threads: int, plain: bool) -> Results:
    database = TargetDatabase.open(folder / ("plain" if plain else "masked"))
    settings = SearchSettings(comp_bias_corr=not plain, threads=threads)
    return {
        query.id: {hit.id: Row(hit.score, hit.bits) for hit in search(query, database, settings)}
        for query in queries
    }


def first_hits(found: dict[str, Row]) -> set[str]:
    """Targets with the best bit score, as far as the printed digits tell them apart."""
    best = max((row.bits for row in found.values()), default=0.0)
    return {target for target, row in found.items() if row.bits >= best - 0.5}


def spread(ratios: list[float]) -> str:
    """Median of the differences, median of their sizes, and how many are small."""
    changes = [100 * (ratio - 1) for ratio in ratios]
    within = 100 * sum(abs(change) <= 2 for change in changes) / len(changes)
    middle, size = statistics.median(changes), statistics.median(map(abs, changes))
    return f"median {middle:+5.2f} %, of sizes {size:4.2f} %, {within:3.0f} % of pairs within 2 %"


def agreement(pairs: list[tuple[dict[str, Row], dict[str, Row]]]) -> str:
    """In how many queries with any hit the first is the same."""
    pairs = [(a, b) for a, b in pairs if a or b]
    same = sum(bool(first_hits(a) & first_hits(b)) for a, b in pairs)
    return f"{same} of {len(pairs)}"


def compare(
    peer: str, ours: Results, theirs: Results, queries: list[FastaRecord], copies: dict[str, set[str]]
) -> None:
    pairs, others, raw, bits = [], [], [], []
    for query in queries:
        a, b = ours.get(query.id, {}), theirs.get(query.id, {})
        pairs.append((a, b))
        others.append(tuple({t: r for t, r in x.items() if t not in copies[query.id]} for x in (a, b)))
        for target in a.keys() & b.keys():
            raw.append(a[target].raw / b[target].raw)
            bits.append(a[target].bits / b[target].bits)
    hits = [sum(map(len, results.values())) for results in (ours, theirs)]
    print(f"  {peer}: same first hit {agreement(pairs)}; without copies of the query {agreement(others)}")
    print(f"    hits: ours {hits[0]}, theirs {hits[1]}, both {len(raw)}")
    print(f"    raw scores, ours to theirs: {spread(raw)}")
    print(f"    bits, ours to theirs:       {spread(bits)}")


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
        targets: dict[str, set[str]] = defaultdict(set)
        for i, record in enumerate(read_fasta(options.database)):
            targets[record.sequence].add(f"t{i}")
        copies = {query.id: targets[query.sequence] for query in queries}
        for kind, mask in (("plain", False), ("masked", True)):
            build_database([folder / "targets.fasta"], folder / kind, BuildSettings(mask=mask))
        run("mmseqs", "createdb", folder / "queries.fasta", folder / "mq", "-v", 1)
        run("mmseqs", "createdb", folder / "targets.fasta", folder / "mt", "-v", 1)
        run("makeblastdb", "-in", folder / "targets.fasta", "-dbtype", "prot", "-out", folder / "blast")
        for plain in (True, False):
            print("plain:" if plain else "default:")
            ours = foldcli(folder, queries, options.threads, plain)
            compare("blastp 11/1", ours, blastp(folder, options.threads, plain), queries, copies)
            compare("blastp 10/1", ours, blastp(folder, options.threads, plain, gap_open=10), queries, copies)
            compare("mmseqs 11/1", ours, mmseqs(folder, options.threads, plain), queries, copies)


if __name__ == "__main__":
    main()
