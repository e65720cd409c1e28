"""Tests of substitution matrices: published scores, and the rules for letters missing in a matrix."""

import numpy as np
import pytest
from Bio.Align import substitution_matrices

from msa.alphabet import LETTERS, STANDARD, encode
from msa.profile.gumbel import GUMBEL_TABLES
from msa.profile.matrices import PROFILE_COLUMNS, background, substitution_matrix


def score(a: str, b: str, matrix: str = "BLOSUM62") -> int:
    return int(substitution_matrix(matrix)[LETTERS.index(a), LETTERS.index(b)])


@pytest.mark.parametrize("matrix", sorted(GUMBEL_TABLES.keys() - {"BLOSUM80", "CONTEXT", "VTML80", "RNA"}))
def test_scores_equal_biopythons_matrices(matrix: str) -> None:
    published = substitution_matrices.load(matrix)
    for a in STANDARD + "BZX":
        for b in STANDARD + "BZX":
            assert score(a, b, matrix) == published[a][b]


def test_blosum80_equals_biopythons_rescaled() -> None:
    thirds = substitution_matrices.load("BLOSUM80")
    for a in STANDARD + "BZX":
        for b in STANDARD + "BZX":
            # both matrices are rounded
            assert abs(score(a, b, "BLOSUM80") - thirds[a][b] * 2 / 3) < 0.5 + 1 / 3


def test_letters_missing_in_vtml80_follow_the_rules() -> None:
    for letter in STANDARD:
        for either, (one, other) in {"B": "ND", "Z": "QE", "J": "IL"}.items():
            mean = (score(one, letter, "VTML80") + score(other, letter, "VTML80") + 1) // 2
            assert score(either, letter, "VTML80") == score(letter, either, "VTML80") == mean
        assert score("X", letter, "VTML80") == -1
    assert score("B", "Z", "VTML80") == 0 and score("X", "X", "VTML80") == score("B", "X", "VTML80") == -1


def test_known_blosum62_scores() -> None:
    # independent of any matrix file, to detect a wrong order of letters
    assert [score(*pair) for pair in ("WW", "CC", "AA", "LI", "DE", "WP", "XX")] == [11, 9, 4, 2, 2, -4, -1]


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ("BLOSUM45", (15, 12, 5, 2, 2, -3)),
        ("BLOSUM50", (15, 13, 5, 2, 2, -4)),
        ("BLOSUM80", (11, 9, 5, 1, 1, -5)),
        ("BLOSUM90", (11, 9, 5, 1, 1, -5)),
        ("PAM30", (13, 10, 6, -1, 2, -14)),
        ("PAM70", (13, 9, 5, 1, 3, -9)),
        ("VTML80", (11, 10, 5, 1, 2, -5)),
    ],
)
def test_known_scores_of_other_matrices(matrix: str, expected: tuple[int, ...]) -> None:
    assert tuple(score(*pair, matrix) for pair in ("WW", "CC", "AA", "LI", "DE", "WP")) == expected


@pytest.mark.parametrize("matrix", sorted(GUMBEL_TABLES.keys() - {"RNA"}))
@pytest.mark.parametrize("letter", LETTERS)
def test_letters_missing_in_a_matrix_follow_the_rules(matrix: str, letter: str) -> None:
    assert score("U", letter, matrix) == score("C", letter, matrix)
    assert score("O", letter, matrix) == score("K", letter, matrix)
    if letter != "J":
        both = score("I", letter, matrix) + score("L", letter, matrix)
        assert score("J", letter, matrix) == np.floor((both + 1) / 2)


@pytest.mark.parametrize("name", GUMBEL_TABLES)
def test_matrix_is_symmetric_and_complete(name: str) -> None:
    matrix = substitution_matrix(name)
    assert matrix.shape == (26, PROFILE_COLUMNS) and matrix.dtype == np.int16 and not matrix.flags.writeable
    np.testing.assert_array_equal(matrix[:, :26], matrix[:, :26].T)
    np.testing.assert_array_equal(matrix[:, 26:], np.repeat(matrix[:, encode("X")], 6, axis=1))


def test_unknown_matrix_is_rejected() -> None:
    with pytest.raises(ValueError, match="unknown matrix 'NUC44'"):
        substitution_matrix("NUC44")


def test_background_reproduces_published_expected_score() -> None:
    # NCBI's file gives an expected score of −0.5209 bits for unrelated residues, before rounding
    matrix, frequencies = substitution_matrix()[:, :26], background()
    assert frequencies.sum() == pytest.approx(1)
    assert frequencies @ matrix @ frequencies == pytest.approx(-1.0418, abs=0.06)
