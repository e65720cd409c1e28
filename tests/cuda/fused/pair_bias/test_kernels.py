"""Pair bias kernels: accuracy against float64, strides, unsupported input."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from cuda.fused.attention.reference import KEY_ALIGNMENT
from cuda.fused.dispatch import implementation_module
from cuda.fused.pair_bias import reference
from cuda.fused.pair_bias import triton as triton_kernels
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
kernels = implementation_module("pair_bias", IMPLEMENTATION, DEVICE)


def check(
    pair: torch.Tensor, heads: int, draw: Draw, compare: Compare, kernels: ModuleType = kernels
) -> None:
    _, length, channels = pair.shape
    layer = draw(channels, seed=1), draw(channels, seed=2), draw(channels, heads, seed=3)
    exact = reference.pair_bias(pair.double(), *(x.double() for x in layer))
    result = kernels.pair_bias(pair, *layer)
    assert result.is_contiguous() and result.shape[-1] % KEY_ALIGNMENT == 0
    assert (result[..., length:] == float("-inf")).all()
    compare(result[..., :length], reference.pair_bias(pair, *layer), exact)


@pytest.mark.parametrize("channels", [32, 128])
@pytest.mark.parametrize("swapped", [False, True])
def test_matches_float64_for_lengths(
    length: int, swapped: bool, channels: int, draw: Draw, compare: Compare
) -> None:
    pair = draw(length, length, channels, tailed=True)
    # eight heads: with one position, the maximum error of fewer numbers would be too random
    check(pair.transpose(0, 1) if swapped else pair, 8, draw, compare)


@pytest.mark.parametrize("channels", [8, 24, 64, 128, 256])
@pytest.mark.parametrize("heads", [1, 4, 8, 9, 17])
def test_matches_float64_for_channels_and_heads(
    channels: int, heads: int, draw: Draw, compare: Compare
) -> None:
    check(draw(19, 19, channels, tailed=True), heads, draw, compare)


def test_matches_float64_for_strided_input(draw: Draw, compare: Compare) -> None:
    check(draw(37, 40, 64, tailed=True)[:, 3:40, 16:48], 4, draw, compare)


def test_some_rows_of_the_pair_representation(draw: Draw, compare: Compare) -> None:
    check(draw(37, 37, 64, tailed=True)[5:12], 4, draw, compare, triton_kernels)
    check(draw(37, 37, 64).transpose(0, 1)[:1], 4, draw, compare, triton_kernels)
    assert triton_kernels.pair_bias(draw(37, 37, 64)[:0], draw(64), draw(64), draw(64, 4)).shape[:2] == (4, 0)


def test_unsupported_input_is_rejected(draw: Draw) -> None:
    scale, weights = draw(64), draw(64, 4)
    with pytest.raises(ValueError, match="contiguous"):
        kernels.pair_bias(draw(64, 5, 5).permute(1, 2, 0), scale, scale, weights)
    with pytest.raises(ValueError, match="257 channels"):
        kernels.pair_bias(draw(5, 5, 257), draw(257), draw(257), draw(257, 4))
