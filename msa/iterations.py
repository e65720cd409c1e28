"""Iterated searching: what a search finds makes the profile of the next, as in PSI-BLAST."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from msa.alphabet import encode
from msa.cpu.targets import Targets
from msa.database import TargetDatabase
from msa.engine import Engine, QueryProfile
from msa.families import EXCESS_OF_MEMBERS, Families, Family
from msa.fasta import FastaRecord
from msa.hits import DatabaseHit, Hit
from msa.search_settings import SearchSettings
from msa.statistics import bit_scores, corrected_scores, evalues, gumbel_parameters


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

        def wanted(
            query: int, chosen: np.ndarray, scores: np.ndarray, reversed_scores: np.ndarray | None = None
        ) -> np.ndarray:
            if reversed_scores is not None:
                scores = corrected(query, chosen, scores, reversed_scores)
            return expected(query, chosen, scores) <= evalue

        found = self.engine.run(queries, self.targets, settings, scored, wanted)
        for index, candidates in enumerate(found):
            chosen, raw = candidates.targets[candidates.wanted], candidates.scores[candidates.wanted]
            scores = strict = raw
            if settings.comp_bias_corr:
                backwards = candidates.reversed_scores
                scores = corrected(index, chosen, raw, backwards)
                strict = corrected(index, chosen, raw, backwards, EXCESS_OF_MEMBERS)
            values, bits = expected(index, chosen, scores), bit_scores(scores, fitted[index])
            joins = expected(index, chosen, strict) <= settings.e_profile
            order = np.lexsort((chosen, -raw, values))
            columns = chosen.tolist(), bits.tolist(), values.tolist(), candidates.alignments
            length = lengths[index]
            hits: list[Hit] = [
                DatabaseHit(database, length, *(column[k] for column in columns)) for k in order.tolist()
            ]
            yield Found(hits, [hits[k] for k in np.flatnonzero(joins[order]).tolist()])

    @cached_property
    def families(self) -> Families:
        """Makes families of what is found."""
        return Families(self.database, self.targets, self.settings)


def iterated(
    searched: Searched, queries: Sequence[FastaRecord], scored: Callable[[int], None]
) -> Iterator[list[Hit]]:
    """The hits of each query after as many iterations as asked for.

    A query whose profile no iteration changes any more is left out of those that follow. Before the last,
    only what may become part of a profile is aligned; where hits may be worse than that, every query takes
    part in the last.

    Args:
        searched: what is searched.
        queries: all of which are in memory with their hits, if there are several iterations.
        scored: called with the pairs of query and target that have been through the filter.

    Returns:
        In the order of the queries, as they are found in the last iteration.
    """
    settings, limit = searched.settings, searched.settings.evalue
    families: dict[int, Family] = {}
    final: dict[int, list[Hit]] = {}
    going = list(range(len(queries)))
    done = 0

    def profile(k: int) -> QueryProfile:
        # that of a query alone is made anew, as there may be very many queries
        if k in families:
            return families[k].profile
        return searched.families.alone(encode(queries[k].sequence))

    def search(chosen: Sequence[int], evalue: float) -> Iterator[Found]:
        lengths = [len(queries[k].sequence) for k in chosen]
        # if one has a family, all have
        excess = [families[k].excess for k in chosen if k in families] or None
        before = done
        return searched.hits(
            map(profile, chosen), lengths, evalue, lambda pairs: scored(before + pairs), excess
        )

    for _ in range(settings.num_iterations - 1):
        changing = []
        for k, found in zip(going, search(going, settings.e_profile), strict=True):
            grown = searched.families.grown(encode(queries[k].sequence), families.get(k), found.members)
            if grown is not None:
                families[k] = grown
                changing.append(k)
            elif limit <= settings.e_profile:
                final[k] = [hit for hit in found.hits if hit.evalue <= limit]
        done += len(going) * len(searched.targets)
        going = changing
    left = [k for k in range(len(queries)) if k not in final]
    if families:
        # gap costs of a profile are others: those without one go first
        alone = [k for k in left if k not in families]
        final.update((k, found.hits) for k, found in zip(alone, search(alone, limit), strict=True))
        done += len(alone) * len(searched.targets)
        left = [k for k in left if k in families]
    last = search(left, limit)
    for k in range(len(queries)):
        yield final[k] if k in final else next(last).hits
