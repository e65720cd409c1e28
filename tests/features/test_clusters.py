"""Clusters against loops in double precision."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.clusters import nearest_rows, summarize_clusters
from features.residues import GAP


def random_rows(rng: np.random.Generator, rows: int, length: int, codes: int) -> np.ndarray:
    # few kinds of residues, so that ties and empty agreements come up
    return rng.choice([0, 5, 20, 21, 22][: 3 + codes - 21], (rows, length)).astype(np.int8)


@given(st.integers(1, 9), st.integers(0, 11), st.integers(1, 13), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_nearest_rows_agree_in_most_residues_and_the_first_of_ties_wins(
    centres: int, others: int, length: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    msa, rest = random_rows(rng, centres, length, 23), random_rows(rng, others, length, 22)
    expected = []
    for row in rest:
        agreement = [sum(a == b and a < 21 for a, b in zip(row, centre, strict=True)) for centre in msa]
        expected.append(agreement.index(max(agreement)))
    assert nearest_rows(msa, rest).tolist() == expected


@given(st.integers(1, 6), st.integers(0, 20), st.integers(1, 7), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_summaries_are_means_over_centre_and_members(
    centres: int, others: int, length: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    msa, rest = random_rows(rng, centres, length, 23), random_rows(rng, others, length, 22)
    deletions, rest_deletions = (rng.poisson(0.7, rows.shape).astype(np.uint16) for rows in (msa, rest))
    assignment = rng.integers(centres, size=others)
    profile, mean = summarize_clusters(msa, deletions, rest, rest_deletions, assignment)
    assert profile.dtype == mean.dtype == np.float32
    for cluster in range(centres):
        members = np.concatenate([msa[[cluster]], rest[assignment == cluster]])
        counts = np.concatenate([deletions[[cluster]], rest_deletions[assignment == cluster]])
        # 1e-6 is the published guard against division by zero
        one_hot = np.eye(23)[members].sum(axis=0) / (len(members) + 1e-6)
        np.testing.assert_allclose(profile[cluster], one_hot, rtol=2e-7)
        np.testing.assert_allclose(mean[cluster], counts.sum(axis=0) / (len(members) + 1e-6), rtol=1e-6)


@pytest.mark.parametrize("length", [254, 255, 256, 511, 1021])
def test_long_rows_agree_in_more_columns_than_a_byte_counts(length: int) -> None:
    rng = np.random.default_rng(length)
    msa = rng.integers(22, size=(5, length)).astype(np.int8)
    rest = msa[[4, 2, 0, 3, 1]].copy()
    rest[:, ::97] = GAP
    assert nearest_rows(msa, rest).tolist() == [4, 2, 0, 3, 1]
    whole = np.zeros((3, length), np.int8)
    whole[1:, -1] = GAP
    assert nearest_rows(whole[::-1], np.zeros((1, length), np.int8)).tolist() == [2]
