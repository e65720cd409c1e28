"""Gated product of a SwiGLU transition: accuracy against float64, range, unsupported input."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from cuda.fused.swiglu import differentiable, swiglu
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION
from tests.cuda.fused.gradients import compare_gradients

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]


@pytest.mark.parametrize("width", [1, 3, 256, 1536])
def test_matches_float64(width: int, length: int, draw: Draw, compare: Compare) -> None:
    x = draw(2, length, 2 * width, tailed=True, scale=2**-6)
    exact = swiglu(x.double(), 0.25, implementation="reference")
    compare(
        swiglu(x, 0.25, implementation=IMPLEMENTATION), swiglu(x, 0.25, implementation="reference"), exact
    )


@pytest.mark.parametrize("width", [1, 3, 256])
def test_gradients_match_float64(width: int, length: int, draw: Draw, compare: Compare) -> None:
    fused, plain = (partial(differentiable.swiglu, fused=fused) for fused in (True, False))
    compare_gradients(compare, fused, plain, [draw(2, length, 2 * width, tailed=True, scale=2**-6)])


def test_factor_keeps_products_in_range() -> None:
    x = torch.full((3, 4), 1000.0, dtype=torch.float16, device=DEVICE)
    assert swiglu(x, 2**-6, implementation=IMPLEMENTATION).eq(15625).all()


def test_odd_number_of_columns_is_rejected() -> None:
    with pytest.raises(ValueError, match="3 columns"):
        swiglu(torch.zeros(2, 3))
