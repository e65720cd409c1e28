"""A residual connection with shared factors: results and gradients against float64."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.add_scaled import add_scaled
from tests.cuda.fused.gradients import compare_gradients

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("channels", [3, 64, 128])
def test_matches_float64(axis: int, channels: int, transposed: bool, draw: Draw, compare: Compare) -> None:
    rows, columns = (17, 17) if transposed else (5, 33)
    factors = draw(columns if axis == 1 else rows, channels, seed=4)

    def function(fused: bool) -> Callable[..., torch.Tensor]:
        def added(x: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
            update = update.transpose(1, 2) if transposed else update
            return add_scaled(x, update, factors.to(x), axis, fused=fused)

        return added

    inputs = [draw(1, rows, columns, channels, seed=seed, tailed=True) for seed in (1, 2)]
    compare_gradients(compare, function(True), function(False), inputs)
