"""Share of random sequences that have a template for most of their residues.

usage: python benchmarks/template_coverage.py SEQUENCES.fasta.gz [--count 300] [--library LIBRARY]
                                              [--device auto] [--threads N]

Random sequences are searched against SEQUENCES with the settings of `fold`, and the profile of the alignment
against the structure library; for comparison, also the sequence alone. Coverage counts the aligned residues
of the best-covering template.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from options import parse_options

from features.templates.library.library import EMBEDDED, StructureLibrary
from features.templates.library.settings import TemplateSettings
from features.templates.search import alignment_query, search_templates_many
from foldcli.pipeline.search.hit_texts import TextMaker
from foldcli.pipeline.search.opening import DatabaseSource, open_search_engine
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from msa.alignments.files import parse_alignment
from msa.alignments.filter_settings import FOLDING_FILTER
from msa.engines.engine import Engine
from msa.engines.search_settings import FOLDING_SEARCH
from msa.io.fasta import FastaRecord
from msa.search.database_search import search_many

LENGTHS = (50, 600)
LIMITS = (0.0, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9)


def print_coverage(
    name: str,
    queries: Sequence[FastaRecord],
    library: StructureLibrary,
    settings: TemplateSettings,
    engine: Engine,
) -> None:
    """Search templates, and print the share of queries by the coverage of their templates."""
    searched = search_templates_many(queries, library, settings, engine)
    aligned = [max((each.query_coverage for each in hits.templates), default=-1.0) for _, hits in searched]
    print(name.ljust(30), *(f"{np.mean(np.array(aligned) >= limit):6.1%}" for limit in LIMITS))


def main() -> None:
    """Print the coverage without and with an alignment."""
    arguments = parse_options(
        __doc__, "sequences", count=300, library=EMBEDDED, device="auto", threads=2
    )  # fmt: skip
    library = StructureLibrary.open(arguments.library)
    database = DatabaseSource(arguments.sequences, arguments.device).open()
    lengths = database.arrays.lengths
    suitable = np.flatnonzero((lengths >= LENGTHS[0]) & (lengths <= LENGTHS[1]))
    chosen = np.random.default_rng(0).choice(suitable, arguments.count, replace=False)
    queries = [FastaRecord(database.id(k), database.sequence(k)) for k in chosen.tolist()]
    engine = open_search_engine(arguments.device)
    search = replace(FOLDING_SEARCH, threads=arguments.threads)
    make = TextMaker(AlignmentSettings(search, FOLDING_FILTER), None)
    profiles: list[FastaRecord] = []
    for query, hits in search_many(queries, database, search, engine=engine):
        profiles.append(alignment_query(parse_alignment(make(query, hits).alignment.encode()), query.id))
    print("coverage of at least".ljust(30), *(f"{limit:6.0%}" for limit in LIMITS))
    settings = TemplateSettings(threads=arguments.threads)
    print_coverage("sequence alone", queries, library, settings, engine)
    print_coverage("profile of three iterations", profiles, library, settings, engine)


if __name__ == "__main__":
    main()
