"""How many hits chance finds at a given E-value: real queries against shuffled real proteins.

    python benchmarks/evalue_calibration.py DATABASE.fasta QUERIES.fasta [--queries 125] [--threads 2]

Every sequence of the database is shuffled, so each hit is due to chance, and at E-value x there should be x
of them a query. Printed with and without composition correction, and for the published parameters of 11/1
beside those of 10/1, which in NCBI's counting has our gap costs (a gap's first residue costs 11).
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from msa.build import build_database
from msa.database import TargetDatabase
from msa.fasta import read_fasta
from msa.search import SearchSettings, search
from msa.statistics import evalue, gumbel_parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("queries")
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
        for correction in (True, False):
            settings = SearchSettings(
                evalue=1000, max_seqs=1000, comp_bias_corr=correction, threads=options.threads
            )
            pairs = [(query, hit) for query in queries for hit in search(query, database, settings)]
            print(f"composition correction {'on' if correction else 'off'}, {len(queries)} queries")
            for costs in ((11, 1), (10, 1)):
                parameters = gumbel_parameters(*costs)
                values = np.array(
                    [
                        evalue(h.score, len(q.sequence), h.target_length, database.total_residues, parameters)
                        for q, h in pairs
                    ]
                )
                counts = ", ".join(
                    f"{(values <= x).sum()} at E ≤ {x:g} (should be {x * len(queries):g})"
                    for x in (0.1, 1, 3)
                )
                print(f"  parameters of {costs[0]}/{costs[1]}: {counts}")


if __name__ == "__main__":
    main()
