"""Tests of shards and their exchange, and of products of factors whose rows are divided among ranks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.parallel.communication import Shards
from tests.model.parallel import cases
from tests.rank_processes import RankProcesses


@given(st.integers(0, 50), st.integers(1, 9))
def test_shards_cover_an_axis_in_order_and_none_is_larger_than_necessary(total: int, ranks: int) -> None:
    shards = Shards(total, ranks)
    covered = [index for part in shards.slices for index in range(total)[part]]
    assert covered == list(range(total))
    assert shards.counts == [len(range(total)[part]) for part in shards.slices]
    assert max(shards.counts) == shards.size == -(-total // ranks)


@pytest.mark.parametrize("shape", [(5, 7, 2), (1, 1, 3), (2, 4, 1)])
def test_exchange_divides_the_other_axis_and_returns(ranks: RankProcesses, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    size = len(ranks.processes)
    sequences, residues = Shards(shape[0], size), Shards(shape[1], size)
    results = ranks.call(cases.exchange_and_return, x)
    for rank, (columns, rows, traffic) in enumerate(results):
        own_rows, own_columns = sequences.of(rank), residues.of(rank)
        assert np.array_equal(columns, x[:, own_columns])
        assert np.array_equal(rows, x[own_rows])
        # everything but what this rank had already
        foreign = (shape[0] - sequences.counts[rank]) * residues.counts[rank] * shape[2]
        assert traffic["columns"] == (1, 4 * foreign)


@pytest.mark.parametrize("by_channels", [False, True])
@pytest.mark.parametrize("outgoing", [False, True])
def test_product_of_factors(ranks: RankProcesses, outgoing: bool, by_channels: bool) -> None:
    for residues, padded in ((1, 1), (7, 8)):
        left, right = torch.zeros(2, 5, residues, padded)
        left[:, :, :residues], right[:, :, :residues] = torch.randn(2, 5, residues, residues)
        whole = left[:, :, :residues].double(), right[:, :, :residues].double()
        formula = "cik,cjk->cij" if outgoing else "ckj,cki->cij"
        expected = torch.einsum(formula, *whole).numpy()
        results = ranks.call(cases.multiply, left, right, outgoing, by_channels)
        product = np.concatenate(results, axis=1)[:, :, :residues]
        assert np.allclose(product, expected, rtol=1e-5, atol=1e-5)
