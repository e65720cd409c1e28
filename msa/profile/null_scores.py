"""How a family's profile scores by chance: against real targets, their residues shuffled.

The published parameters are for usual residues on both sides. A profile may have more or less to match by
chance, most of all in a database of unusual composition. So it is aligned to some hundred shuffled targets,
and K is multiplied by how many times more of them than expected reach what chance finds in one pair of ten;
λ, for which that would be too few, stays. It is done on the CPU whatever the engine, so that all agree.
"""

import math

import numpy as np

from msa.alphabet import LETTER_BITS
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.statistics import GumbelParameters, corrected_scores, evalues
from msa.search.settings import SearchSettings

SHUFFLED = 500
"""Targets that are shuffled, spread evenly over a database's lengths."""
_CHANCE = 0.1
"""E-value of a pair, as if it were all there is, up to which pairs are counted."""
_MIDDLE = 0.8
"""Shuffled targets score more by chance than reversed domains do; see docs/sensitivity.md."""
_SHORTEST, _LONGEST = 0.02, 0.98
"""Quantiles of length between which targets are taken."""


def corrected_alignment_scores(
    profile: np.ndarray,
    targets: SequenceArrays,
    chosen: np.ndarray,
    settings: SearchSettings,
    parameters: GumbelParameters,
    times: int = 1,
) -> np.ndarray:
    """Scores of alignments, with the composition correction less what the reversed profile explains.

    Args:
        profile: int16 [length, 32], in the matrix's unit.
        targets: the database.
        chosen: int64 [n], places of the targets to score.
        settings: of which gap costs, threads and the composition correction are used.
        parameters, times: see `corrected_scores`.
    """
    how = settings.gap_open, settings.gap_extend, settings.threads
    scores = alignment_scores(profile, targets, chosen, *how)
    if not settings.comp_bias_corr:
        return scores
    backwards = alignment_scores(profile[::-1], targets, chosen, *how)
    return corrected_scores(scores, backwards, len(profile), targets.lengths[chosen], parameters, times)


class ShuffledTargets:
    """Some targets of a database, shuffled: always the same, in the same order.

    Args:
        targets: the database.
        count: how many of them, from the first on, are in order of length; all without clusters.
    """

    def __init__(self, targets: SequenceArrays, count: int | None = None) -> None:
        rng = np.random.default_rng(0)
        places = np.linspace(_SHORTEST, _LONGEST, SHUFFLED) * ((count or len(targets)) - 1)
        codes = [rng.permutation(targets.codes(int(place)) & LETTER_BITS) for place in places]
        lengths = np.array([len(each) for each in codes], np.int32)
        self._targets = SequenceArrays(
            np.concatenate(codes), np.cumsum(lengths, dtype=np.int64) - lengths, lengths
        )

    def excess(self, profile: np.ndarray, settings: SearchSettings, parameters: GumbelParameters) -> float:
        """How many times more often than the parameters say a profile finds something by chance.

        Args:
            profile: int16 [length, 32], in the matrix's unit.
            settings: of which gap costs, threads and the composition correction are used.
            parameters: see GumbelParameters.

        Returns:
            > 0; 1 where chance finds as much as it should.
        """
        targets, every = self._targets, np.arange(len(self._targets))
        scores = corrected_alignment_scores(profile, targets, every, settings, parameters)
        # each target is its own database
        expected = evalues(scores, len(profile), targets.lengths, 1, parameters) * targets.lengths
        found = (np.count_nonzero(expected <= _CHANCE) + 0.5) / (len(targets) + 1)
        return -math.log1p(-found) / _CHANCE * _MIDDLE
