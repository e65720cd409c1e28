"""The E-value of one target, computed from the rules in docs/search.md."""

import math
from dataclasses import replace

import numpy as np

from msa.alphabet import decode, encode
from msa.cpu.smith_waterman import align
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.database import TargetDatabase
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.gumbel import gumbel_parameters
from msa.profile.pssm import query_profile
from msa.profile.statistics import evalues, reversed_excess
from msa.search.scoring.composition import SEQUENCE_CHANCE_FRACTION, SEQUENCE_K_FACTOR, composition_excess

GAP_OPEN_WEIGHT, GAP_EXTEND_WEIGHT = 0.01, 0.6
"""Weights of gaps in Forward scores."""
GAP_OPEN = {"CONTEXT": 12, "BLOSUM62": 11}


def sum_of_alignments(weights: np.ndarray) -> float:
    """Sum the weights of all local alignments, given those of pairs, float64 [query, target].

    Gaps of each length are added one by one, in either sequence, but not in both between two pairs.
    """
    rows, columns = weights.shape
    pairs = np.zeros((rows + 1, columns + 1))
    gaps = GAP_OPEN_WEIGHT * GAP_EXTEND_WEIGHT ** np.arange(max(rows, columns) + 1)
    distances = np.subtract.outer(np.arange(columns), np.arange(columns))
    in_target = np.where(distances > 0, gaps[np.maximum(distances - 1, 0)], 0)
    for row in range(rows):
        before = pairs[row, :-1]
        # the residues of the query since an earlier pair are opposite a gap
        in_query = gaps[:row][::-1] @ pairs[:row, :-1]
        pairs[row + 1, 1:] = weights[row] * (1 + before + in_query + in_target @ before)
    return float(pairs.sum())


class Reference:
    """The E-value of one target in a search with one iteration.

    Args:
        query: residues.
        target: residues.
        database: the whole database.
        matrix: see SearchSettings.
        gap_open: see SearchSettings; by default that of the matrix.
    """

    def __init__(
        self,
        query: str,
        target: str,
        database: TargetDatabase,
        matrix: str = "CONTEXT",
        gap_open: int | None = None,
    ) -> None:
        self.query, self.database, self.matrix = query, database, matrix
        self.reference_length = 1.2 if matrix == "CONTEXT" else 0.8
        self.residues = database.total_residues
        self.codes, self.target = encode(query), encode(target)
        self.gap_costs = GAP_OPEN[matrix] if gap_open is None else gap_open, 1
        self.parameters = gumbel_parameters(*self.gap_costs, matrix)
        self.profile = query_profile(self.codes, False, matrix)
        self.best = self.record(self.target)
        lengths, index = np.array([len(target)]), np.array([0])
        sequences = SequenceArrays.concatenate([self.target])
        scores = alignment_scores(np.ascontiguousarray(self.profile[::-1]), sequences, index, *self.gap_costs)
        arguments = len(query), lengths, self.parameters, SEQUENCE_CHANCE_FRACTION
        self.reversed_excess = int(reversed_excess(scores, *arguments)[0])

    def record(self, sequence: np.ndarray) -> list[int]:
        """Return the record of the best alignment to a part of the target."""
        sequences = SequenceArrays.concatenate([sequence])
        found = align(self.profile, self.codes, sequences, np.array([0]), *self.gap_costs)
        record: list[int] = found.records[0].tolist()
        return record

    def excess(self, sequence: np.ndarray, record: list[int]) -> int:
        """Return the correction of an alignment's score."""
        found = np.array([record], np.int32), SequenceArrays.concatenate([sequence]), np.array([0])
        (composition,) = composition_excess(
            [self.profile], np.array([0]), *found, self.matrix, self.parameters.lambda_
        )
        return max(int(composition), self.reversed_excess)

    def pair_evalue(self, sequence: np.ndarray, record: list[int]) -> float:
        """Return the E-value of an alignment for a database of the target alone, after all corrections."""
        score = max(record[0] - self.excess(sequence, record), 0)
        parameters = replace(self.parameters, k=self.parameters.k * SEQUENCE_K_FACTOR)
        length = len(self.target)
        return float(evalues(np.array([score]), len(self.codes), np.array([length]), length, parameters)[0])

    @property
    def length_factor(self) -> float:
        """The factor of all E-values that is due to the lengths of query and target."""
        mean = self.residues / len(self.database)
        return len(self.target) / (self.reference_length * mean * max(140 / len(self.query), 1))

    @property
    def single_evalue(self) -> float:
        """The E-value of the best alignment."""
        length = len(self.target)
        evalue = self.pair_evalue(self.target, self.best) * self.residues / length
        return evalue * self.length_factor

    @property
    def summed_evalue(self) -> float:
        """The smallest E-value with and without a second alignment."""
        smallest = single = self.single_evalue
        _, first, last, target_first, target_last = self.best[:5]
        for side, part in enumerate((self.target[:target_first], self.target[target_last + 1 :])):
            record = self.record(part) if len(part) else [0]
            if not record[0]:
                continue
            pair, second = self.pair_evalue(self.target, self.best), self.pair_evalue(part, record)
            if second <= 0.05:
                is_ordered = record[2] < first if side == 0 else record[1] > last
                factor = 0.5 if is_ordered else 5.0
                smallest = min(smallest, single * second * -math.log(pair * second) * factor)
        return smallest

    @property
    def other_evalue(self) -> float:
        """The E-value with BLOSUM62, corrected for the region and the reversed query of this matrix."""
        other = Reference(self.query, decode(self.target), self.database, "BLOSUM62", self.gap_costs[0])
        other.reversed_excess = self.reversed_excess
        other.best[1:] = self.best[1:]
        other.reference_length = self.reference_length
        return other.single_evalue

    @property
    def forward_evalue(self) -> float:
        """The E-value of the Forward score of the target's profile near the best alignment."""
        first, end = max(self.best[3] - 100, 0), self.best[4] + 101
        profile = query_profile(self.target, False, "CONTEXT")[first:end].astype(np.float64)
        weights = np.exp(0.3176 * profile.T)[self.codes] / 1.05
        score, of_reversed = (
            round(math.log(sum_of_alignments(each)), 6) for each in (weights, weights[::-1])
        )
        cells = max(len(self.query) * len(self.target), 1e5)
        excess = max(
            self.excess(self.target, self.best) * self.parameters.lambda_,
            of_reversed - math.log(10 * cells / 0.04),
        )
        evalue = 10 * len(self.query) * self.residues * math.exp(excess - score)
        return evalue * self.length_factor

    @property
    def evalue(self) -> float:
        """The E-value that a search reports."""
        if not 1e-12 <= self.single_evalue <= 1:
            return self.single_evalue
        if self.matrix != "CONTEXT":
            return self.summed_evalue
        first, other = self.summed_evalue, self.other_evalue
        second = 1 / other if other <= 100 else 0
        if 1e-4 <= first <= 0.3:
            return 0.65 / (0.4 / first + 0.2 * second + 0.4 / self.forward_evalue)
        return 0.9 / (0.75 / first + 0.25 * second)
