"""LayerNorm with gradients: kernels against float64."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.layer_norm.differentiable import layer_norm
from tests.cuda.fused.gradients import compare_gradients

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]


def check(draw: Draw, compare: Compare, view: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> None:
    inputs = [draw(*shape, tailed=True), draw(shape[-1], seed=1), draw(shape[-1], seed=2)]
    functions = (
        lambda x, *weights, fused=fused: layer_norm(view(x), *weights, fused=fused) for fused in (True, False)
    )
    compare_gradients(compare, *functions, inputs)


def test_gradients_for_lengths(length: int, draw: Draw, compare: Compare) -> None:
    check(draw, compare, lambda x: x, 3, length, 128)


@pytest.mark.parametrize("channels", [3, 23, 64, 384, 768, 1024])
def test_gradients_for_channels(channels: int, draw: Draw, compare: Compare) -> None:
    check(draw, compare, lambda x: x, 5, 7, channels)


def test_gradients_of_columns(draw: Draw, compare: Compare) -> None:
    check(draw, compare, lambda x: x.transpose(1, 2), 1, 9, 13, 64)
