"""Ranks of residues give the alignment back, whatever the profile; most of them are small for its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import ranks
from features.ranks import rank_residues, unrank_residues


def profile_of(msa: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(column, minlength=22) for column in msa.T]).astype(np.float32) / len(msa)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 23), st.integers(0, 2**32 - 1), st.booleans())
def test_alignments_of_any_shape_come_back(rows: int, columns: int, seed: int, own: bool) -> None:
    rng = np.random.default_rng(seed)
    msa = rng.integers(22, size=(rows, columns), dtype=np.int8)
    profile = profile_of(msa) if own else rng.random((columns, 22), np.float32)
    pairs, listed = rank_residues(msa, profile)
    assert pairs.shape == (rows, (columns + 1) // 2)
    back = unrank_residues(pairs, listed, profile)
    assert back.dtype == np.int8
    np.testing.assert_array_equal(back, msa)


def test_blocks_of_rows_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    msa = np.random.default_rng(0).integers(22, size=(50, 13), dtype=np.int8)
    whole = rank_residues(msa, profile_of(msa))
    monkeypatch.setattr(ranks, "_BLOCK", 40)
    for one, other in zip(whole, rank_residues(msa, profile_of(msa)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_most_common_residue_of_a_column_is_rank_zero() -> None:
    msa = np.array([[5, 21, 3], [5, 2, 3], [5, 21, 1]], np.int8)
    pairs, listed = rank_residues(msa, profile_of(msa))
    assert pairs.tolist() == [[0, 0], [1 << 4, 0], [0, 1]]
    assert len(listed) == 0


def test_high_ranks_are_listed_in_order() -> None:
    profile = np.arange(22, 0, -1, dtype=np.float32)[None].repeat(3, axis=0)
    pairs, listed = rank_residues(np.array([[21, 14, 15], [0, 16, 2]], np.int8), profile)
    assert pairs.tolist() == [[15 | 14 << 4, 15], [15 << 4, 2]]
    assert listed.tolist() == [21, 15, 16]


def test_what_does_not_belong_together_is_refused() -> None:
    msa = np.arange(22, dtype=np.int8).repeat(2).reshape(4, 11)
    profile = np.ones((11, 22), np.float32)
    pairs, listed = rank_residues(msa, profile)
    assert len(listed)
    for other in (listed[:-1], np.append(listed, listed[-1:])):
        with pytest.raises(ValueError, match="list of high ranks"):
            unrank_residues(pairs, other, profile)
    with pytest.raises(ValueError, match="list of high ranks"):
        unrank_residues(pairs, np.full_like(listed, 22), profile)
    for other in (profile[:10], profile[:, :21], np.ones((13, 22), np.float32)):
        with pytest.raises(ValueError, match="does not match its profile"):
            unrank_residues(pairs, listed, other)
