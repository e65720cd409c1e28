"""Calibration of family profiles: their scores against shuffled targets.

The published statistics assume standard residue frequencies in query and target. A family profile may match
more or fewer residues by chance, above all in a database of unusual composition. It is therefore aligned to
several hundred shuffled targets, and K is multiplied by the ratio of observed to expected pairs with an
E-value up to 0.1. λ is left unchanged, because estimating it would take more pairs. The CPU computes this
factor for all engines, so that their results agree.
"""

import math

import numpy as np

from msa.alphabet import LETTER_BITS
from msa.database.sequence_arrays import SequenceArrays
from msa.engines.search_settings import SearchSettings
from msa.profile.gumbel import GumbelParameters
from msa.profile.statistics import corrected_scores, evalues

_MAX_EVALUE = 0.1
"""E-value, for a database of one target, up to which pairs are counted."""
_SHUFFLING_BIAS = 0.8
"""Correction factor, because shuffled targets have higher chance scores than reversed domains (see
docs/sensitivity.md)."""


def corrected_alignment_scores(
    profile: np.ndarray,
    targets: SequenceArrays,
    indices: np.ndarray,
    settings: SearchSettings,
    parameters: GumbelParameters,
    weight: int = 1,
) -> np.ndarray:
    """Compute alignment scores, minus the reversed-profile correction if `comp_bias_corr` is set.

    Args:
        profile: int16 [length, 32].
        targets: sequences of the database.
        indices: int64 [n], targets to score.
        settings: gap costs, threads and `comp_bias_corr` are used.
        parameters: see GumbelParameters.
        weight: see `corrected_scores`.

    Returns:
        int [n], raw scores.
    """
    scores = _alignment_scores(profile, targets, indices, settings)
    if not settings.comp_bias_corr:
        return scores
    reversed_scores = _alignment_scores(profile[::-1], targets, indices, settings)
    return corrected_scores(
        scores, reversed_scores, len(profile), targets.lengths[indices], parameters, weight
    )


def _alignment_scores(
    profile: np.ndarray, targets: SequenceArrays, indices: np.ndarray, settings: SearchSettings
) -> np.ndarray:
    from msa.cpu.smith_waterman_scores import alignment_scores  # imports numba

    return alignment_scores(
        profile, targets, indices, settings.gap_open, settings.gap_extend, settings.threads
    )


class ShuffledTargets:
    """A sample of a database's targets with shuffled residues; the shuffling is reproducible."""

    def __init__(self, sample: SequenceArrays) -> None:
        rng = np.random.default_rng(0)
        codes = [rng.permutation(sample.codes(index) & LETTER_BITS) for index in range(len(sample))]
        self._targets = SequenceArrays(np.concatenate(codes), sample.offsets, sample.lengths)

    def k_factor(self, profile: np.ndarray, settings: SearchSettings, parameters: GumbelParameters) -> float:
        """Estimate the ratio of the number of chance hits to the number that the parameters predict.

        Args:
            profile: int16 [length, 32].
            settings: gap costs, threads and `comp_bias_corr` are used.
            parameters: see GumbelParameters.

        Returns:
            > 0; 1 if the parameters predict the number correctly.
        """
        targets, length = self._targets, len(profile)

        def is_significant(indices: np.ndarray, scores: np.ndarray) -> np.ndarray:
            # each target counts as a database by itself
            lengths = targets.lengths[indices]
            expected = evalues(scores, length, lengths, 1, parameters) * lengths
            return np.asarray(expected <= _MAX_EVALUE)

        indices = np.arange(len(targets))
        scores = _alignment_scores(profile, targets, indices, settings)
        significant = is_significant(indices, scores)
        if settings.comp_bias_corr:
            # the correction does not raise scores, so it cannot make others significant
            indices, scores = indices[significant], scores[significant]
            reversed_scores = _alignment_scores(profile[::-1], targets, indices, settings)
            lengths = targets.lengths[indices]
            significant = is_significant(
                indices, corrected_scores(scores, reversed_scores, length, lengths, parameters)
            )
        observed = (np.count_nonzero(significant) + 0.5) / (len(targets) + 1)
        return -math.log1p(-observed) / _MAX_EVALUE * _SHUFFLING_BIAS
