"""Agreement of foldcli with mmseqs and blastp: best hits, raw scores and bit scores.

    python benchmarks/search_agreement.py DATABASE.fasta QUERIES.fasta [--queries 100] [--threads 2]

Two comparisons are made. Plain: all tools run without composition correction and masking. Default: each
tool runs with its own corrections and masking. mmseqs runs its gapless prefilter and its alignment, as
foldcli does, so that its k-mer heuristics do not affect the result.

A tool's best hits are all targets within half a bit of the highest bit score. Agreement is counted over the
queries for which either tool has a hit, once with all targets and once without copies of the query itself.
Scores and bits are compared for pairs of query and target that both tools report at E ≤ 1e-3.

Gap costs of 11/1 mean different things: a gap's first residue costs 11 in foldcli and mmseqs, but 12 in
blastp. blastp therefore also runs with 10/1, where its raw scores equal foldcli's, but its bit scores use
other statistics.

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
from msa.engines.settings import SearchSettings
from msa.io.fasta import FastaRecord, read_fasta
from msa.search.search import search


@dataclass(frozen=True)
class Row:
    """The scores of one reported hit."""

    raw: int
    bits: float


Results = dict[str, dict[str, Row]]
"""Reported hits by query id and target id."""


def run(*arguments: object) -> str:
    return subprocess.run(list(map(str, arguments)), check=True, capture_output=True, text=True).stdout


def parse(text: str) -> Results:
    """Parse lines of query, target, raw score and bits; the first line of a pair counts."""
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
    # without -e, the prefilter drops targets with a gapless E-value above 1e-3
    run("mmseqs", "ungappedprefilter", queries, targets, folder / "mp.db", "-e", "1e9", *bias, *quiet)
    run("mmseqs", "align", queries, targets, folder / "mp.db", folder / "ma.db", "-a", "-e", "1e-3", *bias,
        *quiet)  # fmt: skip
    run("mmseqs", "convertalis", queries, targets, folder / "ma.db", folder / "mp.table", "--format-output",
        "query,target,raw,bits", *quiet)  # fmt: skip
    return parse((folder / "mp.table").read_text())


def foldcli(folder: Path, queries: list[FastaRecord], threads: int, plain: bool) -> Results:
    database = TargetDatabase.open(folder / ("plain" if plain else "masked"))
    settings = SearchSettings(matrix="BLOSUM62", gap_open=11, comp_bias_corr=not plain, threads=threads)
    return {
        query.id: {hit.id: Row(hit.alignment.score, hit.bits) for hit in search(query, database, settings)}
        for query in queries
    }


def best_hits(rows: dict[str, Row]) -> set[str]:
    """Return the targets with the best bit score, within half a bit."""
    best = max((row.bits for row in rows.values()), default=0.0)
    return {target for target, row in rows.items() if row.bits >= best - 0.5}


def describe_ratios(ratios: list[float]) -> str:
    """Describe ratios by the median change, the median absolute change and the fraction of small changes."""
    changes = [100 * (ratio - 1) for ratio in ratios]
    within = 100 * sum(abs(change) <= 2 for change in changes) / len(changes)
    median, absolute = statistics.median(changes), statistics.median(map(abs, changes))
    return f"median {median:+5.2f} %, absolute {absolute:4.2f} %, {within:3.0f} % of pairs within 2 %"


def agreement(pairs: list[tuple[dict[str, Row], dict[str, Row]]]) -> str:
    """Describe the number of queries with the same best hit, among those with any hit."""
    pairs = [(a, b) for a, b in pairs if a or b]
    same = sum(bool(best_hits(a) & best_hits(b)) for a, b in pairs)
    return f"{same} of {len(pairs)}"


def compare(
    tool: str, ours: Results, theirs: Results, queries: list[FastaRecord], copies: dict[str, set[str]]
) -> None:
    pairs, pairs_without_copies, raw, bits = [], [], [], []
    for query in queries:
        a, b = ours.get(query.id, {}), theirs.get(query.id, {})
        pairs.append((a, b))
        pairs_without_copies.append(
            tuple({t: r for t, r in x.items() if t not in copies[query.id]} for x in (a, b))
        )
        for target in a.keys() & b.keys():
            raw.append(a[target].raw / b[target].raw)
            bits.append(a[target].bits / b[target].bits)
    hits = [sum(map(len, results.values())) for results in (ours, theirs)]
    without_copies = agreement(pairs_without_copies)
    print(f"  {tool}: same best hit {agreement(pairs)}; without copies of the query {without_copies}")
    print(f"    hits: ours {hits[0]}, theirs {hits[1]}, both {len(raw)}")
    print(f"    raw scores, ours to theirs: {describe_ratios(raw)}")
    print(f"    bits, ours to theirs:       {describe_ratios(bits)}")


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
        # name targets by number, because mmseqs and blastp shorten some names
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
