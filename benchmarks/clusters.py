"""Search of a clustered database, compared with a search of all sequences.

    python benchmarks/clusters.py DB.fasta QUERIES.fasta [--min-seq-id 0.3]

The clusters come from `mmseqs easy-linclust`. For 1 and 3 iterations the benchmark prints the hits of both
searches with E ≤ 1e-3, their CPU seconds on one thread, the number of common hits, and the number of common
hits with the same score, E-value and alignment.
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

# (query, target) -> score, E-value and CIGAR
HitTable = dict[tuple[str, str], tuple[int, float, str]]


def make_clusters(fasta: Path, folder: Path, identity: float) -> Path:
    """Run mmseqs; return the table of clusters with a minimum identity and a coverage of 0.8."""
    command = [
        "mmseqs", "easy-linclust", fasta, folder / "clusters", folder / "tmp", "--min-seq-id", identity,
        "-c", 0.8, "-v", 1,
    ]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return folder / "clusters_cluster.tsv"


def timed_search(
    database: TargetDatabase, queries: list[FastaRecord], iterations: int
) -> tuple[HitTable, float]:
    """Return the hits of all queries, and CPU seconds."""
    settings = SearchSettings(max_seqs=1000, num_iterations=iterations)
    started = time.process_time()
    table = {
        (query.id, hit.id): (hit.score, hit.evalue, hit.cigar)
        for query, hits in search_many(queries, database, settings)
        for hit in hits
    }
    return table, time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--min-seq-id", type=float, default=0.3)
    options = parser.parse_args()
    queries = list(read_fasta(options.queries))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        table = make_clusters(options.database, folder, options.min_seq_id)
        databases = []
        for name, clusters in (("whole", None), ("clustered", table)):
            build_database([options.database], folder / name, BuildSettings(clusters=clusters))
            databases.append(TargetDatabase.open(folder / name))
        whole, clustered = databases
        print(
            f"{len(queries)} queries, {len(whole):,} sequences, {clustered.representatives:,} clusters, "
            f"{clustered.manifest.clusters.residues / whole.total_residues:.0%} of the residues in them"
        )
        # compiles the kernels
        timed_search(clustered, queries[:1], 2)
        print(f"{'iterations':12}{'whole':>8}{'':9}{'clustered':>10}{'':9}{'both':>7}{'equal':>7}")
        for iterations in (1, 3):
            whole_hits, whole_seconds = timed_search(whole, queries, iterations)
            clustered_hits, clustered_seconds = timed_search(clustered, queries, iterations)
            both = whole_hits.keys() & clustered_hits.keys()
            equal = sum(whole_hits[pair] == clustered_hits[pair] for pair in both)
            print(
                f"{iterations:<12}{len(whole_hits):8,}{whole_seconds:7.1f} s"
                f"{len(clustered_hits):10,}{clustered_seconds:7.1f} s"
                f"{len(both):7,}{equal:7,}"
            )


if __name__ == "__main__":
    main()
