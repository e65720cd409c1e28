"""Calibration of E-values: the number of hits of real queries among shuffled real proteins.

    python benchmarks/evalue_calibration.py DATABASE.fasta QUERIES.fasta [--matrix NAME,…] [--queries 125]

Because every sequence of the database is shuffled, all hits are due to chance, and x hits per query with an
E-value up to x are expected. Counts are printed with and without composition correction, for each matrix
with its default gap costs.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from msa.database.build import build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import read_fasta
from msa.search.search import search
from msa.search.settings import SearchSettings, default_gap_costs

LIMITS = (0.1, 1.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("queries")
    parser.add_argument("--matrix", default="BLOSUM62", help="comma-separated names")
    parser.add_argument("--queries", dest="count", type=int, default=125)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    queries = list(read_fasta(options.queries))
    queries = queries[:: max(1, len(queries) // options.count)][: options.count]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        shuffled = Path(name) / "shuffled.fasta"
        with shuffled.open("w") as stream:
            for number, record in enumerate(read_fasta(options.database)):
                letters = np.frombuffer(record.sequence.encode(), "S1").copy()
                rng.shuffle(letters)
                stream.write(f">{number}\n{letters.tobytes().decode()}\n")
        build_database([shuffled], Path(name) / "db")
        database = TargetDatabase.open(Path(name) / "db")
        expected = ", ".join(f"{limit * len(queries):g} at E ≤ {limit:g}" for limit in LIMITS)
        print(f"{len(queries)} queries; expected hits: {expected}")
        for matrix in options.matrix.split(","):
            gap_open, gap_extend, profile_gap_open = default_gap_costs(matrix)
            for correction in (True, False):
                settings = SearchSettings(
                    evalue=LIMITS[-1], max_seqs=1000, matrix=matrix, gap_open=gap_open, gap_extend=gap_extend,
                    profile_gap_open=profile_gap_open, comp_bias_corr=correction, threads=options.threads,
                )  # fmt: skip
                values = np.array(
                    [hit.evalue for query in queries for hit in search(query, database, settings)]
                )
                counts = ", ".join(str((values <= limit).sum()) for limit in LIMITS)
                print(
                    f"{matrix} {gap_open}/{gap_extend}, correction {'on' if correction else 'off'}: {counts}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
