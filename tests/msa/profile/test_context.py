"""Tests of the context model: its definition, and the profiles computed from it."""

import importlib.resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import LETTERS, STANDARD, encode
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.context import context_frequencies, family_context_frequencies
from msa.profile.family_profile import family_profile
from msa.profile.gumbel import GUMBEL_TABLES, gumbel_parameters
from msa.profile.matrices import background, substitution_matrix
from msa.profile.pssm import query_profile
from msa.profile.statistics import evalues
from msa.search.scoring.further_alignments import SECOND_MATRIX

sequences = st.text(alphabet=STANDARD, min_size=1, max_size=60)


def reference_frequencies(observed: np.ndarray) -> np.ndarray:
    """Compute the frequencies of homologs position by position, from the definition of the network."""
    with importlib.resources.files("msa.profile").joinpath("context_model.npz").open("rb") as file:
        arrays = {name: array.astype(np.float64) for name, array in np.load(file).items()}
    neighbours, rows = len(arrays["embedding"]) // 2, []
    for i in range(len(observed)):
        hidden = arrays["bias"].copy()
        for offset, weights in enumerate(arrays["embedding"]):
            j = i + offset - neighbours
            hidden += observed[j] @ weights[:20] if 0 <= j < len(observed) else weights[20]
        odds = observed[i] @ np.exp(arrays["base"][:20])
        odds = odds * np.exp(np.maximum(hidden, 0) @ arrays["output"])
        rows.append(background()[:20] * odds)
    return np.array([row / row.sum() for row in rows])


@settings(deadline=None, max_examples=30)
@given(sequences)
def test_frequencies_of_a_sequence_equal_the_definition(sequence: str) -> None:
    codes = encode(sequence)
    expected = reference_frequencies(np.eye(20)[codes])
    np.testing.assert_allclose(context_frequencies(codes), expected, rtol=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_frequencies_of_a_family_equal_the_definition(seed: int, length: int) -> None:
    observed = np.random.default_rng(seed).dirichlet(np.full(20, 0.2), length)
    np.testing.assert_allclose(
        family_context_frequencies(observed), reference_frequencies(observed), rtol=1e-9
    )


def test_long_sequences_are_computed_in_parts_without_seams() -> None:
    codes = np.random.default_rng(0).integers(0, 20, 3000).astype(np.uint8)
    whole = context_frequencies(codes)
    # ten neighbours on either side
    np.testing.assert_allclose(whole[1010:1990], context_frequencies(codes[1000:2000])[10:990], rtol=1e-9)
    np.testing.assert_allclose(whole, family_context_frequencies(np.eye(20)[codes]), rtol=1e-9)


def test_profile_is_the_log_odds_in_half_bits() -> None:
    codes = encode("MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ")
    odds = np.log(context_frequencies(codes) / background()[:20]) / GUMBEL_TABLES["CONTEXT"].ungapped_lambda
    profile = query_profile(codes, False, "CONTEXT")
    np.testing.assert_array_equal(profile[:, :20], np.floor(odds + 0.5))
    assert profile.dtype == np.int16 and profile.shape == (len(codes), 32) and profile.flags.c_contiguous


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet=LETTERS, min_size=1, max_size=60))
def test_letters_other_than_the_standard_twenty(sequence: str) -> None:
    codes = encode(sequence)
    profile = query_profile(codes, False, "CONTEXT")
    for i, letter in enumerate(sequence):
        if letter in "XBZJ":
            np.testing.assert_array_equal(profile[i], substitution_matrix()[codes[i]])
    replaced = sequence.replace("U", "C").replace("O", "K")
    np.testing.assert_array_equal(profile, query_profile(encode(replaced), False, "CONTEXT"))


def test_profiles_may_be_changed_by_the_caller() -> None:
    codes = encode("MKTAYIAKQR")
    first = query_profile(codes, False, "CONTEXT")
    first[:] = 0
    assert query_profile(codes, False, "CONTEXT").any()


def test_family_of_one_sequence_has_its_profile() -> None:
    codes = encode("MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ")
    # with a single row, the share of pseudocounts is 1
    alone = family_profile(codes[None], False, "CONTEXT")
    np.testing.assert_array_equal(alone, query_profile(codes, False, "CONTEXT"))


@pytest.mark.parametrize("residue", "EKALSG")
def test_composition_alone_is_not_evidence(residue: str) -> None:
    """In a sequence of one amino acid, this residue scores less than in a protein."""
    protein = encode("MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVK")
    code = STANDARD.index(residue)
    repeated = query_profile(encode(residue * 60), False, "CONTEXT")[20:40, code].mean()
    in_protein = query_profile(protein, False, "CONTEXT")[protein == code, code].mean()
    assert repeated < in_protein


def test_chance_scores_are_as_frequent_as_the_statistics_say() -> None:
    rng, length, count = np.random.default_rng(0), 300, 500
    # Robinson & Robinson, PNAS 88:8880, 1991, in the order of STANDARD
    frequencies = np.array(
        [7805, 5129, 4487, 5364, 1925, 4264, 6295, 7377, 2199, 5142,
         9019, 5744, 2243, 3856, 5203, 7120, 5841, 1330, 3216, 6441]
    )  # fmt: skip
    sequences = rng.choice(20, (count + 20, length), p=frequencies / frequencies.sum()).astype(np.uint8)
    targets, lengths = SequenceArrays.concatenate(list(sequences[20:])), np.full(count, length)
    parameters, values = gumbel_parameters(12, 1, "CONTEXT"), []
    for query in sequences[:20]:
        scores = alignment_scores(query_profile(query, False, "CONTEXT"), targets, np.arange(count), 12, 1)
        # each target is a database by itself
        values.append(evalues(scores, length, lengths, length, parameters))
    found = np.concatenate(values)
    for limit in (0.02, 0.1):
        assert 0.75 < (found <= limit).mean() / limit < 1.25


def test_all_gap_costs_have_statistics_for_the_second_matrix_too() -> None:
    assert set(GUMBEL_TABLES["CONTEXT"].gapped) <= set(GUMBEL_TABLES[SECOND_MATRIX].gapped)
