"""Tests of the random numbers of multimer networks."""

import numpy as np
import pytest
import torch

from model.alphafold2.multimer.draws import PhiloxMsaDraws, gumbel_noise


def test_numbers_depend_on_seed_and_iteration_only() -> None:
    first = PhiloxMsaDraws(3, 1).rows(5)
    assert np.array_equal(first, PhiloxMsaDraws(3, 1).rows(5))
    assert not np.array_equal(first, PhiloxMsaDraws(4, 1).rows(5))
    assert not np.array_equal(first, PhiloxMsaDraws(3, 2).rows(5))
    # these must never change, since results would
    assert (first * 2**24).astype(int).tolist() == [13669599, 12416756, 8753108, 14232879, 6603863]


def test_numbers_do_not_depend_on_other_rows_or_kinds() -> None:
    draws = PhiloxMsaDraws(0, 0)
    assert np.array_equal(draws.rows(9)[:5], draws.rows(5))
    assert np.array_equal(draws.positions(6, 7)[:3], draws.positions(3, 7))
    masked = draws.positions(4, 30) < 0.15
    codes = draws.codes(masked)
    assert codes.shape == (masked.sum(), 23) and codes.dtype == np.float32
    assert not np.isin(codes, draws.rows(100)).any()


def test_numbers_are_uniform() -> None:
    numbers = PhiloxMsaDraws(1, 0).rows(100_000)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.abs(np.histogram(numbers, 20, (0, 1))[0] - 5000).max() < 400


def test_gumbel_noise_is_finite() -> None:
    noise = gumbel_noise(torch.tensor([0, 2**-24, 0.5, 1 - 2**-24]))
    assert noise.dtype == torch.float32 and noise.isfinite().all() and (noise.diff() > 0).all()


@pytest.mark.parametrize(
    ("seed", "iteration", "name"), [(-1, 0, "seed"), (2**64, 0, "seed"), (0, -1, "iter")]
)
def test_numbers_out_of_range_are_an_error(seed: int, iteration: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.* must be between 0 and"):
        PhiloxMsaDraws(seed, iteration)
