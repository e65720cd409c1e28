"""Speed of the gapless filter compared with MMseqs2's ungappedprefilter, on the CPU.

Both run in turn, with the same threads, queries and database. MMseqs2 also starts up, reads its database
and writes results; to exclude this, its time for a database of one sequence is subtracted. Our time is the
whole call for a query: profile, scores and selection of the best targets.

    python benchmarks/gapless_cpu.py DATABASE.fasta QUERIES.fasta [--count 20] [--threads 2] [--repeats 5]

Needs `mmseqs` on the PATH (Debian: mmseqs2). Prints GCUPS (10⁹ cells, query residues × database residues, per
second), best and median of the repeats, and the ratio of each repeat.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from options import parse_options
from processes import timed

from msa.alphabet import encode
from msa.cpu.gapless import gapless_scores
from msa.database.cached_databases import open_or_build_database
from msa.database.sequence_arrays import SequenceArrays
from msa.hits.filtered_targets import best_targets
from msa.io.fasta import FastaRecord, read_fasta
from msa.profile.pssm import query_profile


def mmseqs(*arguments: object) -> float:
    """Run mmseqs without output; return the wall seconds."""
    return timed(["mmseqs", *map(str, arguments), "-v", "1"]).seconds


class Prefilter:
    """MMseqs2 databases on which ungappedprefilter is timed."""

    def __init__(self, folder: Path, records: list[FastaRecord], queries: list[FastaRecord]) -> None:
        self._folder = folder
        for name, content in (("targets", records), ("one", records[:1]), ("queries", queries)):
            text = "".join(f">{r.header}\n{r.sequence}\n" for r in content)
            (folder / f"{name}.fasta").write_text(text)
            mmseqs("createdb", folder / f"{name}.fasta", folder / name)

    def seconds(self, database: str, threads: int) -> float:
        """Return the wall seconds of ungappedprefilter on a database."""
        for old in self._folder.glob("result*"):
            old.unlink()
        return mmseqs(
            "ungappedprefilter", self._folder / "queries", self._folder / database, self._folder / "result",
            "--threads", threads,
        )  # fmt: skip


def our_seconds(targets: SequenceArrays, queries: list[FastaRecord], threads: int) -> float:
    start = time.perf_counter()
    for query in queries:
        scores = gapless_scores(query_profile(encode(query.sequence)), targets, threads)
        best_targets(scores, 300, 15)
    return time.perf_counter() - start


def main() -> None:
    options = parse_options(__doc__, "database", "queries", count=20, threads=2, repeats=5)
    if shutil.which("mmseqs") is None:
        raise SystemExit("gapless_cpu: mmseqs is not on the PATH")
    queries = list(read_fasta(options.queries))[: options.count]
    records = list(read_fasta(options.database))
    with tempfile.TemporaryDirectory() as name:
        database = open_or_build_database(options.database, Path(name) / "cache", None)
        targets = database.arrays
        residues = sum(len(q.sequence) for q in queries)
        cells = residues * database.total_residues / 1e9
        print(
            f"{len(queries)} queries, mean {residues / len(queries):.0f} residues, {len(database)} targets, "
            f"{database.total_residues} residues, {cells:.0f} G cells, {options.threads} threads"
        )
        competitor = Prefilter(Path(name), records, queries)
        our_seconds(targets, queries[:1], options.threads)  # compile before timing
        ours, theirs = [], []
        for _ in range(options.repeats):
            theirs.append(
                competitor.seconds("targets", options.threads) - competitor.seconds("one", options.threads)
            )
            ours.append(our_seconds(targets, queries, options.threads))
        for label, seconds in (("mmseqs ungappedprefilter", theirs), ("foldcli gapless filter", ours)):
            best, median = cells / min(seconds), cells / statistics.median(seconds)
            print(f"{label:26s} best {best:6.1f} GCUPS   median {median:6.1f} GCUPS")
        ratios = np.array(theirs) / np.array(ours)
        per_repeat = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"ratio of each repeat       {per_repeat}   median {np.median(ratios):.2f}")


if __name__ == "__main__":
    main()
