"""Search of a target database: gapless filter, alignment, E-values; described in docs/search.md.

Stage 1 scores every target without gaps and keeps the best; masked residues score as X. Stage 2 aligns these
with gaps; masked residues score as their letters. Every step is exact and ties are broken by database order,
so that results do not depend on the engine, the number of threads or the machine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from msa.base.errors import InputError
from msa.base.progress import Progress
from msa.database.database import TargetDatabase
from msa.engines.engine import Engine, ProfileCallback
from msa.engines.search_settings import SearchSettings
from msa.hits.hits import Hits
from msa.io.fasta import FastaRecord, UnsupportedRecord
from msa.search.cluster_expansion import ClusterExpandingEngine
from msa.search.families.builder import update_in_process
from msa.search.iterations import IteratedSearch
from msa.search.windows import WindowedEngine, best_hits

_MAX_HITS_IN_MEMORY = 2**22
"""Maximum number of hits of one block of queries in an iterated search; a hit takes about 100 bytes."""


def search(
    query: FastaRecord,
    database: TargetDatabase,
    settings: SearchSettings | None = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Hits:
    """Find the targets that are similar to a query.

    Args:
        query: at least 2 residues, letters A–Z.
        database: the database to search; E-values refer to all of its sequences.
        settings: see SearchSettings.
        engine: filters and aligns; by default the CPU engine. Does not affect the result.
        progress: called with the number of targets filtered so far, and the number of all targets.

    Returns:
        At most one hit for each target, by E-value, then descending score, then database order.

    Raises:
        InputError: the query is too short.
    """
    ((_, hits),) = search_many([query], database, settings, engine=engine, progress=progress)
    return hits


def search_many(
    queries: Sequence[FastaRecord],
    database: TargetDatabase,
    settings: SearchSettings | None = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
    on_profile: ProfileCallback | None = None,
    keep_filtered: bool = False,
) -> Iterator[tuple[FastaRecord, Hits]]:
    """Search with many queries; an engine on a GPU processes them in batches.

    Args:
        queries: at least 2 residues each, letters A–Z; a ProfileRecord is searched with its own profile.
        database: see `search`.
        settings: see `search`.
        engine: see `search`.
        progress: called with the number of query–target pairs filtered so far, and the number of all pairs.
        on_profile: called with the profile of a query's last iteration, before its hits are yielded.
        keep_filtered: whether to set `Hits.filtered`, which takes much memory with several iterations.

    Returns:
        An iterator over each query with its hits, as from `search`, in the order of the queries.

    Raises:
        InputError: a query is too short. Raised before any search starts.
    """
    for query in queries:
        check_query(query)
    settings = settings or SearchSettings()
    return _search_each(queries, database, settings, engine, progress, on_profile, keep_filtered)


def _search_each(
    queries: Sequence[FastaRecord],
    database: TargetDatabase,
    settings: SearchSettings,
    engine: Engine | None,
    progress: Progress | None,
    on_profile: ProfileCallback | None,
    keep_filtered: bool,
) -> Iterator[tuple[FastaRecord, Hits]]:
    engine = prepared_engine(engine, database, queries)
    if engine.processes is not None:
        engine.processes.prepare(database, len(queries), settings.threads, update_in_process)
    block_size = queries_per_block(len(queries), settings)
    iterated_search = IteratedSearch(database, settings, engine, block_size, keep_filtered)
    pairs_per_query = len(database) * settings.num_iterations
    for first in range(0, len(queries), block_size):
        block = queries[first : first + block_size]

        def report(pairs: int, first: int = first) -> None:
            if progress is not None:
                progress(first * pairs_per_query + pairs, len(queries) * pairs_per_query)

        results = iterated_search.run(block, report, on_profile)
        for query, hits in zip(block, results, strict=True):
            yield query, apply_thresholds(hits, hits.targets < database.representatives, settings)
        # count queries that left the search early as complete
        report(len(block) * pairs_per_query)


def prepared_engine(
    engine: Engine | None, database: TargetDatabase, queries: Sequence[FastaRecord], keep_all: bool = False
) -> Engine:
    """Prepare an engine to search a database for queries.

    Args:
        engine: filters and aligns; None for the CPU engine.
        database: the database to search.
        queries: the queries, whose lengths are announced to the engine.
        keep_all: see `WindowedEngine`.

    Returns:
        The engine, wrapped to filter the windows of long queries and to align the members of clusters.
    """
    if engine is None:
        from msa.cpu.engine import CpuEngine  # imports numba

        engine = CpuEngine()
    engine = WindowedEngine(engine, keep_all)
    if database.representatives < len(database):
        engine = ClusterExpandingEngine(engine, database)
    engine.prepare([len(query.sequence) for query in queries])
    return engine


def queries_per_block(queries: int, settings: SearchSettings) -> int:
    """Return the number of queries that are searched together, so that their hits fit into memory."""
    if settings.num_iterations == 1:
        return max(1, queries)
    blocks = -(-queries // max(1, _MAX_HITS_IN_MEMORY // settings.max_seqs))
    return -(-queries // max(1, blocks)) or 1


def check_query(query: FastaRecord) -> None:
    """Check that a search can use a query.

    Raises:
        InputError: it has fewer than 2 residues, or is an UnsupportedRecord; names file and line if known.
    """
    if isinstance(query, UnsupportedRecord):
        raise query.error()
    if len(query.sequence) < 2:
        count = "1 residue" if query.sequence else "no residues"
        raise InputError(f"query {query.id!r} has {count}: a search needs at least 2", *query.location)


def apply_thresholds(hits: Hits, is_representative: np.ndarray, settings: SearchSettings) -> Hits:
    """Return the hits that meet the thresholds of identity and coverage.

    Args:
        hits: hits of one query.
        is_representative: bool [n], True for hits that count towards `max_seqs`.
        settings: with thresholds, `max_seqs` limits the hits as `best_hits` does.
    """
    if not settings.has_thresholds:
        return hits
    query_coverages, target_coverages = hits.query_coverages, hits.target_coverages
    coverages = {
        0: np.minimum(query_coverages, target_coverages),
        1: target_coverages,
        2: query_coverages,
    }[settings.cov_mode]
    passing = (hits.identities >= settings.min_seq_id) & (coverages >= settings.coverage)
    hits = hits.subset(passing)
    kept = best_hits(
        hits.alignments.records, hits.query_length, settings.max_seqs, is_representative[passing]
    )
    return replace(hits.subset(kept), capped=not kept.all())
