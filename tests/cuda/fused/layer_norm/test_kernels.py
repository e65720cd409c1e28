"""LayerNorm kernel: accuracy against float64, strides, unsupported input."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.dispatch import implementation_module
from cuda.fused.layer_norm import reference
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
kernels = implementation_module("layer_norm", IMPLEMENTATION, DEVICE)


def check(x: torch.Tensor, draw: Draw, compare: Compare) -> None:
    scale, offset = draw(x.shape[-1], seed=1), draw(x.shape[-1], seed=2)
    exact = reference.layer_norm(x.double(), scale.double(), offset.double())
    result = kernels.layer_norm(x, scale, offset)
    assert result.is_contiguous()
    compare(result, reference.layer_norm(x, scale, offset), exact)


@pytest.mark.parametrize("channels", [64, 128, 384])
def test_matches_float64_for_lengths(length: int, channels: int, draw: Draw, compare: Compare) -> None:
    check(draw(3, length, channels, tailed=True), draw, compare)


@pytest.mark.parametrize("channels", [1, 3, 23, 256, 257, 1024])
def test_matches_float64_for_channels(channels: int, draw: Draw, compare: Compare) -> None:
    check(draw(5, 7, channels, tailed=True), draw, compare)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x[::2, 1:],
        lambda x: x[:, 3],
        lambda x: x[2, 3],
        lambda x: x[:, :1].transpose(0, 1)[..., ::2],
        lambda x: x[:0],
    ],
)
def test_matches_float64_for_strided_input(
    view: Callable[[torch.Tensor], torch.Tensor], draw: Draw, compare: Compare
) -> None:
    x = view(draw(9, 13, 64, tailed=True))
    if x.numel():
        check(x, draw, compare)
    else:
        assert kernels.layer_norm(x, draw(64), draw(64)).shape == x.shape


def test_large_mean_keeps_precision(draw: Draw, compare: Compare) -> None:
    check(draw(33, 128) + 1000, draw, compare)


def test_unsupported_input_is_rejected(draw: Draw) -> None:
    x = draw(2, 3, 4, 64)
    scale, offset = draw(64), draw(64)
    with pytest.raises(ValueError, match="strides"):
        kernels.layer_norm(x[:, :2, :3], scale, offset)
    with pytest.raises(ValueError, match="float64"):
        kernels.layer_norm(x.double(), scale, offset)
    with pytest.raises(ValueError, match="one device and dtype"):
        kernels.layer_norm(x, scale.double(), offset)
    with pytest.raises(ValueError, match="1025 channels"):
        kernels.layer_norm(draw(2, 1025), draw(1025), draw(1025))
