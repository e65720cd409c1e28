"""Iterated searching: what a search finds makes the profile of the next, as in PSI-BLAST."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.io.fasta import FastaRecord
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import ProfileQuery
from msa.profile.statistics import bit_scores, corrected_scores, evalues
from msa.search.engine import Engine, EngineRequest, QueryProfile
from msa.search.families import EXCESS_OF_MEMBERS, Families
from msa.search.hits import DatabaseHit, Hit
from msa.search.settings import SearchSettings

_MAKERS = 4
"""Threads that make families: more would take the interpreter from what feeds a GPU."""

Used = Callable[[FastaRecord, QueryProfile, bool], None]
"""Told what a query was searched with, and whether that was the profile of a family."""


@dataclass(frozen=True)
class Found:
    """What a search found for one query.

    Args:
        hits: by E-value, then score, then database order.
        members: those of them that may become part of the profile.
    """

    hits: list[Hit]
    members: list[Hit]


@dataclass(frozen=True)
class Searched:
    """What is searched, and how.

    Args:
        database: E-values are for the whole of it.
        targets: its arrays.
        settings: see SearchSettings.
        engine: what does the work.
        at_once: queries at most that are searched with side by side.
    """

    database: TargetDatabase
    targets: SequenceArrays
    settings: SearchSettings
    engine: Engine
    at_once: int = 1

    def hits(
        self,
        queries: Iterable[QueryProfile],
        lengths: Sequence[int],
        evalue: float,
        scored: Callable[[int], None],
        excess: Sequence[float] | None = None,
    ) -> Iterator[Found]:
        """The hits of each query with at most this E-value.

        Args:
            queries: taken as the engine has room for them.
            lengths: of each, residues.
            evalue: of a hit, at most.
            scored: see `iterated`.
            excess: where the queries are profiles of families, see Family.
        """
        database = self.database
        settings = self.settings
        parameters = gumbel_parameters(settings.gap_open, settings.gap_extend, settings.matrix)
        if excess is not None:
            settings, parameters = self.families.how
        fitted = [replace(parameters, k=parameters.k * times) for times in excess or [1.0] * len(lengths)]

        def expected(query: int, chosen: np.ndarray, scores: np.ndarray) -> np.ndarray:
            of_targets = database.lengths[chosen]
            return evalues(scores, lengths[query], of_targets, database.total_residues, fitted[query])

        def corrected(
            query: int, chosen: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray, times: int = 1
        ) -> np.ndarray:
            of_targets = database.lengths[chosen]
            return corrected_scores(scores, reversed_scores, lengths[query], of_targets, parameters, times)

        def select(
            query: int, chosen: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None = None
        ) -> np.ndarray:
            if reversed_scores is not None:
                scores = corrected(query, chosen, scores, reversed_scores)
            return expected(query, chosen, scores) <= evalue

        request = EngineRequest(self.targets, settings, scored, select)
        found = self.engine.run(queries, request)
        for index, candidates in enumerate(found):
            chosen, raw = candidates.targets[candidates.aligned], candidates.scores[candidates.aligned]
            scores = strict = raw
            if settings.comp_bias_corr:
                backwards = candidates.reversed_scores
                scores = corrected(index, chosen, raw, backwards)
                strict = corrected(index, chosen, raw, backwards, EXCESS_OF_MEMBERS)
            values, bits = expected(index, chosen, scores), bit_scores(scores, fitted[index])
            joins = expected(index, chosen, strict) <= settings.e_profile
            order = np.lexsort((chosen, -raw, values))
            columns = zip(chosen.tolist(), bits.tolist(), values.tolist(), candidates.alignments, strict=True)
            unordered = [DatabaseHit(database, lengths[index], *column) for column in columns]
            hits: list[Hit] = [unordered[k] for k in order.tolist()]
            yield Found(hits, [hits[k] for k in np.flatnonzero(joins[order]).tolist()])

    @cached_property
    def families(self) -> Families:
        """Makes families of what is found; those of several queries side by side."""
        threads = max(1, self.settings.threads // self.at_once)
        return Families(self.database, self.targets, replace(self.settings, threads=threads))

    @contextlib.contextmanager
    def threads_for_families(self) -> Iterator[ThreadPoolExecutor]:
        """Threads; what they have not begun when the block is left is left undone."""
        pool = ThreadPoolExecutor(min(self.settings.threads, self.at_once, _MAKERS), "families")
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def iterated(
    searched: Searched,
    queries: Sequence[FastaRecord],
    scored: Callable[[int], None],
    used: Used | None = None,
) -> Iterator[list[Hit]]:
    """The hits of each query after as many iterations as asked for.

    A query whose profile no iteration changes any more is left out of those that follow. Before the last,
    only what may become part of a profile is aligned; where hits may be worse than that, every query takes
    part in the last.

    Args:
        searched: what is searched.
        queries: all of which are in memory with their hits, if there are several iterations.
        scored: called with the pairs of query and target that have been through the filter.
        used: told what the last iteration searched with, before its hits are returned.

    Returns:
        In the order of the queries, as they are found in the last iteration.

    Raises:
        InputError: a query has the profile of a family, and there are no statistics for its gap costs.
    """
    with searched.threads_for_families() as pool:
        yield from _iterated(searched, queries, scored, used, pool)


def _iterated(
    searched: Searched,
    queries: Sequence[FastaRecord],
    scored: Callable[[int], None],
    used: Used | None,
    pool: ThreadPoolExecutor,
) -> Iterator[list[Hit]]:
    settings, limit = searched.settings, searched.settings.evalue
    brought = {
        k: pool.submit(searched.families.brought, query)
        for k, query in enumerate(queries)
        if isinstance(query, ProfileQuery) and query.of_family
    }
    families = {k: family.result() for k, family in brought.items()}
    final: dict[int, list[Hit]] = {}
    going = list(range(len(queries)))
    done = 0

    def profile(k: int) -> QueryProfile:
        # that of a query alone is made anew, as there may be very many queries
        return families[k].profile if k in families else searched.families.alone(queries[k])

    def search_alike(chosen: Sequence[int], evalue: float) -> Iterator[Found]:
        nonlocal done
        lengths = [len(queries[k].sequence) for k in chosen]
        # if one has a family, all have
        excess = [families[k].excess for k in chosen if k in families] or None
        before = done
        yield from searched.hits(
            map(profile, chosen), lengths, evalue, lambda pairs: scored(before + pairs), excess
        )
        done += len(chosen) * len(searched.targets)

    def search(chosen: Sequence[int], evalue: float) -> Iterator[Found]:
        # gap costs of a family are others
        alone, with_family = ([k for k in chosen if (k in families) == has] for has in (False, True))
        if not alone or not with_family:
            yield from search_alike(chosen, evalue)
            return
        first, then = (
            iter(zip(kind, search_alike(kind, evalue), strict=True)) for kind in (alone, with_family)
        )
        found: dict[int, Found] = {}
        has_family = set(with_family)
        for k in chosen:
            if k in has_family:
                # one search at a time: the rest of the others comes first
                found.update(first)
                found.update([next(then)])
            elif k not in found:
                found.update([next(first)])
            yield found.pop(k)

    for _ in range(settings.num_iterations - 1):
        growing = [
            (k, found, pool.submit(searched.families.grown, queries[k], families.get(k), found.members))
            for k, found in zip(going, search(going, settings.e_profile), strict=True)
        ]
        going = []
        for k, found, future in growing:
            grown = future.result()
            if grown is not None:
                families[k] = grown
                going.append(k)
            elif limit <= settings.e_profile:
                final[k] = [hit for hit in found.hits if hit.evalue <= limit]
    last = search([k for k in range(len(queries)) if k not in final], limit)
    for k, query in enumerate(queries):
        hits = final[k] if k in final else next(last).hits
        if used is not None:
            used(query, profile(k), k in families)
        yield hits
