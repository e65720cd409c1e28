"""The pair bias kernel against float64."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.attention.kernel import ROOM
from cuda.fused.pair_bias import kernel, reference

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]


def check(pair: torch.Tensor, heads: int, draw: Draw, compare: Compare) -> None:
    length, _, channels = pair.shape
    given = draw(channels, seed=1), draw(channels, seed=2), draw(channels, heads, seed=3)
    exact = reference.pair_bias(pair.double(), *(x.double() for x in given))
    ours = kernel.pair_bias(pair, *given)
    assert ours.is_contiguous() and ours.shape[-1] % ROOM == 0
    assert (ours[..., length:] == float("-inf")).all()
    compare(ours[..., :length], reference.pair_bias(pair, *given), exact)


@pytest.mark.parametrize("channels", [32, 128])
@pytest.mark.parametrize("swapped", [False, True])
def test_lengths(length: int, swapped: bool, channels: int, draw: Draw, compare: Compare) -> None:
    pair = draw(length, length, channels, tailed=True)
    # of fewer numbers the largest error is no measure where there is one position
    check(pair.transpose(0, 1) if swapped else pair, 8, draw, compare)


@pytest.mark.parametrize("channels", [8, 24, 64, 128, 256])
@pytest.mark.parametrize("heads", [1, 4, 8, 9, 17])
def test_channels_and_heads(channels: int, heads: int, draw: Draw, compare: Compare) -> None:
    check(draw(19, 19, channels, tailed=True), heads, draw, compare)


def test_strides(draw: Draw, compare: Compare) -> None:
    check(draw(37, 40, 64, tailed=True)[:, 3:40, 16:48], 4, draw, compare)


def test_what_no_kernel_takes(draw: Draw) -> None:
    scale, weights = draw(64), draw(64, 4)
    with pytest.raises(ValueError, match="contiguous"):
        kernel.pair_bias(draw(64, 5, 5).permute(1, 2, 0), scale, scale, weights)
    with pytest.raises(ValueError, match="257 channels"):
        kernel.pair_bias(draw(5, 5, 257), draw(257), draw(257), draw(257, 4))
