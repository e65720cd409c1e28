"""Correction of alignment scores for the composition of the aligned regions.

Two regions that are rich in the same residues, such as transmembrane helices or charged stretches, score well
without being related. The score of each alignment is therefore also explained by a second null model, which
draws the target's residues from the mean distribution of the aligned query positions. This is HMMER's null2
(Eddy, PLoS Comput. Biol. 4:e1000069, 2008), computed from the ends of the alignment. The second model has a
small prior probability: weak biases cost nothing, and strong ones cost little less than they contribute.
"""

import math
from collections.abc import Sequence

import numpy as np

from msa.alphabet import LETTER_BITS, STANDARD
from msa.cpu.threads import chunks_of_equal_work
from msa.database.sequence_arrays import SequenceArrays
from msa.interpreted import budget
from msa.profile.gumbel import GUMBEL_TABLES

SEQUENCE_K_FACTOR = 2.5
"""Factor of the published K for scores of single sequences with this correction. The first residue of a gap
costs less here than NCBI assumed when fitting K; see docs/sensitivity.md."""
LONG_TARGET = 800
"""Residues of a target above which E-values of single sequences are multiplied by its length divided by this
number. This removes more chance hits than relatives; see docs/sensitivity.md."""
SEQUENCE_CHANCE_FRACTION = 0.04
"""Fraction of chance pairs whose reversed-profile score exceeds the threshold of the correction, for single
sequences. It is smaller than for families, because the composition is corrected as well."""

_PRIOR = 1 / 256
"""Prior probability of the second null model, HMMER's."""
_RESIDUE_COUNT = len(STANDARD)
_LETTER_CODES = LETTER_BITS + 1
_RESIDUES_PER_VALUE = 50
"""Residues that are counted without numba in the time of one E-value."""
_MAX_RESIDUES = 2**17
"""Maximum number of residues that are counted at once, unless a single region has more."""


def composition_excess(
    profiles: Sequence[np.ndarray],
    owners: np.ndarray,
    records: np.ndarray,
    targets: SequenceArrays,
    indices: np.ndarray,
    matrix: str,
    lambda_: float,
) -> np.ndarray:
    """Compute the part of each alignment's score that the composition of the aligned regions explains.

    Args:
        profiles: int16 [query length, 32], profiles of queries without composition correction.
        owners: int64 [n], index in `profiles` of each alignment's query.
        records: int32 [n, 8], records of the alignments; see AlignmentPaths.
        targets: sequences of the database.
        indices: int64 [n], targets of the alignments.
        matrix: name of the substitution matrix, the unit of the scores.
        lambda_: λ of gapped alignments, which converts nats to this unit.

    Returns:
        int64 [n], ≥ 0; to be subtracted from the raw scores.
    """
    if not len(records):
        return np.zeros(0, np.int64)
    ungapped_lambda = GUMBEL_TABLES[matrix].ungapped_lambda
    odds = _mean_odds(profiles, owners, records[:, 1], records[:, 2], ungapped_lambda)
    counts = _residue_counts(targets, indices, records[:, 3], records[:, 4])
    bias = (counts * np.log(odds)).sum(axis=1)
    excess = np.logaddexp(0.0, math.log(_PRIOR) + bias) / lambda_
    # exp and log may differ in the last bit between machines, which must not change the rounded score
    return np.floor(np.round(excess, 6) + 0.5).astype(np.int64)


def _mean_odds(
    profiles: Sequence[np.ndarray], owners: np.ndarray, first: np.ndarray, last: np.ndarray, lambda_: float
) -> np.ndarray:
    """Return the mean odds of each residue at query positions `first` to `last`, float64 [n, 20]."""
    scores = np.concatenate(profiles)[:, :_RESIDUE_COUNT].astype(np.int64)
    lowest, highest = int(scores.min()), int(scores.max())
    odds = np.array([math.exp(lambda_ * score) for score in range(lowest, highest + 1)])[scores - lowest]
    # sums of each profile's positions, after a row of zeros
    ends = np.cumsum([len(profile) for profile in profiles])
    starts = np.concatenate([[0], ends[:-1]])
    sums = np.zeros((len(odds) + len(profiles), _RESIDUE_COUNT))
    for k, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        np.cumsum(odds[start:end], axis=0, out=sums[start + k + 1 : end + k + 1])
    rows = (starts + np.arange(len(profiles)))[owners]
    lengths = (last - first + 1).astype(np.float64)
    return np.asarray((sums[rows + last + 1] - sums[rows + first]) / lengths[:, None])


def _residue_counts(
    targets: SequenceArrays, indices: np.ndarray, first: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """Count the standard residues of each target from `first` to `last`: int64 [n, 20]."""
    offsets, lengths = targets.offsets[indices], last - first + 1
    starts, ends = offsets + first, offsets + last + 1
    counts = np.zeros((len(indices), _RESIDUE_COUNT), np.int64)
    if not budget.take(int(lengths.sum()) // _RESIDUES_PER_VALUE):
        from msa.search import compiled_composition  # imports numba

        compiled_composition.count_residues(targets.residues, starts, ends, counts)
        return counts
    for begin, end in chunks_of_equal_work(lengths, _MAX_RESIDUES):
        spans = zip(starts[begin:end].tolist(), ends[begin:end].tolist(), strict=True)
        codes = np.concatenate([targets.residues[start:stop] for start, stop in spans]) & LETTER_BITS
        bins = np.repeat(np.arange(0, (end - begin) * _LETTER_CODES, _LETTER_CODES), lengths[begin:end])
        bins += codes
        found = np.bincount(bins, minlength=(end - begin) * _LETTER_CODES).reshape(-1, _LETTER_CODES)
        counts[begin:end] = found[:, :_RESIDUE_COUNT]
    return counts
