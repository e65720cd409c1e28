"""Triangle multiplication with gradients: kernels against float64."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights, differentiable
from tests.cuda.fused.environment import DEVICE, INTERPRETED
from tests.cuda.fused.gradients import compare_gradients, compare_mean_errors, gradients

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
FIELDS = TriangleMultiplicationWeights._fields[2:]


def random_inputs(draw: Draw, batch: int, length: int, channels: int, width: int) -> list[torch.Tensor]:
    """Return a normalised pair representation and all weights but those of its LayerNorm."""
    c, m = channels, width
    shapes: list[tuple[int, ...]] = [*[(c, m), (m,)] * 4, (m,), (m,), (m, c), (c,), (c, c), (c,)]
    weights = [
        draw(*shape, seed=k, scale=shape[0] ** -0.5 if len(shape) > 1 else 1.0)
        for k, shape in enumerate(shapes)
    ]
    return [draw(batch, length, length, c, tailed=True).clamp(-8, 8), *weights]


def updates(inputs: list[torch.Tensor], outgoing: bool, masked: bool) -> list[Callable[..., torch.Tensor]]:
    """Return functions that compute the update in kernels and in plain PyTorch."""
    mask = torch.ones(inputs[0].shape[:3], device=DEVICE)
    if masked:
        generator = torch.Generator().manual_seed(0)
        mask = (torch.rand(mask.shape, generator=generator) > 0.3).float().to(DEVICE)

    def update(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def called(normed: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
            unused = normed[0, 0, 0]
            named = dict(zip(FIELDS, weights, strict=True))
            packed = TriangleMultiplicationWeights(norm_scale=unused, norm_offset=unused, **named)
            return function(normed, packed, mask, outgoing)

        return called

    return [update(f) for f in (differentiable.update_fused, differentiable.update_reference)]


@pytest.mark.parametrize("outgoing", [False, True])
def test_gradients_for_lengths(length: int, outgoing: bool, draw: Draw, compare: Compare) -> None:
    if INTERPRETED and length > 65:
        pytest.skip("takes minutes in the interpreter")
    inputs = random_inputs(draw, 1, length, 16, 16)
    compare_gradients(compare, *updates(inputs, outgoing, True), inputs)


@pytest.mark.parametrize("batch, channels, width", [(3, 16, 8), (2, 24, 40), (1, 64, 64), (1, 128, 128)])
def test_gradients_for_channels(batch: int, channels: int, width: int, draw: Draw, compare: Compare) -> None:
    inputs = random_inputs(draw, batch, 19, channels, width)
    compare_gradients(compare, *updates(inputs, True, False), inputs)


def test_gradients_of_long_sums_in_bfloat16(compare: Compare) -> None:
    length, count = (64, 3) if INTERPRETED else (192, 8)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int, scale: float = 1.0, **_: object) -> torch.Tensor:
        return (scale * torch.randn(shape, generator=generator)).to(DEVICE, torch.bfloat16)

    draws = [random_inputs(draw, 1, length, 64, 64) for _ in range(count)]
    update, plain = updates(draws[0], True, True)
    compare_gradients(compare, update, plain, draws[0])
    compare_mean_errors(update, plain, draws)


@pytest.mark.skipif(INTERPRETED, reason="the order of execution is fixed there")
def test_gradients_are_the_same_again(draw: Draw) -> None:
    inputs = random_inputs(draw, 2, 128, 128, 128)
    update = updates(inputs, False, True)[0]
    for first, second in zip(gradients(update, inputs), gradients(update, inputs), strict=True):
        assert torch.equal(first, second)
