"""Further alignments of candidates near the limit, and E-values that include them.

Second alignments (scoring.second_alignments) and those with a second matrix are computed in one call, because
most of the time is spent waiting for the GPU. Forward scores (msa.search.scoring.forward) follow.

Context scores find more relatives than a substitution matrix, but not all that the matrix finds. Candidates
near the limit are therefore scored with BLOSUM62 as well. Their E-value becomes the weighted harmonic mean
of their E-values, which controls errors even if tests depend on each other (Wilson, PNAS 116:1195, 2019),
times a factor. docs/sensitivity.md compares other combinations.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.engines.engine import (
    Aligner,
    Candidates,
    EngineRequest,
    SelectionCriteria,
    all_alignments,
    evalues_of_passing,
)
from msa.engines.pair_statistics import PairStatistics
from msa.engines.scored_batch import AlignedBatch, Scores
from msa.engines.search_settings import SearchSettings
from msa.profile.gumbel import GumbelParameters, gumbel_parameters
from msa.profile.matrices import BLOSUM62, CONTEXT
from msa.profile.pssm import QueryProfile, query_profile
from msa.search.scoring import forward
from msa.search.scoring.composition import SEQUENCE_K_FACTOR, composition_excess_of_batch
from msa.search.scoring.second_alignments import MAX_PAIR_EVALUE, TargetParts, summed_evalues

MIN_EVALUE, MAX_EVALUE = 1e-12, 1.0
"""Smallest and largest E-value of a best alignment for which further ones are computed. Smaller ones need
none, and larger ones are hardly ever significant with them."""

SECOND_MATRIX = BLOSUM62
"""Name of the second matrix."""
_MAX_OTHER_EVALUE = 100.0
"""Largest E-value with the second matrix that counts as evidence."""

_WEIGHTS, _FACTOR = (0.75, 0.25), 0.9
"""Weights of the E-values with context scores and with the second matrix, and the factor of their mean, which
makes up for candidates whose second E-value is not computed, because the first is too large."""
_FORWARD_WEIGHTS, _FORWARD_FACTOR = (0.4, 0.2, 0.4), 0.65
"""The same for candidates that also have an E-value of Forward scores."""


class FurtherAlignments:
    """Further alignments of the candidates of sequences whose alignments are corrected for composition.

    Args:
        targets: sequences of the database.
        settings: of the search.
        aligner: aligns.
        pairs: returns the statistics of pairs, given int64 [n] queries and targets.
    """

    def __init__(
        self,
        targets: SequenceArrays,
        settings: SearchSettings,
        aligner: Aligner,
        pairs: Callable[[np.ndarray, np.ndarray], PairStatistics],
    ) -> None:
        self._targets, self._settings, self._aligner, self._pairs = targets, settings, aligner, pairs
        self._second_parameters = _second_parameters(settings)

    def add_to(self, batch: AlignedBatch, scores: Scores) -> Scores:
        """Return the scores of a batch with E-values that include further alignments.

        Args:
            batch: the batch; only queries with a profile have further alignments.
            scores: of the best alignments.
        """
        has_profile = np.array([query in batch.profiles for query in range(len(batch.queries))])
        values = scores.evalues
        rows = np.flatnonzero(has_profile[batch.owners] & (values >= MIN_EVALUE) & (values <= MAX_EVALUE))
        if not len(rows):
            return scores
        targets = batch.targets[rows]
        parts = TargetParts.of_alignments(self._targets, targets, batch.records[rows])
        # the rows of each query are consecutive
        ends = np.searchsorted(rows, batch.ends).tolist()
        spans = zip(range(len(ends)), [0, *ends], ends, strict=False)
        selected = [(query, first, end) for query, first, end in spans if first < end]
        second: dict[int, QueryProfile] = {}
        requested = [(batch.profiles[query], parts.non_empty(first, end)) for query, first, end in selected]
        if self._second_parameters is not None:
            second = {query: _second_profile(batch.profiles[query]) for query, _, _ in selected}
            requested += [(second[query], parts.whole(first, end)) for query, first, end in selected]
        selection = SelectionCriteria(self._evalues([query for query, _, _ in selected], targets), 0.0)
        request = EngineRequest(parts.sequences, self._settings, None, selection)
        found = list(self._aligner.align(requested, request))
        scores = self._with_sums(batch, scores, rows, parts, found[: len(selected)])
        if not second:
            return scores
        raw = np.concatenate([each.scores for each in found[len(selected) :]])
        others = self._second_evalues(batch, scores, rows, second, raw)
        return self._with_other_evidence(batch, scores, rows, others)

    def _second_pairs(self, queries: np.ndarray, targets: np.ndarray) -> PairStatistics:
        """Return the statistics of pairs for scores with the second matrix."""
        assert self._second_parameters is not None
        k = np.full(len(queries), self._second_parameters.k * SEQUENCE_K_FACTOR)
        return replace(self._pairs(queries, targets), parameters=self._second_parameters, k=k)

    def _evalues(self, queries: Sequence[int], targets: np.ndarray) -> Callable[..., np.ndarray]:
        """Return the function that decides which paths are needed; see `msa.engines.engine.EvalueFunction`.

        Args:
            queries: indices of the queries that are aligned to parts of targets, and then to whole targets.
            targets: int64 [n], the targets.
        """
        numbers = np.array(queries)

        def evalues(
            indices: np.ndarray,
            aligned: np.ndarray,
            scores: np.ndarray,
            reversed_scores: np.ndarray | None = None,
        ) -> np.ndarray:
            # only the scores of whole targets are needed
            passes, of_parts = np.zeros(len(indices), bool), np.flatnonzero(indices < len(numbers))
            pairs = self._pairs(numbers[indices[of_parts]], targets[aligned[of_parts] // 2])
            passes[of_parts] = pairs.pair_evalues(scores[of_parts]) <= MAX_PAIR_EVALUE
            return evalues_of_passing(passes)

        return evalues

    def _with_sums(
        self,
        batch: AlignedBatch,
        scores: Scores,
        rows: np.ndarray,
        parts: TargetParts,
        found: Sequence[Candidates],
    ) -> Scores:
        """Return the scores with E-values that include some second alignments.

        Args:
            batch: the candidates.
            scores: their scores.
            rows: int64, indices of the candidates that have been divided.
            parts: the parts of their targets.
            found: the second alignments of each query.
        """
        of_parts, raw, records = all_alignments(found)
        row = rows[of_parts // 2]
        owners = batch.owners[row]
        settings, pairs = self._settings, self._pairs(owners, batch.targets[row])
        of_composition = composition_excess_of_batch(
            batch.profiles, owners, records, parts.sequences, of_parts,
            settings.matrix, pairs.parameters.lambda_,
        )  # fmt: skip
        excess = np.maximum(of_composition, scores.reversed_excess[row])
        second_evalues = pairs.pair_evalues(np.maximum(raw - excess, 0))
        best_scores = np.maximum(batch.raw_scores - scores.excess, 0)[row]
        sums = summed_evalues(
            scores.evalues[row],
            pairs.pair_evalues(best_scores),
            second_evalues,
            parts.are_ordered(of_parts, records),
        )
        values, passes = scores.evalues.copy(), second_evalues <= MAX_PAIR_EVALUE
        np.minimum.at(values, row[passes], sums[passes])
        return replace(scores, evalues=values)

    def _second_evalues(
        self,
        batch: AlignedBatch,
        scores: Scores,
        rows: np.ndarray,
        profiles: Mapping[int, QueryProfile],
        raw: np.ndarray,
    ) -> np.ndarray:
        """Return the E-values of scores with the second matrix, float64 [n].

        Args:
            batch: the candidates.
            scores: their scores.
            rows: int64 [n], indices of those that have been aligned.
            profiles: of the queries with the second matrix.
            raw: int32 [n], scores with the second matrix.
        """
        owners, targets = batch.owners[rows], batch.targets[rows]
        pairs = self._second_pairs(owners, targets)
        of_composition = composition_excess_of_batch(
            profiles, owners, batch.records[rows], self._targets, targets,
            SECOND_MATRIX, pairs.parameters.lambda_,
        )  # fmt: skip
        excess = np.maximum(of_composition, scores.reversed_excess[rows])
        return pairs.evalues(np.maximum(raw - excess, 0))

    def _with_other_evidence(
        self, batch: AlignedBatch, scores: Scores, rows: np.ndarray, others: np.ndarray
    ) -> Scores:
        """Return the scores with E-values that include the second matrix and Forward scores.

        Args:
            batch: the candidates.
            scores: their scores.
            rows: int64 [n], indices of the candidates that have been scored with the second matrix.
            others: float64 [n], their E-values.
        """
        evalues, values = scores.evalues[rows], scores.evalues.copy()
        values[rows] = combined_evalues(evalues, others)
        near = np.flatnonzero((evalues >= forward.MIN_EVALUE) & (evalues <= forward.MAX_EVALUE))
        if len(near):
            row = rows[near]
            owners, targets = batch.owners[row], batch.targets[row]
            of_forward = forward.forward_evalues(
                batch.profiles, owners, self._targets, targets, batch.records[row], scores.excess[row],
                self._pairs(owners, targets), self._settings.threads,
            )  # fmt: skip
            values[row] = combined_evalues(evalues[near], others[near], of_forward)
        return replace(scores, evalues=values)


def _second_parameters(settings: SearchSettings) -> GumbelParameters | None:
    """Return the statistics of the second matrix, or None if a search has none."""
    if settings.matrix != CONTEXT or not settings.corrects_alignments:
        return None
    return gumbel_parameters(settings.gap_open, settings.gap_extend, SECOND_MATRIX)


def _second_profile(query: QueryProfile) -> QueryProfile:
    """Return the profile of a query with the second matrix."""
    return QueryProfile(query.codes, query_profile(query.codes, False, SECOND_MATRIX))


def combined_evalues(
    evalues: np.ndarray, others: np.ndarray, of_forward: np.ndarray | None = None
) -> np.ndarray:
    """Combine the E-values of each candidate, float64 [n].

    The result is 0.9 / (0.75 / E₁ + 0.25 / E₂), or, with Forward scores,
    0.65 / (0.4 / E₁ + 0.2 / E₂ + 0.4 / E₃), both without the term of E₂ if it is no evidence.

    Args:
        evalues: E₁, with context scores, > 0.
        others: E₂, with the second matrix, ≥ 0.
        of_forward: E₃, of Forward scores, ≥ 0.
    """
    evidence = np.where(others <= _MAX_OTHER_EVALUE, others, math.inf)
    if of_forward is None:
        return _weighted_mean(_FACTOR, _WEIGHTS, (evalues, evidence))
    return _weighted_mean(_FORWARD_FACTOR, _FORWARD_WEIGHTS, (evalues, evidence, of_forward))


def _weighted_mean(factor: float, weights: Sequence[float], evalues: Sequence[np.ndarray]) -> np.ndarray:
    """Return the weighted harmonic mean of E-values, float64 [n], ≥ 0, times a factor."""
    # 0 has no inverse
    smallest = np.finfo(np.float64).tiny
    inverse = sum(weight / np.maximum(each, smallest) for weight, each in zip(weights, evalues, strict=True))
    return np.asarray(factor / inverse)
