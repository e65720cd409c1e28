"""The loops of msa/search/scoring/compiled_forward.py in numpy: Forward scores of a few pairs.

Sums are computed in another order, and their logarithms differ in the last bits. One operation computes a
column of the matrices of several targets, against the query and the reversed query. Gaps along a column are
cumulative sums of quotients by powers of the cost of extending a gap.
"""

import math

import numpy as np

from msa.alphabet import LETTER_BITS, LETTERS, X
from msa.profile.context import context_model
from msa.profile.pssm import interpreted_context_profile

LOWEST_SCORE, SCORE_COUNT = -128, 256
"""Lowest score that has a weight of its own, and number of weights; lower scores have its weight."""

_COLUMNS_BETWEEN_CHECKS = 16
"""Columns after which sums are scaled if they are large. They grow by less than 2⁸ per column."""
_LARGE = 2.0**200
_MAX_ROWS = 512
"""Maximum number of rows in a cumulative sum. The quotients are at most 2³⁷⁷ times as large as the sums."""


def find_copies(residues: np.ndarray, windows: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return the index of the first copy of each window; see `compiled_forward.find_copies`."""
    representatives = np.empty(len(windows), np.int64)
    seen: dict[tuple[int, int, int, bytes], int] = {}
    for k, (owner, (start, first, end, end_read)) in enumerate(
        zip(owners.tolist(), windows.tolist(), strict=True)
    ):
        content = (residues[start:end_read] & LETTER_BITS).tobytes()
        representatives[k] = seen.setdefault((owner, first - start, end - start, content), k)
    return representatives


def forward_scores(
    table: np.ndarray,
    gap_open: float,
    gap_extend: float,
    residues: np.ndarray,
    windows: np.ndarray,
    letters: np.ndarray,
    queries: np.ndarray,
) -> np.ndarray:
    """Return Forward scores, float64 [n, 2]; see `compiled_forward.fill_forward_scores`."""
    scores = np.empty((len(windows), 2))
    lengths = windows[:, 2] - windows[:, 1]
    for first, end in np.unique(queries, axis=0).tolist():
        of_query = np.flatnonzero(queries[:, 0] == first)
        # longest first
        rows = of_query[np.argsort(-lengths[of_query], kind="stable")]
        weights = _weights(table, residues, windows[rows])
        scores[rows] = _scores(weights, lengths[rows], letters[first:end], gap_open, gap_extend)
    return scores


def _weights(table: np.ndarray, residues: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Return the weights of a pair of each letter and column, float64 [columns, n, 26].

    Weights are 0 after the last column of a window.
    """
    neighbours = context_model().neighbours
    lengths = windows[:, 2] - windows[:, 1]
    # windows do not read residues of others
    ends = np.cumsum(lengths + 2 * neighbours)
    codes = np.full(ends[-1], X, np.uint8)
    starts = ends - neighbours - lengths
    for start, (first_read, first, _, end_read) in zip(starts.tolist(), windows.tolist(), strict=True):
        part = residues[first_read:end_read] & LETTER_BITS
        begin = start + first_read - first
        codes[begin : begin + len(part)] = np.minimum(part, len(LETTERS) - 1)
    profile = interpreted_context_profile(codes)[:, : len(LETTERS)]
    of_positions = table[np.maximum(profile, LOWEST_SCORE) - LOWEST_SCORE]
    weights = np.zeros((lengths.max(), len(windows), len(LETTERS)))
    for k, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        weights[:length, k] = of_positions[start : start + length]
    return weights


def _scores(
    weights: np.ndarray, lengths: np.ndarray, letters: np.ndarray, gap_open: float, gap_extend: float
) -> np.ndarray:
    """Return the scores of targets with a query and the reversed query, float64 [n, 2].

    Args:
        weights: float64 [columns, n, 26].
        lengths: int64 [n], columns of each target, descending.
        letters: uint8 [rows], letter codes of the query.
        gap_open: weight of a gap's first residue.
        gap_extend: weight of each further residue.
    """
    columns, count, _ = weights.shape
    rows, read = len(letters), np.stack([letters, letters[::-1]])
    powers = gap_extend ** np.arange(min(rows, _MAX_ROWS))
    # of all alignments that end in each row of the last column, of those that end with a pair, and of those
    # that end with a residue of the target opposite a gap
    sums, pairs, gaps = np.zeros((3, count, 2, rows))
    totals, start, scales = np.zeros((count, 2)), np.ones((count, 2, 1)), np.zeros((count, 2))
    counts = np.count_nonzero(lengths[:, None] > np.arange(columns), axis=0)
    for column, n in enumerate(counts.tolist()):
        gaps[:n] *= gap_extend
        gaps[:n] += gap_open * pairs[:n]
        weights[column, :n].take(read, axis=1, out=pairs[:n], mode="clip")
        sums[:n] += start[:n]
        pairs[:n, :, 1:] *= sums[:n, :, :-1]
        pairs[:n, :, :1] *= start[:n]
        totals[:n] += pairs[:n].sum(axis=2)
        # residues of the query opposite gaps
        sums[:n, :, 0] = 0
        np.multiply(pairs[:n, :, :-1], gap_open, out=sums[:n, :, 1:])
        for first in range(0, rows, _MAX_ROWS):
            block = sums[:n, :, first : first + _MAX_ROWS]
            if first:
                block[:, :, 0] += gap_extend * sums[:n, :, first - 1]
            block /= powers[: block.shape[2]]
            np.cumsum(block, axis=2, out=block)
            block *= powers[: block.shape[2]]
        sums[:n] += pairs[:n]
        sums[:n] += gaps[:n]
        if column % _COLUMNS_BETWEEN_CHECKS == 0 and totals.max() > _LARGE:
            # powers of two change no digits
            large = totals > _LARGE
            for each in (sums, pairs, gaps, totals, start):
                each[large] /= _LARGE
            scales += large
    return np.log(totals) + scales * math.log(_LARGE)
