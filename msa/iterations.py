"""Iterated searching: what a search finds makes the profile of the next, as in PSI-BLAST."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from msa.alphabet import encode
from msa.cpu.targets import Targets
from msa.database import TargetDatabase
from msa.engine import Engine, QueryProfile
from msa.family import distinct_rows, family_rows
from msa.family_profile import family_profile
from msa.fasta import FastaRecord
from msa.hits import DatabaseHit, Hit
from msa.profile import query_profile
from msa.profile_query import ProfileQuery
from msa.search_settings import SearchSettings
from msa.statistics import bit_scores, evalues, gumbel_parameters

MOST_IDENTICAL = 0.95
"""Members of which this fraction of the residues repeats another member say nothing new."""

Used = Callable[[FastaRecord, QueryProfile], None]
"""Told what a query was searched with."""


@dataclass(frozen=True)
class Searched:
    """What is searched, and how.

    Args:
        database: E-values are for the whole of it.
        targets: its arrays.
        settings: see SearchSettings.
        engine: what does the work.
    """

    database: TargetDatabase
    targets: Targets
    settings: SearchSettings
    engine: Engine

    def hits(
        self,
        queries: Iterable[QueryProfile],
        lengths: Sequence[int],
        evalue: float,
        scored: Callable[[int], None],
    ) -> Iterator[list[Hit]]:
        """The hits of each query with at most this E-value: by E-value, then score, then database order.

        Args:
            queries: taken as the engine has room for them.
            lengths: of each, residues.
            evalue: of a hit, at most.
            scored: see `iterated`.
        """
        database, settings = self.database, self.settings
        parameters = gumbel_parameters(settings.gap_open, settings.gap_extend)

        def expected(query: int, chosen: np.ndarray, scores: np.ndarray) -> np.ndarray:
            of_targets = database.lengths[chosen]
            return evalues(scores, lengths[query], of_targets, database.total_residues, parameters)

        def wanted(query: int, chosen: np.ndarray, scores: np.ndarray) -> np.ndarray:
            return expected(query, chosen, scores) <= evalue

        found = self.engine.run(queries, self.targets, settings, scored, wanted)
        for index, candidates in enumerate(found):
            chosen, scores = candidates.targets[candidates.wanted], candidates.scores[candidates.wanted]
            values, bits = expected(index, chosen, scores), bit_scores(scores, parameters)
            order = np.lexsort((chosen, -scores, values)).tolist()
            columns = chosen.tolist(), bits.tolist(), values.tolist(), candidates.alignments
            length = lengths[index]
            yield [DatabaseHit(database, length, *(column[k] for column in columns)) for k in order]

    def next_profile(self, query: QueryProfile, hits: Sequence[Hit]) -> QueryProfile | None:
        """The profile of the query with those hits that are good enough; None without any."""
        settings = self.settings
        members = [
            (self.targets.codes(hit.target), hit.alignment)
            for hit in hits
            if hit.evalue <= settings.e_profile
        ]
        rows = distinct_rows(family_rows(query.codes, members), MOST_IDENTICAL)
        if len(rows) == 1:
            return None
        return QueryProfile(query.codes, family_profile(rows, settings.comp_bias_corr))


def first_profile(query: FastaRecord, settings: SearchSettings) -> QueryProfile:
    """What a query is searched with first: the profile that it has, or that of its sequence."""
    codes = encode(query.sequence)
    if isinstance(query, ProfileQuery):
        return QueryProfile(codes, query.profile)
    return QueryProfile(codes, query_profile(codes, settings.comp_bias_corr))


def iterated(
    searched: Searched,
    queries: Sequence[FastaRecord],
    scored: Callable[[int], None],
    used: Used | None = None,
) -> Iterator[list[Hit]]:
    """The hits of each query after as many iterations as asked for.

    A query whose profile no iteration changes any more has its hits, and is not searched with again.

    Args:
        searched: what is searched.
        queries: all of which are in memory with their hits, if there are several iterations.
        scored: called with the pairs of query and target that have been through the filter.
        used: told what the last iteration searched with, before its hits are returned.

    Returns:
        In the order of the queries, as they are found in the last iteration.
    """
    settings, limit = searched.settings, searched.settings.evalue
    families: dict[int, QueryProfile] = {}
    final: dict[int, list[Hit]] = {}
    going = list(range(len(queries)))
    done = 0

    def profile(k: int) -> QueryProfile:
        # that of a query alone is made anew, as there may be very many queries
        return families[k] if k in families else first_profile(queries[k], settings)

    def search(evalue: float) -> Iterator[list[Hit]]:
        lengths = [len(queries[k].sequence) for k in going]
        return searched.hits(map(profile, going), lengths, evalue, lambda pairs: scored(done + pairs))

    for _ in range(settings.num_iterations - 1):
        for k, hits in zip(going, search(max(limit, settings.e_profile)), strict=True):
            known = profile(k)
            better = searched.next_profile(known, hits) or first_profile(queries[k], settings)
            if np.array_equal(better.profile, known.profile):
                final[k] = [hit for hit in hits if hit.evalue <= limit]
            else:
                families[k] = better
        done += len(going) * len(searched.targets)
        going = [k for k in going if k not in final]
    last = search(limit)
    for k, query in enumerate(queries):
        hits = final[k] if k in final else next(last)
        if used is not None:
            used(query, profile(k))
        yield hits
