"""Tests of query profiles, with and without the correction for local composition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import LETTERS, STANDARD, encode
from msa.profile.matrices import background, substitution_matrix
from msa.profile.pssm import composition_bias, query_profile

sequences = st.text(alphabet=LETTERS, min_size=1, max_size=120)


def reference_bias(sequence: str) -> list[float]:
    """Compute the mean score against the background minus that against the neighbours, residue by residue."""
    matrix, codes = substitution_matrix(), encode(sequence)
    result = []
    for i, residue in enumerate(codes):
        first, end = max(0, i - 20), min(len(codes), i + 20)
        neighbours = sum(int(matrix[residue, codes[j]]) for j in range(first, end) if j != i)
        expected = sum(background()[a] * float(matrix[residue, a]) for a in range(len(STANDARD)))
        result.append(expected - neighbours / (end - first))
    return result


@settings(deadline=None)
@given(sequences)
def test_bias_equals_reference(sequence: str) -> None:
    np.testing.assert_allclose(composition_bias(encode(sequence)), reference_bias(sequence), atol=1e-9)


@settings(deadline=None)
@given(sequences)
def test_uncorrected_profile_consists_of_matrix_rows(sequence: str) -> None:
    codes = encode(sequence)
    np.testing.assert_array_equal(query_profile(codes, False), substitution_matrix()[codes])


@settings(deadline=None)
@given(sequences)
def test_corrected_profile_shifts_rows_by_whole_half_bits(sequence: str) -> None:
    codes = encode(sequence)
    shift = query_profile(codes).astype(int) - substitution_matrix()[codes]
    assert (shift == shift[:, :1]).all()
    assert (np.abs(shift[:, 0] - composition_bias(codes)) <= 0.5 + 1e-9).all()


def test_halves_round_away_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    bias = np.array([0.5, -0.5, 1.5, -1.5, 0.49, -0.49])
    monkeypatch.setattr("msa.profile.pssm.composition_bias", lambda codes, matrix: bias)
    codes = encode("AAAAAA")
    shift = query_profile(codes) - substitution_matrix()[codes]
    assert shift[:, 0].tolist() == [1, -1, 2, -2, 0, 0]


def test_repeated_residues_score_less_than_scattered_ones() -> None:
    scattered = query_profile(encode("ACDEFGHIKLMNPQRSTVWYACDEFGHIKLMNPQRSTVWY"))
    repeated = query_profile(encode("E" * 40))
    e = LETTERS.index("E")
    assert repeated[20, e] < scattered[3, e] - 3


def test_profile_layout_is_as_kernels_expect() -> None:
    profile = query_profile(encode("MKV"))
    assert profile.shape == (3, 32) and profile.dtype == np.int16 and profile.flags.c_contiguous
