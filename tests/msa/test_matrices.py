"""Substitution scores: the published ones, and the rules for letters that are not published."""

import numpy as np
import pytest
from Bio.Align import substitution_matrices

from msa.alphabet import LETTERS, STANDARD, encode
from msa.matrices import background, blosum62


def score(a: str, b: str) -> int:
    return int(blosum62()[LETTERS.index(a), LETTERS.index(b)])


def test_published_letters_score_as_published() -> None:
    published = substitution_matrices.load("BLOSUM62")
    for a in STANDARD + "BZX":
        for b in STANDARD + "BZX":
            assert score(a, b) == published[a][b]


def test_known_scores() -> None:
    # by heart, so that a wrong matrix file or a wrong letter order shows
    assert [score(*pair) for pair in ("WW", "CC", "AA", "LI", "DE", "WP", "XX")] == [11, 9, 4, 2, 2, -4, -1]


@pytest.mark.parametrize("letter", LETTERS)
def test_rules_for_unpublished_letters(letter: str) -> None:
    assert score("U", letter) == score("C", letter)
    assert score("O", letter) == score("K", letter)
    if letter != "J":
        assert score("J", letter) == np.floor((score("I", letter) + score("L", letter) + 1) / 2)


def test_symmetric_and_complete() -> None:
    matrix = blosum62()
    assert matrix.shape == (26, 32) and matrix.dtype == np.int16
    np.testing.assert_array_equal(matrix[:, :26], matrix[:, :26].T)
    np.testing.assert_array_equal(matrix[:, 26:], np.repeat(matrix[:, encode("X")], 6, axis=1))


def test_background_gives_the_published_expectation() -> None:
    # NCBI's file states an expected score of −0.5209 bits for unrelated residues, before scores were rounded
    matrix, frequencies = blosum62()[:, :26], background()
    assert frequencies.sum() == pytest.approx(1)
    assert frequencies @ matrix @ frequencies == pytest.approx(-1.0418, abs=0.06)
