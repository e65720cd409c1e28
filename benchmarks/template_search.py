"""Time of the template search in the library of the package, by phase.

usage: python benchmarks/template_search.py ALIGNMENTS [--count 200] [--device auto] [--threads N]
                                            [--library LIBRARY]

ALIGNMENTS is a folder of A3M files, as `foldcli search` writes them. All are searched in one batch. The first
pass compiles kernels; the second is timed as a whole, and its phases again one after another.
"""

import argparse
import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from features.templates.candidates import TemplateHits
from features.templates.library.library import EMBEDDED, StructureLibrary
from features.templates.library.settings import TemplateSettings
from features.templates.search import alignment_query, hit_features, search_templates_many
from features.templates.selection import select_templates
from features.templates.table import write_template_table
from foldcli.pipeline.search.searcher import open_search_engine
from msa.alignments.files import read_alignment
from msa.engines.query_profile import QueryProfile
from msa.io.fasta import FastaRecord
from msa.profile.pssm import ProfileQuery
from msa.search.families.families import FamilyBuilder
from msa.search.search import search_many

BARS = {"cpu": 300.0, "gpu": 20.0}
"""Largest wall time for a query, ms; on a CPU with two cores."""
_CALIBRATION_THREADS = 8


class PhaseTimer:
    """A table of the wall time and CPU time of phases, per query.

    Args:
        queries: number of queries.
    """

    def __init__(self, queries: int) -> None:
        self._queries = queries
        print(f"{'phase':34} {'wall, ms':>9} {'CPU, ms':>9}")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block and print its line."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.print_line(name, time.perf_counter() - wall, time.process_time() - cpu)

    def print_line(self, name: str, wall: float, cpu: float | None = None) -> None:
        """Print the line of a phase, given seconds of all queries together."""
        cpu_text = "" if cpu is None else f"{1000 * cpu / self._queries:9.2f}"
        print(f"{name:34} {1000 * wall / self._queries:9.2f} {cpu_text}".rstrip(), flush=True)


def main() -> None:
    """Print the time of each phase."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("alignments", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--library", type=Path, default=EMBEDDED)
    arguments = parser.parse_args()
    library = StructureLibrary.open(arguments.library)
    settings = TemplateSettings(threads=arguments.threads)
    paths = sorted(arguments.alignments.glob("*.a3m*"))[: arguments.count]
    alignments = [read_alignment(path) for path in paths]
    engine = open_search_engine(arguments.device)
    kind = "gpu" if engine.seconds else "cpu"

    def queries() -> list[ProfileQuery]:
        return [
            alignment_query(alignment, path.stem) for alignment, path in zip(alignments, paths, strict=True)
        ]

    def features(hits: TemplateHits) -> None:
        hit_features(hits)
        write_template_table(io.StringIO(), hits)

    def all_phases() -> None:
        for _, hits in search_templates_many(queries(), library, settings, engine):
            features(hits)

    start = time.perf_counter()
    all_phases()
    residues = np.mean([len(alignment.query) for alignment in alignments])
    print(f"{len(paths)} alignments, mean length {residues:.0f}, {arguments.threads} threads, {kind}")
    print(f"first pass, with compilation of kernels: {time.perf_counter() - start:.1f} s")
    timer = PhaseTimer(len(paths))
    start = time.perf_counter()
    with timer.phase("all"):
        all_phases()
    milliseconds = 1000 * (time.perf_counter() - start) / len(paths)

    with timer.phase("profiles"):
        records = queries()
    families = [record for record in records if record.of_family]
    builder = FamilyBuilder(library.database, settings.search)
    builder.from_profile(families[0])  # shuffles targets
    threads = min(arguments.threads, _CALIBRATION_THREADS)
    with timer.phase("calibration, part of the search"), ThreadPoolExecutor(threads) as pool:
        list(pool.map(builder.from_profile, families))
    before = dict(engine.seconds)
    profiles: list[tuple[QueryProfile, bool]] = []

    def keep_profile(query: FastaRecord, profile: QueryProfile, of_family: bool) -> None:
        profiles.append((profile, of_family))

    with timer.phase("search"):
        found = list(
            search_many(records, library.database, settings.search, engine=engine, on_profile=keep_profile)
        )
    for stage, seconds in engine.seconds.items():
        timer.print_line(f"{stage}, part of the search", seconds - before[stage])

    def select(number: int) -> TemplateHits:
        query, hits = found[number]
        return select_templates(query.sequence, hits, *profiles[number], library, settings)

    with timer.phase("rules and expected pairs"), ThreadPoolExecutor(arguments.threads) as pool:
        selected = list(pool.map(select, range(len(found))))
    with timer.phase("features and table"):
        for hits in selected:
            features(hits)
    bar = BARS[kind]
    verdict = "met" if milliseconds <= bar else "missed"
    print(f"{milliseconds:.1f} ms a query, bar {bar:g} ms: {verdict}")


if __name__ == "__main__":
    main()
