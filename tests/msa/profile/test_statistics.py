"""Tests of bit scores and E-values: values reported by blastp, and mathematical properties."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import STANDARD
from msa.engines.search_settings import default_gap_costs
from msa.profile.gumbel import GUMBEL_TABLES, GumbelParameters, family_matrix, gumbel_parameters
from msa.profile.matrices import background, substitution_matrix
from msa.profile.statistics import (
    CHANCE_FRACTION,
    MAX_TABULATED_SCORE,
    bit_scores,
    corrected_scores,
    evalues,
    length_factors,
    max_filtered_lengths,
    max_target_lengths,
    reversed_excess,
)

DEFAULT = gumbel_parameters(11, 1)


def bit_score(score: int, parameters: GumbelParameters) -> float:
    return float(bit_scores(np.array([score]), parameters)[0])


def evalue(
    score: int, query_length: int, target_length: int, database_residues: int, parameters: GumbelParameters
) -> float:
    arrays = np.array([score]), query_length, np.array([target_length])
    return float(evalues(*arrays, database_residues, parameters)[0])


# matrix, gap costs, raw score, query length, target length, bits and E-value of blastp 2.12 without
# composition-based statistics and filtering
BLASTP = [
    ("BLOSUM62", (11, 1), 1007, 192, 554, 392, 4.16e-136),
    ("BLOSUM62", (11, 1), 233, 120, 239, 94.4, 1.36e-24),
    ("BLOSUM62", (11, 1), 187, 120, 226, 76.6, 6.45e-18),
    ("BLOSUM62", (11, 1), 162, 120, 246, 67.0, 3.58e-14),
    ("BLOSUM62", (11, 1), 148, 120, 228, 61.6, 2.96e-12),
    ("BLOSUM62", (11, 1), 138, 120, 1349, 57.8, 1.66e-10),
    ("BLOSUM62", (11, 1), 127, 120, 1186, 53.5, 5.00e-09),
    ("BLOSUM62", (11, 1), 127, 274, 317, 53.5, 7.20e-08),
    ("BLOSUM62", (11, 1), 99, 85, 180, 42.7, 5.97e-06),
    ("BLOSUM62", (11, 1), 99, 120, 1181, 42.7, 2.92e-05),
    ("BLOSUM62", (11, 1), 94, 120, 1550, 40.8, 1.38e-04),
    ("BLOSUM62", (11, 1), 96, 250, 2681, 41.6, 7.85e-04),
    ("BLOSUM45", (14, 2), 1030, 498, 570, 294.0, 4.33e-97),
    ("BLOSUM45", (14, 2), 130, 274, 290, 41.5, 2.95e-05),
    ("BLOSUM45", (14, 2), 66, 75, 402, 23.5, 2.5),
    ("BLOSUM50", (13, 2), 991, 150, 150, 280.0, 4.42e-100),
    ("BLOSUM50", (13, 2), 113, 120, 123, 36.3, 0.000124),
    ("BLOSUM50", (13, 2), 71, 121, 123, 24.6, 2.6),
    ("BLOSUM80", (10, 1), 663, 123, 123, 289.0, 3.22e-99),
    ("BLOSUM80", (10, 1), 80, 120, 116, 38.3, 0.000188),
    ("BLOSUM80", (10, 1), 50, 79, 188, 25.4, 2.0),
    ("BLOSUM90", (10, 1), 798, 498, 570, 337.0, 2.02e-100),
    ("BLOSUM90", (10, 1), 72, 116, 105, 33.9, 0.005),
    ("BLOSUM90", (10, 1), 50, 73, 258, 24.7, 3.3),
    ("PAM30", (9, 1), 695, 92, 92, 297.0, 1.93e-99),
    ("PAM30", (9, 1), 64, 250, 493, 30.3, 0.45),
    ("PAM30", (9, 1), 54, 138, 337, 26.1, 4.4),
    ("PAM70", (10, 1), 690, 107, 107, 293.0, 2.22e-98),
    ("PAM70", (10, 1), 62, 116, 57, 29.5, 0.13),
    ("PAM70", (10, 1), 53, 116, 346, 25.7, 4.1),
]
DATABASE_RESIDUES = dict.fromkeys(GUMBEL_TABLES, 2_821_807) | {"BLOSUM62": 28_508_078}


@pytest.mark.parametrize(("matrix", "gap_costs", "score", "query", "target", "bits", "expected"), BLASTP)
def test_bit_scores_and_evalues_equal_blastp(
    matrix: str,
    gap_costs: tuple[int, int],
    score: int,
    query: int,
    target: int,
    bits: float,
    expected: float,
) -> None:
    parameters = gumbel_parameters(*gap_costs, matrix)
    # blastp rounds E-values to two or three digits, and truncates bits from 100 on
    relative = 0.06 if matrix == "BLOSUM62" else 0.05
    found = evalue(score, query, target, DATABASE_RESIDUES[matrix], parameters)
    assert found == pytest.approx(expected, rel=relative)
    own = bit_score(score, parameters)
    assert own == pytest.approx(bits, abs=0.051) if bits < 99.95 else math.floor(own) == bits


@pytest.mark.parametrize("matrix", GUMBEL_TABLES)
def test_ungapped_lambda_solves_karlin_and_altschuls_equation(matrix: str) -> None:
    # residue frequencies of Robinson & Robinson, per 1000
    per_mille = dict(
        zip(
            "ARNDCQEGHILKMFPSTWYV",
            (78.05, 51.29, 44.87, 53.64, 19.25, 42.64, 62.95, 73.77, 21.99, 51.42,
             90.19, 57.44, 22.43, 38.56, 52.03, 71.20, 58.41, 13.30, 32.16, 64.41),
            strict=True,
        )
    )  # fmt: skip
    frequencies = np.array([per_mille[letter] for letter in STANDARD]) / 1000
    frequencies = background(matrix)[:20] if matrix == "RNA" else frequencies
    scores = substitution_matrix(matrix)[:20, :20]
    odds = np.exp(GUMBEL_TABLES[matrix].ungapped_lambda * scores)
    assert frequencies @ odds @ frequencies == pytest.approx(1, abs=1e-3)


def test_families_have_the_gap_costs_of_blosum62_with_context_scores() -> None:
    assert default_gap_costs("CONTEXT") == (12, 1, 10)
    assert default_gap_costs("BLOSUM62") == (11, 1, 10)


@pytest.mark.parametrize("matrix", GUMBEL_TABLES)
def test_default_gap_costs_have_statistics(matrix: str) -> None:
    gap_open, gap_extend, profile_gap_open = default_gap_costs(matrix)
    for cost, name in ((gap_open, matrix), (profile_gap_open, family_matrix(matrix))):
        assert 0 < gumbel_parameters(cost, gap_extend, name).lambda_ < GUMBEL_TABLES[matrix].ungapped_lambda


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(2, 3000), st.integers(1, 40_000))
def test_evalue_falls_with_score_and_is_proportional_to_database_size(
    score: int, query: int, target: int
) -> None:
    one = evalue(score, query, target, 10**6, DEFAULT)
    assert 0 <= evalue(score + 1, query, target, 10**6, DEFAULT) <= one
    assert evalue(score, query, target, 2 * 10**6, DEFAULT) == pytest.approx(2 * one)


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(2, 3000), st.integers(1, 5000))
def test_evalue_does_not_fall_with_query_length(score: int, query: int, target: int) -> None:
    one = evalue(score, query, target, 10**6, DEFAULT)
    assert evalue(score, query + 1, target, 10**6, DEFAULT) >= one


def test_evalue_of_long_sequences_equals_karlin_and_altschuls_formula() -> None:
    m, n, score = 10**7, 10**7, 60
    plain = DEFAULT.k * m * n * math.exp(-DEFAULT.lambda_ * score)
    assert evalue(score, m, n, n, DEFAULT) == pytest.approx(plain, rel=1e-4)


def test_unknown_matrix_or_gap_costs_are_rejected() -> None:
    with pytest.raises(ValueError, match="unknown matrix 'PAM250': choose from CONTEXT, BLOSUM62, "):
        gumbel_parameters(11, 1, "PAM250")
    with pytest.raises(ValueError, match="for PAM30 with gap costs 11/1: choose from 5/2"):
        gumbel_parameters(11, 1, "PAM30")
    with pytest.raises(ValueError, match="11/3: choose from 6/2"):
        gumbel_parameters(11, 3)


def test_array_of_evalues_equals_single_ones() -> None:
    scores, lengths = np.array([1, 40, 90, 3000]), np.array([30, 11, 4000, 700])
    array = evalues(scores, 76, lengths, 10**8, DEFAULT)
    single = [
        evalue(s, 76, n, 10**8, DEFAULT) for s, n in zip(scores.tolist(), lengths.tolist(), strict=True)
    ]
    assert array.tolist() == single and evalues(scores[:0], 76, lengths[:0], 10**8, DEFAULT).shape == (0,)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 2**32),
    st.integers(2, 200_000),
    st.integers(-12, 4),
    st.sampled_from(sorted(GUMBEL_TABLES)),
)
def test_no_target_below_a_limit_is_too_long(seed: int, query: int, exponent: int, matrix: str) -> None:
    rng = np.random.default_rng(seed)
    longest_target = rng.choice([500, 3000, 10**6])
    scores, lengths = rng.integers(1, 400, 300), rng.integers(2, longest_target, 300).astype(np.int32)
    for gap_costs in GUMBEL_TABLES[matrix].gapped:
        parameters, limit = gumbel_parameters(*gap_costs, matrix), 10.0**exponent
        values = evalues(scores, query, lengths, 10**9, parameters)
        longest = max_target_lengths(query, 10**9, parameters, limit)[np.minimum(scores, MAX_TABULATED_SCORE)]
        assert (lengths <= longest)[values <= limit].all()


def test_numbers_of_each_pair_give_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    queries, lengths, scores = (rng.integers(1, high, 60) for high in (900, 2000, 150))
    k, fractions = rng.choice([0.041, 0.1], 60), rng.choice([0.04, 0.2], 60)
    together = evalues(scores, queries, lengths, 10**8, DEFAULT, k=k)
    excess = reversed_excess(scores, queries, lengths, DEFAULT, fractions)
    for row in range(60):
        pair, own = slice(row, row + 1), replace(DEFAULT, k=float(k[row]))
        (expected,) = evalues(scores[pair], int(queries[row]), lengths[pair], 10**8, own)
        assert together[row] == expected
        numbers = int(queries[row]), lengths[pair], DEFAULT, float(fractions[row])
        assert excess[row] == reversed_excess(scores[pair], *numbers)[0]
    assert (excess > 0).any()


@pytest.mark.filterwarnings("error")
def test_lengths_of_a_truncated_file_are_harmless() -> None:
    scores, lengths = np.array([50, 60]), np.array([0, 100])
    assert np.isfinite(evalues(scores, 100, lengths, 1000, DEFAULT)).all()


def test_long_targets_need_high_scores() -> None:
    longest = max_target_lengths(200, 10**9, DEFAULT, 1e-3)
    # for 1,000 residues, E is about 10 at a score of 80, and 1e-3 at 110
    assert (longest[:90] < 400).all() and (np.diff(longest) >= 0).all() and longest[130] > 10**6
    assert (max_target_lengths(200, 10**9, DEFAULT, math.inf) > 10**6).all()


@pytest.mark.parametrize("typical", [math.inf, 400.0])
@pytest.mark.parametrize("matrix", ["BLOSUM62", "CONTEXT"])
def test_longest_targets_are_hardly_longer_than_necessary(matrix: str, typical: float) -> None:
    """Also where alignments of mean length are longer than the query."""
    parameters = gumbel_parameters(*GUMBEL_TABLES[matrix].default_gap_costs, matrix)
    scores, lengths = np.meshgrid(np.arange(30, 150), np.geomspace(30, 3000, 80).astype(np.int64))
    scores, lengths = scores.ravel(), lengths.ravel()
    for query in (60, 150, 400):
        values = evalues(scores, query, lengths, 10**9, parameters) * length_factors(lengths, typical)
        may_pass = lengths <= max_target_lengths(query, 10**9, parameters, 1.0, typical)[scores]
        assert may_pass[values <= 1].all()
        assert 0 <= may_pass.sum() - (values <= 1).sum() < 0.05 * len(scores)


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(0, 9000), st.integers(2, 3000), st.integers(1, 5000))
def test_reversed_score_above_threshold_is_subtracted(
    score: int, reverse: int, query: int, target: int
) -> None:
    one = np.array([score]), np.array([reverse]), query, np.array([target]), DEFAULT
    (corrected,) = corrected_scores(*one).tolist()
    # the threshold is the first score that less than one in five pairs is expected to reach
    log_pairs = max(math.log(DEFAULT.k * query * target / 0.2), 9)
    threshold = next(y for y in range(600) if DEFAULT.lambda_ * y >= log_pairs)
    assert corrected == max(score - max(0, reverse - threshold), 0)
    assert corrected_scores(*one, weight=2).tolist() == [max(score - 2 * max(0, reverse - threshold), 0)]
    # a fifth of the fraction of pairs is a fifth of the E-value
    rare = next(y for y in range(600) if DEFAULT.lambda_ * y >= log_pairs + math.log(5))
    excess = reversed_excess(one[1], query, one[3], DEFAULT, CHANCE_FRACTION / 5)
    assert excess.tolist() == [max(0, reverse - rare)]
    assert math.isfinite(evalue(corrected, query, target, 10**9, DEFAULT))


@pytest.mark.parametrize("fraction", [CHANCE_FRACTION, CHANCE_FRACTION / 5])
def test_no_threshold_is_skipped(fraction: float) -> None:
    scores = np.arange(100)
    for query, target in ((2, 2), (30, 40), (150, 300), (900, 2000)):
        pairs = max(DEFAULT.k * query * target, 0.2 * math.exp(9)) / fraction
        threshold = math.ceil(math.log(pairs) / DEFAULT.lambda_)
        excess = reversed_excess(scores, query, np.full(100, target), DEFAULT, fraction)
        assert excess.tolist() == np.maximum(scores - threshold, 0).tolist()


def chance_targets(query_length: int, target_length: int, targets: int, score: int, matrix: str) -> float:
    """Return the expected number of targets of a length that reach a score by chance."""
    exponent = GUMBEL_TABLES[matrix].ungapped_lambda * score
    return 0.134 * query_length * target_length * targets * math.exp(-exponent)


@pytest.mark.parametrize("matrix", ["CONTEXT", "BLOSUM45"])
@pytest.mark.parametrize(
    ("query_length", "of_family", "allowed"),
    [(60, False, 4000), (160, False, 4000), (400, False, 10_000), (60, True, 6000), (400, True, 15_000)],
)
def test_longest_target_is_reached_by_this_many_by_chance(
    query_length: int, of_family: bool, allowed: int, matrix: str
) -> None:
    longest = max_filtered_lengths(query_length, 10**6, matrix, of_family)
    for score in (40, 60, 80):
        length = int(longest[score])
        assert length >= 1
        assert chance_targets(query_length, length, 10**6, score, matrix) <= allowed
        assert chance_targets(query_length, length + 1, 10**6, score, matrix) > allowed


def test_limit_grows_with_the_score_up_to_any_length() -> None:
    longest = max_filtered_lengths(100, 10**8, "CONTEXT", False)
    assert longest.dtype == np.int32
    assert longest[0] == 0 and longest[-1] == 2**31 - 1
    assert (np.diff(longest.astype(np.int64)) >= 0).all()


@pytest.mark.parametrize("targets", [0, 1, 100])
def test_few_targets_pass_with_any_length_of_a_protein(targets: int) -> None:
    assert (max_filtered_lengths(300, targets, "CONTEXT", False)[15:] > 100).all()
