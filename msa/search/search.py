"""Searching a target database: gapless filter, alignment, E-values; docs/search.md.

Stage 1 scores every target without gaps, masked residues as X, and passes on the best. Stage 2 aligns those
with gaps, masked residues as the letters they are. Every step is exact and its ties are broken by database
order, so results do not depend on the engine, the number of threads or the machine.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msa.database.database import TargetDatabase
from msa.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord
from msa.search.candidates import best_targets
from msa.search.engine import Engine
from msa.search.hits import Hit
from msa.search.settings import SearchSettings

if TYPE_CHECKING:
    from msa.search.iterations import Used

__all__ = ["SearchSettings", "best_targets", "check_query", "search", "search_many"]

Progress = Callable[[int, int | None], None]

_HITS_AT_ONCE = 2**18
"""Hits in memory: as many queries are iterated side by side, for a GPU's sake, as may have so many."""


def search(
    query: FastaRecord,
    database: TargetDatabase,
    settings: SearchSettings | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> list[Hit]:
    """Find the targets that resemble a query.

    Args:
        query: at least 2 residues, letters A–Z.
        database: what to search; E-values are for the whole of it.
        settings: see SearchSettings.
        progress: called with targets that have been through the gapless filter and targets in all.
        engine: what does the work; the CPU if none is given. Hits do not depend on it.

    Returns:
        Hits by E-value, then score from high to low, then database order; at most one per target.

    Raises:
        InputError: the query is too short.
    """
    ((_, hits),) = search_many([query], database, settings, engine, progress)
    return hits


def search_many(
    queries: Sequence[FastaRecord],
    database: TargetDatabase,
    settings: SearchSettings | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    used: "Used | None" = None,
) -> Iterator[tuple[FastaRecord, list[Hit]]]:
    """Search with many queries; an engine on a GPU takes many at once.

    Args:
        queries: each of at least 2 residues, letters A–Z; a ProfileQuery is searched with the profile it has.
        database, settings, engine: see `search`.
        progress: called with pairs of query and target that have been through the gapless filter, and pairs
            in all.
        used: called with each query and what its last iteration searched with, before its hits are returned.

    Returns:
        Each query with its hits, as `search` returns them, in the order of the queries, as they are found.

    Raises:
        InputError: a query is too short; none has been searched with.
    """
    for query in queries:
        check_query(query)
    return _search_each(queries, database, settings or SearchSettings(), engine, progress, used)


def _search_each(
    queries: Sequence[FastaRecord],
    database: TargetDatabase,
    settings: SearchSettings,
    engine: Engine | None,
    progress: Progress | None,
    used: "Used | None",
) -> Iterator[tuple[FastaRecord, list[Hit]]]:
    from msa.database.sequence_arrays import SequenceArrays
    from msa.search.iterations import Searched, iterated

    if engine is None:
        # numba takes a third of a second to import
        from msa.cpu.engine import CpuEngine

        engine = CpuEngine()
    if database.representatives < len(database):
        from msa.search.cluster_expansion import ExpandingEngine

        engine = ExpandingEngine(engine, database)

    targets = SequenceArrays(database.residues, database.offsets, database.lengths)
    at_once = len(queries)
    if settings.num_iterations > 1:
        at_once = min(at_once, _HITS_AT_ONCE // settings.max_seqs)
    at_once = max(at_once, 1)
    searched = Searched(database, targets, settings, engine, at_once)
    pairs = len(targets) * settings.num_iterations
    for first in range(0, len(queries), at_once):
        block = queries[first : first + at_once]

        def scored(done: int, before: int = first) -> None:
            if progress is not None:
                progress(before * pairs + done, len(queries) * pairs)

        for query, hits in zip(block, iterated(searched, block, scored, used), strict=True):
            yield query, [hit for hit in hits if _similar_enough(hit, settings)]
        # queries that settled early are done as well
        scored(len(block) * pairs)


def check_query(query: FastaRecord) -> None:
    """Refuse a query that cannot be searched with.

    Raises:
        InputError: it has fewer than 2 residues, or is an UnsupportedRecord.
    """
    if isinstance(query, UnsupportedRecord):
        raise query.error()
    if len(query.sequence) < 2:
        count = "1 residue" if query.sequence else "no residues"
        raise InputError(f"query {query.id!r} has {count}: a search needs at least 2")


def _similar_enough(hit: Hit, settings: SearchSettings) -> bool:
    if settings.min_seq_id <= 0 and settings.coverage <= 0:
        return True
    covered = {
        0: min(hit.query_coverage, hit.target_coverage),
        1: hit.target_coverage,
        2: hit.query_coverage,
    }[settings.cov_mode]
    return hit.identity >= settings.min_seq_id and covered >= settings.coverage
