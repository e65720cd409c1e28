"""E-values of targets that the query matches in two regions.

One local alignment covers neither two domains with unrelated residues between them nor the copies of a
repeat. The parts of a target before and after its best alignment are therefore aligned as well. The E-value
of the sum of both scores (Karlin & Altschul, PNAS 90:5873, 1993) replaces the target's if it is smaller.
"""

import math
from dataclasses import dataclass

import numpy as np

from msa.database.sequence_arrays import SequenceArrays

MAX_PAIR_EVALUE = 0.05
"""Largest E-value of a second alignment, for a database of its target alone; others add no evidence."""

_ORDERED_FACTOR = 0.5
"""Factor of the E-value of two alignments that have the same order in query and target. Karlin and Altschul's
formula has 1/4; it is doubled because there are two tests, with one and with two alignments."""
_UNORDERED_FACTOR = 5.0
"""The same for other pairs, such as two copies of a repeat. Karlin and Altschul's formula, doubled, has 1,
but the scores of copies that match the same residues are not independent; see docs/sensitivity.md."""


@dataclass(frozen=True)
class TargetParts:
    """The parts of targets before and after their best alignments, and the whole targets.

    Args:
        sequences: [3 n]: of alignment k, the part before it (2 k), the part after it (2 k + 1), and the whole
            target (2 n + k). They start at any byte, and are followed by other residues.
        records: int32 [n, 8], records of the best alignments; see AlignmentPaths.
    """

    sequences: SequenceArrays
    records: np.ndarray

    @classmethod
    def of_alignments(
        cls, targets: SequenceArrays, indices: np.ndarray, records: np.ndarray
    ) -> "TargetParts":
        """Divide targets at their best alignments, without copying residues.

        Args:
            targets: sequences of the database.
            indices: int64 [n], targets of the alignments.
            records: int32 [n, 8], records of the alignments.
        """
        offsets, lengths = targets.offsets[indices], targets.lengths[indices]
        first, after = records[:, 3], records[:, 4] + 1
        starts = np.stack([offsets, offsets + after], axis=1).reshape(-1)
        part_lengths = np.stack([first, lengths - after], axis=1).reshape(-1)
        starts, part_lengths = np.concatenate([starts, offsets]), np.concatenate([part_lengths, lengths])
        return cls(SequenceArrays(targets.residues, starts, part_lengths), records)

    def non_empty(self, first: int, end: int) -> np.ndarray:
        """Return the indices of the parts of alignments `first` to `end` (exclusive) with residues."""
        return 2 * first + np.flatnonzero(self.sequences.lengths[2 * first : 2 * end])

    def whole(self, first: int, end: int) -> np.ndarray:
        """Return the indices of the whole targets of alignments `first` to `end` (exclusive)."""
        return 2 * len(self.records) + np.arange(first, end)

    def are_ordered(self, parts: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Return whether second alignments have the same order as the best ones in query and target.

        Args:
            parts: int64 [m], parts that are aligned.
            records: int32 [m, 8], records of their alignments.

        Returns:
            bool [m], False also for alignments that share query positions.
        """
        best = self.records[parts // 2]
        is_before = records[:, 2] < best[:, 1]
        is_after = records[:, 1] > best[:, 2]
        return np.asarray(np.where(parts % 2 == 0, is_before, is_after))


def summed_evalues(
    evalues: np.ndarray, pair_evalues: np.ndarray, second_pair_evalues: np.ndarray, are_ordered: np.ndarray
) -> np.ndarray:
    """Compute the E-values of pairs of alignments.

    With pair E-values p and q, the sum of both normalized scores is x = −ln(p q), and unrelated sequences
    reach it with a probability of x e^(−x), times a factor f: _ORDERED_FACTOR or _UNORDERED_FACTOR. With the
    E-value E of the best alignment, E / p targets can reach it, so that both have f E q (−ln p − ln q).

    Args:
        evalues: float64 [n], E-values of the best alignments, > 0.
        pair_evalues: float64 [n], the same for a database of the target alone, > 0.
        second_pair_evalues: float64 [n], E-values of the second alignments for a database of the target
            alone, at most MAX_PAIR_EVALUE.
        are_ordered: bool [n], True for pairs that have the same order in query and target.

    Returns:
        float64 [n].
    """
    # 0 has no logarithm; numpy's logarithm may differ in the last bit between machines
    second = np.maximum(second_pair_evalues, np.finfo(np.float64).tiny)
    sums = np.array(
        [-math.log(p) - math.log(q) for p, q in zip(pair_evalues.tolist(), second.tolist(), strict=True)]
    )
    return np.asarray(evalues * second * sums * np.where(are_ordered, _ORDERED_FACTOR, _UNORDERED_FACTOR))
