"""The query profile, with and without the correction for local composition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msa.alphabet import LETTERS, STANDARD, encode
from msa.profile.matrices import background, blosum62
from msa.profile.pssm import composition_bias, query_profile

sequences = st.text(alphabet=LETTERS, min_size=1, max_size=120)


def bias_by_definition(sequence: str) -> list[float]:
    """Mean score against the background minus mean score against the neighbours, one residue at a time."""
    matrix, codes = blosum62(), encode(sequence)
    result = []
    for i, residue in enumerate(codes):
        first, end = max(0, i - 20), min(len(codes), i + 20)
        neighbours = sum(int(matrix[residue, codes[j]]) for j in range(first, end) if j != i)
        expected = sum(background()[a] * float(matrix[residue, a]) for a in range(len(STANDARD)))
        result.append(expected - neighbours / (end - first))
    return result


@given(sequences)
def test_bias_is_its_definition(sequence: str) -> None:
    np.testing.assert_allclose(composition_bias(encode(sequence)), bias_by_definition(sequence), atol=1e-9)


@given(sequences)
def test_uncorrected_profile_is_rows_of_the_matrix(sequence: str) -> None:
    np.testing.assert_array_equal(query_profile(encode(sequence), False), blosum62()[encode(sequence)])


@given(sequences)
def test_corrected_profile_shifts_rows_by_whole_half_bits(sequence: str) -> None:
    shift = query_profile(encode(sequence)).astype(int) - blosum62()[encode(sequence)]
    assert (shift == shift[:, :1]).all()
    assert (np.abs(shift[:, 0] - composition_bias(encode(sequence))) <= 0.5 + 1e-9).all()


def test_halves_round_away_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = np.array([0.5, -0.5, 1.5, -1.5, 0.49, -0.49])
    monkeypatch.setattr("msa.profile.pssm.composition_bias", lambda codes, matrix: wanted)
    shift = query_profile(encode("AAAAAA")) - blosum62()[encode("AAAAAA")]
    assert shift[:, 0].tolist() == [1, -1, 2, -2, 0, 0]


def test_a_repeat_is_worth_less_than_the_same_residues_apart() -> None:
    lone = query_profile(encode("ACDEFGHIKLMNPQRSTVWYACDEFGHIKLMNPQRSTVWY"))
    repeat = query_profile(encode("E" * 40))
    e = LETTERS.index("E")
    assert repeat[20, e] < lone[3, e] - 3


def test_is_what_kernels_take() -> None:
    profile = query_profile(encode("MKV"))
    assert profile.shape == (3, 32) and profile.dtype == np.int16 and profile.flags.c_contiguous
