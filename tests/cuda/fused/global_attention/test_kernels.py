"""Global attention kernels: accuracy against float64, masks, memory layout, unsupported input."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.attention import AttentionWeights
from cuda.fused.dispatch import implementation_module
from cuda.fused.global_attention import reference
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
kernels = implementation_module("global_attention", IMPLEMENTATION, DEVICE)


def random_weights(draw: Draw, channels: int, heads: int, width: int) -> AttentionWeights:
    return AttentionWeights(
        norm_scale=draw(channels, seed=8),
        norm_offset=draw(channels, seed=9),
        query=draw(channels, heads, width, seed=1, scale=channels**-0.5),
        key=draw(channels, width, seed=2, scale=channels**-0.5),
        value=draw(channels, width, seed=3, scale=channels**-0.5),
        gating=draw(channels, heads, width, seed=4, scale=channels**-0.5),
        gating_bias=draw(heads, width, seed=5),
        output=draw(heads, width, channels, seed=6, scale=(heads * width) ** -0.5),
        output_bias=draw(channels, seed=7),
    )


def check(x: torch.Tensor, weights: AttentionWeights, mask: torch.Tensor, compare: Compare) -> None:
    double = AttentionWeights(*(w.double() for w in weights))
    exact = reference.global_attention(x.double(), double, mask.double())
    result = kernels.global_attention(x, weights, mask)
    assert result.stride() == x.stride()
    compare(result, reference.global_attention(x, weights, mask), exact)


def some_mask(x: torch.Tensor) -> torch.Tensor:
    """Return [B, L] with a third of the keys masked."""
    mask = torch.ones_like(x[..., 0])
    mask[:, 1::3] = 0
    return mask


@pytest.mark.parametrize("masked", [False, True])
def test_matches_float64_for_lengths(length: int, masked: bool, draw: Draw, compare: Compare) -> None:
    x = draw(3, length, 64, tailed=True)
    mask = some_mask(x) if masked else torch.ones_like(x[..., 0])
    check(x, random_weights(draw, 64, 8, 8), mask, compare)


@pytest.mark.parametrize("length", [130, 300])
def test_swapped_axes_stay_swapped_in_memory(length: int, draw: Draw, compare: Compare) -> None:
    x = draw(length, 3, 64, tailed=True).transpose(0, 1)
    check(x, random_weights(draw, 64, 8, 8), some_mask(x).T.contiguous().T, compare)


@pytest.mark.parametrize("channels, heads, width", [(16, 1, 8), (24, 3, 5), (128, 16, 16)])
def test_matches_float64_for_channels(
    channels: int, heads: int, width: int, draw: Draw, compare: Compare
) -> None:
    x = draw(2, 33, channels, tailed=True)
    check(x, random_weights(draw, channels, heads, width), some_mask(x), compare)


@pytest.mark.parametrize("length", [1, 65, 130])
def test_fully_masked_row_averages_all_keys(length: int, draw: Draw, compare: Compare) -> None:
    x, weights = draw(3, length, 64, tailed=True), random_weights(draw, 64, 8, 8)
    mask = torch.ones_like(x[..., 0])
    mask[1] = 0
    # with zero queries every key has the same weight
    flat = weights._replace(query=torch.zeros_like(weights.query))
    double = AttentionWeights(*(w.double() for w in flat))
    exact = reference.global_attention(x[1:2].double(), double, torch.ones_like(mask[1:2]).double())
    plain = reference.global_attention(x[1:2], flat, torch.ones_like(mask[1:2]))
    compare(kernels.global_attention(x, weights, mask)[1:2], plain, exact)


def test_unsupported_input_is_rejected(draw: Draw) -> None:
    x = draw(2, 3, 64)
    with pytest.raises(ValueError, match="17 heads"):
        kernels.global_attention(x, random_weights(draw, 64, 17, 8), torch.ones_like(x[..., 0]))
