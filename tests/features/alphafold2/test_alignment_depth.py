"""Tests of the number of effective sequences."""

import numpy as np
import pytest

from features.alphafold2.alignment_depth import MAX_ROWS, effective_sequences, row_weights
from msa.base.residues import GAP


def test_rows_with_80_percent_identity_share_a_weight() -> None:
    msa = np.tile(np.arange(20), (3, 1))
    msa[1, :4] = 19 - msa[1, :4]  # 80 % of the first row
    msa[2, :5] = (msa[2, :5] + 7) % 20  # 75 % of the first row, 55 % of the second
    np.testing.assert_allclose(row_weights(msa), [0.5, 0.5, 1.0])
    assert effective_sequences(msa) == pytest.approx(2.0)


def test_identity_is_that_of_columns_without_gaps() -> None:
    msa = np.tile(np.arange(10), (2, 1))
    msa[1, 2:] = GAP  # two residues, both the same
    assert effective_sequences(msa) == pytest.approx(1.0)
    msa[1, :2] = [5, 6]  # both different
    assert effective_sequences(msa) == pytest.approx(2.0)
    msa[1] = GAP
    assert effective_sequences(msa) == pytest.approx(2.0)


def test_deep_alignments_count_at_most_the_compared_rows() -> None:
    msa = np.random.default_rng(0).integers(0, 20, (MAX_ROWS + 50, 60))
    assert effective_sequences(msa) == pytest.approx(MAX_ROWS)
