"""A database searched by its clusters' representatives beside the same database searched whole.

python benchmarks/clusters.py DB.fasta QUERIES.fasta [--min-seq-id 0.3]: clusters that `mmseqs easy-linclust`
made; hits with E ≤ 1e-3 of both ways for 1 and 3 iterations, those that both find, how many of these have the
same score, E-value and path, and CPU seconds on one thread.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord, read_fasta
from msa.search.search import SearchSettings, search_many

Found = dict[tuple[str, str], tuple[int, float, str]]


def clusters_of(fasta: Path, folder: Path, identity: float) -> Path:
    """The table of clusters at some identity and a coverage of 0.8."""
    command = [
        "mmseqs", "easy-linclust", fasta, folder / "clusters", folder / "tmp", "--min-seq-id", identity,
        "-c", 0.8, "-v", 1,
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return folder / "clusters_cluster.tsv"


def found_in(database: TargetDatabase, queries: list[FastaRecord], iterations: int) -> tuple[Found, float]:
    """What is told of each hit, and CPU seconds."""
    settings = SearchSettings(max_seqs=1000, num_iterations=iterations)
    started = time.process_time()
    found = {
        (query.id, hit.id): (hit.score, hit.evalue, hit.cigar)
        for query, hits in search_many(queries, database, settings)
        for hit in hits
    }
    return found, time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--min-seq-id", type=float, default=0.3)
    given = parser.parse_args()
    queries = list(read_fasta(given.queries))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = clusters_of(given.database, folder, given.min_seq_id)
        databases = []
        for part, clusters in (("whole", None), ("clustered", table)):
            build_database([given.database], folder / part, BuildSettings(clusters=clusters))
            databases.append(TargetDatabase.open(folder / part))
        whole, clustered = databases
        print(
            f"{len(queries)} queries, {len(whole):,} sequences, {clustered.representatives:,} clusters, "
            f"{clustered.manifest.clusters.residues / whole.total_residues:.0%} of the residues theirs"
        )
        # compiles the kernels
        found_in(clustered, queries[:1], 2)
        print(f"{'iterations':12}{'whole':>8}{'':9}{'clustered':>10}{'':9}{'both':>7}{'equal':>7}")
        for iterations in (1, 3):
            (one, seconds), (other, less) = (found_in(each, queries, iterations) for each in databases)
            both = one.keys() & other.keys()
            equal = sum(one[pair] == other[pair] for pair in both)
            print(
                f"{iterations:<12}{len(one):8,}{seconds:7.1f} s{len(other):10,}{less:7.1f} s"
                f"{len(both):7,}{equal:7,}"
            )


if __name__ == "__main__":
    main()
