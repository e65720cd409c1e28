"""Tests of shards and their exchange, and of products of factors whose rows are divided among ranks."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.parallel.communication import Pending, Shards
from tests.model.parallel import cases
from tests.rank_processes import RankProcesses


@given(st.integers(0, 50), st.integers(1, 9))
def test_shards_cover_an_axis_in_order_and_none_is_larger_than_necessary(total: int, ranks: int) -> None:
    shards = Shards(total, ranks)
    covered = [index for part in shards.slices for index in range(total)[part]]
    assert covered == list(range(total))
    assert shards.counts == [len(range(total)[part]) for part in shards.slices]
    assert max(shards.counts) == shards.max_count == -(-total // ranks)


@pytest.mark.parametrize(
    ("shape", "pieces", "dtype"),
    [
        ((5, 7, 2), 1, torch.float32),
        ((5, 7, 2), 2, torch.bfloat16),
        ((1, 1, 3), 2, torch.bfloat16),
        ((2, 4, 1), 3, torch.float32),
    ],
)
def test_exchange_divides_the_other_axis_and_returns(
    ranks: RankProcesses, shape: tuple[int, ...], pieces: int, dtype: torch.dtype
) -> None:
    x = torch.randn(shape).to(dtype)
    size = len(ranks.processes)
    sequences, residues = Shards(shape[0], size), Shards(shape[1], size)
    results = ranks.call(cases.exchange_and_return, x, pieces)
    for rank, (columns, rows, traffic) in enumerate(results):
        own_rows, own_columns = sequences.of(rank), residues.of(rank)
        assert np.array_equal(columns, x[:, own_columns].float())
        assert np.array_equal(rows, x[own_rows].float())
        # everything but what this rank had already
        foreign = (shape[0] - sequences.counts[rank]) * residues.counts[rank] * shape[2]
        assert traffic["columns"] == (pieces, dtype.itemsize * foreign)


def test_waiting_frees_sent_tensors() -> None:
    sent, received = torch.ones(1), torch.zeros(1)
    freed = [weakref.ref(sent), weakref.ref(received)]
    pending = Pending(lambda sent=sent: None, lambda received=received: received + 1).then(lambda x: 2 * x)
    del sent, received
    # the communication itself may live longer, such as in a variable of its caller
    assert all(reference() is not None for reference in freed)
    assert pending.wait() == 2
    assert all(reference() is None for reference in freed)


def _assert_received(results: list[Any], sizes: list[list[int]], factors: list[int]) -> None:
    """Compare what ranks have received with what was sent, in each transfer."""
    for number, factor in enumerate(factors):
        for sender in range(len(sizes)):
            for receiver, sent in results[sender][number][0].items():
                received = results[receiver][number][1][sender]
                assert len(sent) == factor * sizes[sender][receiver]
                assert np.array_equal(received, sent)


def test_copies_arrive_in_order(ranks: RankProcesses, tmp_path: Path) -> None:
    size = len(ranks.processes)
    sizes = [[3 + 5 * sender + receiver for receiver in range(size)] for sender in range(size)]
    _assert_received(ranks.call(cases.copy_between_ranks, tmp_path, sizes), sizes, [0, 1, 2, 3])


def test_captured_copies_are_repeated(ranks: RankProcesses, tmp_path: Path) -> None:
    size = len(ranks.processes)
    sizes = [[3 + 5 * sender + receiver for receiver in range(size)] for sender in range(size)]
    results = ranks.call(cases.replay_copies, tmp_path, sizes, 3)
    _assert_received(results, sizes, [1] * 6)
    assert not np.array_equal(results[0][0][0][1], results[0][2][0][1])


def test_first_error_of_a_rank_is_that_of_all(ranks: RankProcesses) -> None:
    size = len(ranks.processes)
    assert ranks.call(cases.first_error, [""] * size) == [""] * size
    assert ranks.call(cases.first_error, [*[""] * (size - 1), "no"]) == [f"rank {size - 1}: no"] * size


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("by_channels", [False, True])
@pytest.mark.parametrize("outgoing", [False, True])
def test_product_of_factors(ranks: RankProcesses, outgoing: bool, by_channels: bool, pieces: int) -> None:
    for residues, padded in ((1, 1), (7, 8)):
        left, right = torch.zeros(2, 5, residues, padded)
        left[:, :, :residues], right[:, :, :residues] = torch.randn(2, 5, residues, residues)
        whole = left[:, :, :residues].double(), right[:, :, :residues].double()
        formula = "cik,cjk->cij" if outgoing else "ckj,cki->cij"
        expected = torch.einsum(formula, *whole).numpy()
        results = ranks.call(cases.multiply, left, right, outgoing, by_channels, pieces)
        product = np.concatenate(results, axis=1)[:, :, :residues]
        assert np.allclose(product, expected, rtol=1e-5, atol=1e-5)
