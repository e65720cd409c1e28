"""Tests of family profiles: the rows of the alignment, and the profile against a plain implementation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import GAP, LETTERS, STANDARD, encode
from msa.profile.family_profile import (
    PSEUDOCOUNT_DECAY,
    PSEUDOCOUNTS,
    distinct_rows,
    family_profile,
)
from msa.profile.matrices import background, substitution_matrix

alignments = (st.integers(1, 8) | st.integers(60, 130)).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0, 1, 2, GAP]), min_size=columns, max_size=columns), min_size=1, max_size=12
    )
)


def row_text(row: np.ndarray) -> str:
    return "".join("-" if code == GAP else LETTERS[code] for code in row)


def reference_distinct_rows(rows: np.ndarray, max_identity: float) -> list[int]:
    """Find the indices of distinct rows, one pair of rows at a time."""
    kept = [0]
    for i, row in enumerate(rows[1:], 1):
        residues = row != GAP
        redundant = any(
            np.count_nonzero(residues & (rows[k] == row)) >= max_identity * residues.sum() for k in kept
        )
        if residues.any() and not redundant:
            kept.append(i)
    return kept


@settings(deadline=None)  # the first call compiles
@given(alignments, st.sampled_from([0.25, 0.5, 0.75, 1.0]))
def test_distinct_rows_equal_reference(rows: list[list[int]], max_identity: float) -> None:
    array = np.array(rows, np.uint8)
    expected = array[reference_distinct_rows(array, max_identity)]
    np.testing.assert_array_equal(distinct_rows(array, max_identity), expected)


LAMBDA = 0.3176
CODES = [STANDARD.index(letter) for letter in "ACDWL"] + [LETTERS.index("X"), GAP]

families = (
    st.integers(1, 30)
    .flatmap(
        lambda length: st.lists(
            st.lists(st.sampled_from(CODES), min_size=length, max_size=length), min_size=1, max_size=6
        )
    )
    .map(lambda rows: np.array(rows, np.uint8))
)


def reference_scores(rows: np.ndarray, corrected: bool) -> list[list[float]]:
    """Compute scores before rounding, [length][20], one position and one residue at a time."""
    length = rows.shape[1]
    matrix, p = substitution_matrix(), background()
    weights = []
    for row in rows:
        shares = []
        for c in range(length):
            if row[c] < 20:
                column = [x for x in rows[:, c] if x < 20]
                shares.append(1 / (len(set(column)) * column.count(row[c])))
        weights.append(sum(shares) / max(len(shares), 1))
    observed = []
    for c in range(length):
        mass = [sum(w for w, row in zip(weights, rows, strict=True) if row[c] == a) for a in range(20)]
        observed.append([m / sum(mass) for m in mass] if sum(mass) else [p[a] for a in range(20)])
    effective = [math.exp(-sum(f * math.log(f) for f in column if f)) for column in observed]
    joint = [[p[a] * p[b] * math.exp(LAMBDA * matrix[a, b]) for b in range(20)] for a in range(20)]
    totals = [sum(joint[a][b] for a in range(20)) for b in range(20)]
    frequencies, scores = [], []
    for c in range(length):
        window = [effective[min(max(k, 0), length - 1)] for k in range(c - 10, c + 11)]
        share = min(1, PSEUDOCOUNTS / (1 + (sum(window) / 21 - 1) / PSEUDOCOUNT_DECAY))
        expected = [sum(observed[c][b] * joint[a][b] / totals[b] for b in range(20)) for a in range(20)]
        f = [(1 - share) * observed[c][a] + share * expected[a] for a in range(20)]
        frequencies.append(f)
        scores.append([math.log(f[a] / p[a]) / LAMBDA for a in range(20)])
    if corrected:
        shifts = []
        for c in range(length):
            first, end = max(0, c - 20), min(length, c + 20)
            others = sum(
                frequencies[k][a] * scores[c][a] for k in range(first, end) if k != c for a in range(20)
            )
            shifts.append(sum(p[a] * scores[c][a] for a in range(20)) - others / (end - first))
        scores = [[s + shift for s in row] for row, shift in zip(scores, shifts, strict=True)]
    return scores


@pytest.mark.parametrize("corrected", [False, True])
@settings(deadline=None)
@given(rows=families)
def test_scores_equal_reference(corrected: bool, rows: np.ndarray) -> None:
    profile = family_profile(rows, corrected)
    assert profile.dtype == np.int16 and profile.shape == (rows.shape[1], 32)
    # profile scores are rounded to whole half-bits
    difference = profile[:, :20] - np.array(reference_scores(rows, corrected))
    assert np.abs(difference).max() <= 0.5 + 2e-6


@settings(deadline=None)
@given(families)
def test_duplicate_rows_do_not_change_profile(rows: np.ndarray) -> None:
    np.testing.assert_array_equal(family_profile(np.repeat(rows, 3, axis=0)), family_profile(rows))


def test_conserved_position_scores_higher_than_variable_one() -> None:
    rows = np.stack([encode("W" + letter + "C" * 30) for letter in STANDARD])
    profile = family_profile(rows, comp_bias_corr=False)
    w = STANDARD.index("W")
    assert profile[0, w] >= substitution_matrix()[w, w]
    assert profile[1, w] < profile[0, w] / 2


def test_other_letters_score_as_the_residues_that_they_represent() -> None:
    rows = np.stack([encode("NDQEILCK"), encode("NDQEVLCR")])
    profile = family_profile(rows).astype(int)

    def column(letter: str) -> np.ndarray:
        return profile[:, LETTERS.index(letter)]

    np.testing.assert_array_equal(column("B"), np.floor((column("N") + column("D") + 1) / 2))
    np.testing.assert_array_equal(column("J"), np.floor((column("I") + column("L") + 1) / 2))
    np.testing.assert_array_equal(column("U"), column("C"))
    np.testing.assert_array_equal(column("O"), column("K"))
    assert (column("X") < 0).all()
    assert (profile[:, len(LETTERS) :] == column("X")[:, None]).all()
