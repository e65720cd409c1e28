"""Bit scores and E-values against blastp's own, and the laws they obey."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msa.statistics import PUBLISHED_GAP_COSTS, bit_score, evalue, evalues, gumbel_parameters

DEFAULT = gumbel_parameters(11, 1)

# raw score, query length, target length, bits, E-value: blastp 2.12 without composition-based statistics and
# filtering, database of 28,508,078 residues
BLASTP = [
    (1007, 192, 554, 392, 4.16e-136),
    (233, 120, 239, 94.4, 1.36e-24),
    (187, 120, 226, 76.6, 6.45e-18),
    (162, 120, 246, 67.0, 3.58e-14),
    (148, 120, 228, 61.6, 2.96e-12),
    (138, 120, 1349, 57.8, 1.66e-10),
    (127, 120, 1186, 53.5, 5.00e-09),
    (127, 274, 317, 53.5, 7.20e-08),
    (99, 85, 180, 42.7, 5.97e-06),
    (99, 120, 1181, 42.7, 2.92e-05),
    (94, 120, 1550, 40.8, 1.38e-04),
    (96, 250, 2681, 41.6, 7.85e-04),
]


@pytest.mark.parametrize(("score", "query", "target", "bits", "expected"), BLASTP)
def test_equals_blastp(score: int, query: int, target: int, bits: float, expected: float) -> None:
    # blastp rounds small E-values to two digits or three, and truncates bits from 100 on
    assert evalue(score, query, target, 28_508_078, DEFAULT) == pytest.approx(expected, rel=0.06)
    own = bit_score(score, DEFAULT)
    assert own == pytest.approx(bits, abs=0.051) if bits < 99.95 else math.floor(own) == bits


@given(st.integers(1, 2000), st.integers(2, 3000), st.integers(1, 40_000))
def test_falls_with_the_score_and_grows_with_the_database(score: int, query: int, target: int) -> None:
    one = evalue(score, query, target, 10**6, DEFAULT)
    assert 0 <= evalue(score + 1, query, target, 10**6, DEFAULT) <= one
    assert evalue(score, query, target, 2 * 10**6, DEFAULT) == pytest.approx(2 * one)


@given(st.integers(1, 500), st.integers(2, 3000), st.integers(1, 5000))
def test_longer_queries_have_more_room(score: int, query: int, target: int) -> None:
    one = evalue(score, query, target, 10**6, DEFAULT)
    assert evalue(score, query + 1, target, 10**6, DEFAULT) >= one


def test_without_edges_it_is_karlin_and_altschuls() -> None:
    m, n, score = 10**7, 10**7, 60
    plain = DEFAULT.k * m * n * math.exp(-DEFAULT.lambda_ * score)
    assert evalue(score, m, n, n, DEFAULT) == pytest.approx(plain, rel=1e-4)


def test_gap_costs_without_published_parameters_are_refused() -> None:
    assert (11, 1) in PUBLISHED_GAP_COSTS
    with pytest.raises(ValueError, match="11/3; there are 6/2"):
        gumbel_parameters(11, 3)


def test_each_of_many_as_alone() -> None:
    scores, lengths = np.array([1, 40, 90, 3000]), np.array([30, 11, 4000, 700])
    together = evalues(scores, 76, lengths, 10**8, DEFAULT)
    alone = [evalue(s, 76, n, 10**8, DEFAULT) for s, n in zip(scores.tolist(), lengths.tolist(), strict=True)]
    assert together.tolist() == alone and evalues(scores[:0], 76, lengths[:0], 10**8, DEFAULT).shape == (0,)
