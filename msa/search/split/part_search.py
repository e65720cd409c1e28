"""Searches of one part of a split database; `msa.search.split.merge` merges the hits of all parts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from msa.base.progress import Progress
from msa.database.database import TargetDatabase
from msa.engines.engine import Engine
from msa.engines.search_settings import MAX_SEQS, SearchSettings
from msa.hits.hits import QueryHits
from msa.io.fasta import FastaRecord
from msa.search.database_search import apply_thresholds, check_query, prepared_engine, queries_per_block
from msa.search.iterations import IteratedSearch
from msa.search.split.merge import PartHits, merge_iteration

ReadParts: TypeAlias = Callable[[int], Sequence[PartHits]]
"""A function that returns the hits of one iteration in each part, given the index of a query."""


def search_part(
    queries: Sequence[FastaRecord],
    part: TargetDatabase,
    settings: SearchSettings,
    engine: Engine | None = None,
    earlier: Sequence[ReadParts] = (),
    progress: Progress | None = None,
) -> Iterator[tuple[FastaRecord, PartHits | None]]:
    """Run one iteration of a search in one part of a split database.

    The limit on the number of hits is applied when the hits of all parts are merged.

    Returns:
        An iterator over each query with its hits, in the order of the queries; None for queries that do not
        take part, because an earlier iteration has not changed their profile.

    Raises:
        InputError: see `search_many`.
    """
    for query in queries:
        check_query(query)
    part_settings = replace(settings, max_seqs=settings.max_candidates)
    unlimited = replace(settings, max_seqs=MAX_SEQS)
    engine = prepared_engine(engine, part, queries, keep_all=True)
    block_size = queries_per_block(len(queries), settings)
    search = IteratedSearch(part, part_settings, engine, block_size, keep_filtered=True, keep_all=True)
    is_last = len(earlier) + 1 == settings.num_iterations
    for first in range(0, len(queries), block_size):

        def merged(read: ReadParts, k: int, first: int = first) -> QueryHits:
            return merge_iteration(read(first + k), settings)[0]

        def report(pairs: int, first: int = first) -> None:
            if progress is not None:
                progress(first * len(part) + pairs, len(queries) * len(part))

        block = queries[first : first + block_size]
        found = search.run_next(block, [partial(merged, read) for read in earlier], report)
        next_query = 0
        for k, result in found:
            yield from ((query, None) for query in block[next_query:k])
            next_query = k + 1
            if is_last:
                is_representative = result.hits.targets < part.representatives
                hits = apply_thresholds(result.hits, is_representative, unlimited)
                result = QueryHits(hits, np.zeros(len(hits), bool))
            yield block[k], PartHits.from_search(result, part)
        yield from ((query, None) for query in block[next_query:])
        report(len(block) * len(part))
