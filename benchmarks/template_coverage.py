"""Share of random sequences with a template, by number of search iterations, and the time of template search.

usage: python benchmarks/template_coverage.py SEQUENCES.fasta.gz [--count 300] [--iterations 1 3]
                                              [--library LIBRARY] [--device auto] [--threads N]

Random sequences are searched against SEQUENCES to make a profile (one iteration: the sequence alone), and the
profile is searched against the structure library.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from features.templates.library import EMBEDDED, StructureLibrary
from features.templates.search import search_templates_many
from features.templates.settings import TemplateSettings
from foldcli.pipeline.searcher import DatabaseSource, open_search_engine
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileQuery
from msa.search.engine import QueryProfile
from msa.search.search import search_many
from msa.search.settings import SearchSettings

MIN_COVERAGE = 0.7
LENGTHS = (50, 600)
EXPECTED = {1: 0.27, 3: 0.37}


def main() -> None:
    """Print coverage and time for each number of iterations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sequences")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--iterations", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--library", type=Path, default=EMBEDDED)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    library = StructureLibrary.open(arguments.library)
    database = DatabaseSource(arguments.sequences, arguments.device).open()
    lengths = database.arrays.lengths
    suitable = np.flatnonzero((lengths >= LENGTHS[0]) & (lengths <= LENGTHS[1]))
    chosen = np.random.default_rng(0).choice(suitable, arguments.count, replace=False)
    queries = [FastaRecord(database.id(k), database.sequence(k)) for k in chosen.tolist()]
    engine = open_search_engine(arguments.device)
    for iterations in arguments.iterations:
        records = list(queries)
        if iterations > 1:
            profiles: list[FastaRecord] = []

            def keep(
                query: FastaRecord,
                profile: QueryProfile,
                of_family: bool,
                profiles: list[FastaRecord] = profiles,
            ) -> None:
                profiles.append(
                    ProfileQuery(query.header, query.sequence, profile.profile, "search", of_family)
                )

            search = SearchSettings(num_iterations=iterations, threads=arguments.threads)
            for _ in search_many(queries, database, search, engine, on_profile=keep):
                pass
            records = profiles
        settings = TemplateSettings(threads=arguments.threads)
        list(search_templates_many(records[:2], library, settings, engine))  # compiles kernels
        start = time.perf_counter()
        results = [hits for _, hits in search_templates_many(records, library, settings, engine)]
        seconds = (time.perf_counter() - start) / len(records)
        covered = [any(each.query_coverage >= MIN_COVERAGE for each in hits.templates) for hits in results]
        print(
            f"{iterations} iterations: {np.mean(covered):.1%} of {len(records)} sequences have a template"
            f" for {MIN_COVERAGE:.0%} (expected {EXPECTED.get(iterations, 0):.0%}); template search "
            f"{1000 * seconds:.1f} ms a query"
        )


if __name__ == "__main__":
    main()
