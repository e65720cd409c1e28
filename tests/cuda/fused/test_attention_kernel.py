"""The attention kernels against float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cuda.fused.attention import AttentionWeights, kernel, reference
from cuda.fused.blocks import INTERPRETED
from cuda.fused.layer_norm import layer_norm

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
Weights = AttentionWeights


def weights_of(draw: Draw, channels: int, heads: int, width: int, shared_key: bool = False) -> Weights:
    key = (channels, width) if shared_key else (channels, heads, width)
    query, gating = (draw(channels, heads, width, seed=k, scale=channels**-0.5) for k in (1, 4))
    return AttentionWeights(
        norm_scale=draw(channels, seed=8),
        norm_offset=draw(channels, seed=9),
        query=query,
        key=draw(*key, seed=2, scale=channels**-0.5),
        value=draw(*key, seed=3, scale=channels**-0.5),
        gating=gating,
        gating_bias=draw(heads, width, seed=5),
        output=draw(heads, width, channels, seed=6, scale=(heads * width) ** -0.5),
        output_bias=draw(channels, seed=7),
    )


def some_mask(x: torch.Tensor) -> torch.Tensor:
    """[B, L] with about a third of the keys masked, but no row without any."""
    mask = (torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(x.shape[1])) > 0.3).to(x)
    mask[:, x.shape[1] // 2] = 1
    return mask


def double(x: Any) -> Any:
    if isinstance(x, AttentionWeights):
        return AttentionWeights(*(w.double() for w in x))
    return None if x is None else x.double()


def check(compare: Compare, *arguments: Any) -> None:
    exact = reference.attention(*map(double, arguments))
    compare(kernel.attention(*arguments), reference.attention(*arguments), exact)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_lengths(length: int, masked: bool, biased: bool, draw: Draw, compare: Compare) -> None:
    x = draw(3, length, 32, tailed=True)
    bias = draw(2, length, length, tailed=True) if biased else None
    check(compare, x, weights_of(draw, 32, 2, 32), some_mask(x) if masked else None, bias)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("batch", [1, 4])
def test_widths(width: int, batch: int, draw: Draw, compare: Compare) -> None:
    x = draw(batch, 70, 16, tailed=True)
    check(compare, x, weights_of(draw, 16, 3, width), some_mask(x), draw(3, 70, 70, tailed=True))


@pytest.mark.parametrize("budget", [None, 10_000])
@pytest.mark.parametrize("biased", [False, True])
def test_swapped_axes_stay_swapped_in_memory(
    budget: int | None, biased: bool, draw: Draw, compare: Compare
) -> None:
    x = draw(40, 5, 16, tailed=True).transpose(0, 1)  # [5, 40, 16]
    mask = some_mask(x).T.contiguous().T
    arguments = x, weights_of(draw, 16, 2, 8), mask, draw(2, 40, 40) if biased else None
    ours = kernel.attention(*arguments, budget=budget)
    assert ours.transpose(0, 1).is_contiguous()
    compare(ours, reference.attention(*arguments), reference.attention(*map(double, arguments)))


@pytest.mark.parametrize("budget", [None, 10_000])
@pytest.mark.parametrize("swapped", [False, True])
def test_adding_in_place(budget: int | None, swapped: bool, draw: Draw, compare: Compare) -> None:
    x = draw(40, 6, 24, tailed=True)
    if swapped:
        x = x.transpose(0, 1)
    arguments = weights_of(draw, 24, 3, 16), some_mask(x)
    # strides are kept
    target = x.clone()
    ours = kernel.add_attention(target, *arguments, budget=budget)
    assert ours is target
    plain = reference.add_attention(x.clone(), *arguments)
    compare(ours, plain, reference.add_attention(double(x), *map(double, arguments)))


def test_a_strided_bias(draw: Draw, compare: Compare) -> None:
    x = draw(2, 33, 16)
    check(compare, x, weights_of(draw, 16, 2, 8), None, draw(33, 33, 2, tailed=True).permute(2, 0, 1))


@pytest.mark.parametrize("length", [1, 63, 65])
def test_rows_without_keys_average_all_of_them(length: int, draw: Draw, compare: Compare) -> None:
    x = draw(3, length, 16, tailed=True)
    weights = weights_of(draw, 16, 2, 8)
    mask = torch.ones_like(x[..., 0])
    mask[1] = 0
    # the same to every key
    flat = weights._replace(query=torch.zeros_like(weights.query))
    ours = kernel.attention(x, weights, mask, draw(2, length, length))[1:2]
    compare(ours, reference.attention(x[1:2], flat), reference.attention(double(x[1:2]), double(flat)))


@pytest.mark.parametrize("steepness", [1.0, 1e3])
def test_one_maximum_for_all_keys(steepness: float, draw: Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    # the interpreter has no bfloat16: float32, though less precise than with a running maximum
    monkeypatch.setattr(kernel, "ONE_MAXIMUM", (torch.float32,))
    x = draw(3, 100, 16).float()
    weights = AttentionWeights(*(w.float() for w in weights_of(draw, 16, 2, 8)))
    # the first maximum is far from those of other blocks, above or below, where the bias is steep
    slope = torch.linspace(-1, 1, 100).outer(torch.linspace(-1, 1, 100))
    bias = (steepness * slope).expand(2, 100, 100).to(x)
    mask = some_mask(x)
    mask[1] = 0
    exact = reference.attention(*map(double, (x, weights, mask, bias)))
    ours = kernel.attention(x, weights, mask, bias)
    kept = [0, 2]  # all keys masked: what float32 leaves of logits lowered by 1e9 is not theirs
    assert (ours.double() - exact)[kept].abs().max() < 1e-4
    assert ours.isfinite().all()


@pytest.mark.skipif(INTERPRETED, reason="no other kernel than LayerNorm's")
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("channels, heads, width", [(64, 4, 16), (64, 8, 8), (128, 4, 32), (256, 8, 32)])
def test_projections(
    channels: int, heads: int, width: int, swapped: bool, length: int, draw: Draw, compare: Compare
) -> None:
    """Those of the network, of which Hopper has a kernel of its own; swapped, of some of the rows."""
    x = 3 + draw(length, 70, channels, tailed=True)
    if swapped:
        x = x[:, :67]
    weights = weights_of(draw, channels, heads, width)
    norm = weights.norm_scale, weights.norm_offset
    four = torch.cat([w.flatten(1) for w in weights[2:6]], 1)
    exact = layer_norm(x.double(), *map(double, norm)) @ four.double()
    ours = kernel._projected(x, weights)
    assert ours.is_contiguous()
    compare(ours, layer_norm(x, *norm) @ four, exact)


# takes minutes there, and what other GPUs run of it is tested above
@pytest.mark.skipif(INTERPRETED, reason="no other kernel than for other widths")
@pytest.mark.parametrize("steepness", [1.0, 1e3])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_triangles(
    batch: int,
    swapped: bool,
    steepness: float,
    length: int,
    draw: Draw,
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heads, widths and strides of the network's triangles, with biases steep enough for a second attempt."""
    monkeypatch.setattr(kernel, "SHORTEST_ON_HOPPER", 0)
    x = draw(length, batch, 32).transpose(0, 1) if swapped else draw(batch, length, 32)
    slope = torch.linspace(-1, 1, length).outer(torch.linspace(-1, 1, length)).to(x)
    check(compare, x, weights_of(draw, 32, 4, 32), None, draw(4, length, length) + steepness * slope)


def test_weights_that_change_are_packed_again(draw: Draw, compare: Compare) -> None:
    x, weights = draw(2, 17, 16), weights_of(draw, 16, 2, 8)
    check(compare, x, weights)
    weights.value.mul_(-1)
    check(compare, x, weights)


def test_what_no_kernel_takes(draw: Draw) -> None:
    with pytest.raises(ValueError, match="not 12"):
        kernel.attention(draw(2, 3, 16), weights_of(draw, 16, 2, 12))
    with pytest.raises(ValueError, match="float64"):
        kernel.attention(draw(2, 3, 16).double(), double(weights_of(draw, 16, 2, 8)))
