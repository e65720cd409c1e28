"""The profile of a family against its definition, one position and one residue at a time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msa.alphabet import LETTERS, STANDARD, encode
from msa.profile.family import GAP
from msa.profile.family_profile import DECAY, PSEUDOCOUNTS, family_profile
from msa.profile.matrices import background, blosum62

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


def profile_by_definition(rows: np.ndarray, corrected: bool) -> list[list[float]]:
    """Scores before rounding, [length][20]."""
    length = rows.shape[1]
    matrix, p = blosum62(), background()
    weights = []
    for row in rows:
        shares = []
        for c in range(length):
            if row[c] < 20:
                column = [x for x in rows[:, c] if x < 20]
                shares.append(1 / (len(set(column)) * column.count(row[c])))
        weights.append(sum(shares) / max(len(shares), 1))
    seen = []
    for c in range(length):
        mass = [sum(w for w, row in zip(weights, rows, strict=True) if row[c] == a) for a in range(20)]
        seen.append([m / sum(mass) for m in mass] if sum(mass) else [p[a] for a in range(20)])
    kinds = [math.exp(-sum(f * math.log(f) for f in column if f)) for column in seen]
    joint = [[p[a] * p[b] * math.exp(LAMBDA * matrix[a, b]) for b in range(20)] for a in range(20)]
    given_b = [sum(joint[a][b] for a in range(20)) for b in range(20)]
    frequencies, scores = [], []
    for c in range(length):
        around = [kinds[min(max(k, 0), length - 1)] for k in range(c - 10, c + 11)]
        share = min(1, PSEUDOCOUNTS / (1 + (sum(around) / 21 - 1) / DECAY))
        expected = [sum(seen[c][b] * joint[a][b] / given_b[b] for b in range(20)) for a in range(20)]
        f = [(1 - share) * seen[c][a] + share * expected[a] for a in range(20)]
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
@given(rows=families)
def test_scores_are_their_definition(corrected: bool, rows: np.ndarray) -> None:
    profile = family_profile(rows, corrected)
    assert profile.dtype == np.int16 and profile.shape == (rows.shape[1], 32)
    # rounded to whole half-bits
    difference = profile[:, :20] - np.array(profile_by_definition(rows, corrected))
    assert np.abs(difference).max() <= 0.5 + 2e-6


@given(families)
def test_repeated_rows_change_nothing(rows: np.ndarray) -> None:
    np.testing.assert_array_equal(family_profile(np.repeat(rows, 3, axis=0)), family_profile(rows))


def test_a_conserved_position_scores_more_than_a_variable_one() -> None:
    rows = np.stack([encode("W" + letter + "C" * 30) for letter in STANDARD])
    profile = family_profile(rows, comp_bias_corr=False)
    w = STANDARD.index("W")
    assert profile[0, w] >= blosum62()[w, w]
    assert profile[1, w] < profile[0, w] / 2


def test_other_letters_score_as_what_they_stand_for() -> None:
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
