"""Scores of aligned candidates: corrections, E-values, and the evidence of further alignments."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from msa.database.database import TargetDatabase
from msa.engines.engine import Aligner
from msa.engines.pair_statistics import PairStatistics, QueryStatistics
from msa.engines.scored_batch import AlignedBatch, Scores, ScoringRules
from msa.engines.search_settings import SearchSettings
from msa.profile.gumbel import GumbelParameters, gumbel_parameters
from msa.search.families.family import MEMBER_CORRECTION_WEIGHT, family_parameters, family_settings
from msa.search.scoring.composition import composition_excess_of_batch
from msa.search.scoring.further_alignments import FurtherAlignments


def profile_settings(rules: ScoringRules) -> SearchSettings:
    """Return the settings of a search, with the matrix and the gap costs of its profiles."""
    return family_settings(rules.settings) if rules.of_families else rules.settings


def profile_parameters(rules: ScoringRules) -> GumbelParameters:
    """Return the parameters of chance scores, before the correction of K."""
    settings = rules.settings
    if rules.of_families:
        return family_parameters(settings)
    return gumbel_parameters(settings.gap_open, settings.gap_extend, settings.matrix)


class CandidateScorer:
    """Scores the aligned candidates of one search.

    Args:
        database: the database to search.
        rules: of the scores.
        aligner: computes further alignments.
    """

    def __init__(self, database: TargetDatabase, rules: ScoringRules, aligner: Aligner) -> None:
        self._database, self._rules, self._aligner = database, rules, aligner
        self._settings, self._parameters = profile_settings(rules), profile_parameters(rules)

    def score(self, batch: AlignedBatch) -> Scores:
        """Return the scores of a batch; may be called from several threads."""
        scores = self._score(batch)
        if not self._rules.corrects_alignments:
            return scores
        pairs = partial(self.pairs, batch.queries)
        further = FurtherAlignments(self._database.arrays, self._settings, self._aligner, pairs)
        return further.add_to(batch, scores)

    def pairs(
        self, queries: Sequence[QueryStatistics], owners: np.ndarray, targets: np.ndarray
    ) -> PairStatistics:
        """Return the statistics of pairs of a query and a target.

        Args:
            queries: the queries.
            owners: int64 [n], index in `queries` of the query of each pair.
            targets: int64 [n].
        """
        lengths, residues = self._database.arrays.lengths[targets], self._database.total_residues
        return PairStatistics.of_queries(self._parameters, residues, queries, owners, lengths)

    def _score(self, batch: AlignedBatch) -> Scores:
        """Correct the scores of the best alignments, and compute their E-values."""
        pairs, raw = self.pairs(batch.queries, batch.owners, batch.targets), batch.raw_scores
        of_reversed = np.zeros(len(raw), np.int64)
        if self._settings.comp_bias_corr:
            of_reversed = pairs.reversed_excess(batch.reversed_scores)
        of_composition = composition_excess_of_batch(
            batch.profiles, batch.owners, batch.records, self._database.arrays, batch.targets,
            self._settings.matrix, self._parameters.lambda_,
        )  # fmt: skip
        excess = np.maximum(of_reversed, of_composition)
        values = pairs.evalues(np.maximum(raw - excess, 0))
        is_member = np.zeros(len(raw), bool)
        if self._rules.finds_members:
            limit, member_scores = self._settings.e_profile, raw - MEMBER_CORRECTION_WEIGHT * excess
            is_member = pairs.evalues(np.maximum(member_scores, 0)) <= limit
        return Scores(excess, of_reversed, values, is_member)
