"""Correction of alignment scores for the composition of the aligned regions.

Two regions that are rich in the same residues, such as transmembrane helices or charged stretches, score well
without being related. The score of each alignment is therefore also explained by a second null model, which
draws the target's residues from the mean distribution of the aligned query positions. This is HMMER's null2
(Eddy, PLoS Comput. Biol. 4:e1000069, 2008), computed from the ends of the alignment. The bias b is the sum,
over the aligned target residues, of the logarithm of their mean odds at the aligned query positions. With the
small prior probability p of the second model, ln(1 + p e^b) is subtracted from λ S: weak biases cost nothing,
and strong ones cost little less than they contribute.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from msa.alphabet import LETTER_BITS, LETTERS, STANDARD
from msa.base.cpu_kernels.jit import kernel
from msa.base.cpu_kernels.threads import chunks_of_equal_work
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.gumbel import GUMBEL_TABLES
from msa.profile.matrices import CONTEXT, RNA
from msa.profile.pssm import QueryProfile

SEQUENCE_K_FACTOR = 2.2
"""Factor of the published K for scores of single sequences with this correction. The first residue of a gap
costs less here than NCBI assumed when fitting K; see docs/sensitivity.md."""
_RELATIVE_REFERENCE_LENGTHS, _SHORT_QUERY = {True: 1.2, False: 0.8}, 140.0
"""Lengths by which those of targets, with CONTEXT or another matrix, and of shorter queries are divided; the
quotients multiply E-values of single sequences. The first are relative to the mean of the database, so that
E-values count its sequences and not its residues. All are fitted to reversed and shuffled sequences; see
docs/sensitivity.md."""
SEQUENCE_CHANCE_FRACTION = 0.04
"""Fraction of chance pairs whose reversed-profile score exceeds the threshold of the correction, for single
sequences. It is smaller than for families, because the composition is corrected as well."""

_PRIOR = 1 / 256
"""Prior probability of the second null model, HMMER's."""
_RESIDUE_COUNT = len(STANDARD)
_MAX_RESIDUES = 2**17
"""Maximum number of residues of targets that are processed at once, unless a single region has more."""


def reference_length(query_length: int, database: TargetDatabase, matrix: str) -> float:
    """Return `msa.engines.pair_statistics.QueryStatistics.reference_length` of a single sequence."""
    mean = max(database.total_residues, 1) / max(database.total_sequences, 1)
    return _RELATIVE_REFERENCE_LENGTHS[matrix == CONTEXT] * mean * max(_SHORT_QUERY / query_length, 1.0)


def composition_excess_of_batch(
    profiles: Mapping[int, QueryProfile],
    owners: np.ndarray,
    records: np.ndarray,
    targets: SequenceArrays,
    indices: np.ndarray,
    matrix: str,
    lambda_: float,
) -> np.ndarray:
    """Compute `composition_excess` of the alignments of queries that have a profile; 0 for others.

    `profiles`, without composition correction, are given by query, and `owners`, int64 [n], are the
    queries of the alignments. The other arguments are those of `composition_excess`.
    """
    corrected = [query for query in np.unique(owners).tolist() if query in profiles]
    rows, excess = np.flatnonzero(np.isin(owners, corrected)), np.zeros(len(owners), np.int64)
    excess[rows] = composition_excess(
        [profiles[query].profile for query in corrected], np.searchsorted(corrected, owners[rows]),
        records[rows], targets, indices[rows], matrix, lambda_,
    )  # fmt: skip
    return excess


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
    residue_count = len(LETTERS) if matrix == RNA else _RESIDUE_COUNT  # U is beyond the standard ones
    sums, first_rows = _odds_sums(profiles, GUMBEL_TABLES[matrix].ungapped_lambda, residue_count)
    first, last = first_rows[owners] + records[:, 1], first_rows[owners] + records[:, 2] + 1
    starts, lengths = targets.offsets[indices] + records[:, 3], records[:, 4] - records[:, 3] + 1
    biases = np.empty(len(records))
    for begin, end in chunks_of_equal_work(lengths, _MAX_RESIDUES):
        piece = slice(begin, end)
        positions = (last[piece] - first[piece]).astype(np.float64)
        odds = (sums[last[piece]] - sums[first[piece]]) / positions[:, None]
        counts = np.zeros((end - begin, residue_count), np.int64)
        count_residues(targets.residues, starts[piece], starts[piece] + lengths[piece], counts)
        biases[piece] = (counts * np.log(odds)).sum(axis=1)
    excess = np.logaddexp(0.0, math.log(_PRIOR) + biases) / lambda_
    # exp and log may differ in the last bit between machines, which must not change the rounded score
    return np.floor(np.round(excess, 6) + 0.5).astype(np.int64)


def _odds_sums(
    profiles: Sequence[np.ndarray], lambda_: float, residue_count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sum the odds of each residue over the positions of profiles.

    Args:
        profiles: int16 [query length, 32].
        lambda_: λ of ungapped alignments.
        residue_count: residues, by their codes.

    Returns:
        float64 [positions + profiles, residue_count], of each profile a row of zeros, then the sums up to
        each of its positions; and int64 [profiles], the row of zeros of each.
    """
    scores = np.concatenate(profiles)[:, :residue_count].astype(np.int64)
    lowest, highest = int(scores.min()), int(scores.max())
    odds = np.array([math.exp(lambda_ * score) for score in range(lowest, highest + 1)])[scores - lowest]
    ends = np.cumsum([len(profile) for profile in profiles])
    starts = np.concatenate([[0], ends[:-1]])
    sums = np.zeros((len(odds) + len(profiles), residue_count))
    for k, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        np.cumsum(odds[start:end], axis=0, out=sums[start + k + 1 : end + k + 1])
    return sums, starts + np.arange(len(profiles))


@kernel
def count_residues(residues, starts, ends, counts):  # type: ignore[no-untyped-def]
    """Count the residues of regions.

    Args:
        residues: uint8, residue bytes of the database.
        starts: int64 [n], index of the first residue of each region.
        ends: int64 [n], index after its last residue.
        counts: int64 [n, letters], incremented; letters with larger codes are not counted.
    """
    for region in range(len(starts)):
        for k in range(starts[region], ends[region]):
            letter = residues[k] & LETTER_BITS
            if letter < counts.shape[1]:
                counts[region, letter] += 1
