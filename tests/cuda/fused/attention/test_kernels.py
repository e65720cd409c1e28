"""Attention kernels: accuracy against float64, masks, memory layout, unsupported input."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cuda.fused.attention import AttentionWeights, reference
from cuda.fused.attention import triton as triton_attention
from cuda.fused.chunking import chunk_budget
from cuda.fused.dispatch import implementation_module
from cuda.fused.layer_norm.reference import layer_norm
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION, INTERPRETED
from tests.cuda.fused.gradients import double

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
kernels = implementation_module("attention", IMPLEMENTATION, DEVICE)


def random_weights(draw: Draw, channels: int, heads: int, width: int) -> AttentionWeights:
    query, gating = (draw(channels, heads, width, seed=k, scale=channels**-0.5) for k in (1, 4))
    return AttentionWeights(
        norm_scale=draw(channels, seed=8),
        norm_offset=draw(channels, seed=9),
        query=query,
        key=draw(channels, heads, width, seed=2, scale=channels**-0.5),
        value=draw(channels, heads, width, seed=3, scale=channels**-0.5),
        gating=gating,
        gating_bias=draw(heads, width, seed=5),
        output=draw(heads, width, channels, seed=6, scale=(heads * width) ** -0.5),
        output_bias=draw(channels, seed=7),
    )


def some_mask(x: torch.Tensor) -> torch.Tensor:
    """Return [B, L] with about a third of the keys masked, but not all of any row."""
    mask = (torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(x.shape[1])) > 0.3).to(x)
    mask[:, x.shape[1] // 2] = 1
    return mask


def check(compare: Compare, *arguments: Any) -> None:
    exact = reference.attention(*map(double, arguments))
    compare(kernels.attention(*arguments), reference.attention(*arguments), exact)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_matches_float64_for_lengths(
    length: int, masked: bool, biased: bool, draw: Draw, compare: Compare
) -> None:
    x = draw(3, length, 32, tailed=True)
    bias = draw(2, length, length, tailed=True) if biased else None
    check(compare, x, random_weights(draw, 32, 2, 32), some_mask(x) if masked else None, bias)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("batch", [1, 4])
def test_matches_float64_for_head_widths(width: int, batch: int, draw: Draw, compare: Compare) -> None:
    x = draw(batch, 70, 16, tailed=True)
    check(compare, x, random_weights(draw, 16, 3, width), some_mask(x), draw(3, 70, 70, tailed=True))


@pytest.mark.parametrize("budget", [None, 10_000])
@pytest.mark.parametrize("biased", [False, True])
def test_swapped_axes_stay_swapped_in_memory(
    budget: int | None, biased: bool, draw: Draw, compare: Compare
) -> None:
    x = draw(40, 5, 16, tailed=True).transpose(0, 1)  # [5, 40, 16]
    mask = some_mask(x).T.contiguous().T
    arguments = x, random_weights(draw, 16, 2, 8), mask, draw(2, 40, 40) if biased else None
    with chunk_budget(budget):
        result = kernels.attention(*arguments)
    assert result.transpose(0, 1).is_contiguous()
    compare(result, reference.attention(*arguments), reference.attention(*map(double, arguments)))


@pytest.mark.parametrize("budget", [None, 10_000])
@pytest.mark.parametrize("swapped", [False, True])
def test_update_in_place(budget: int | None, swapped: bool, draw: Draw, compare: Compare) -> None:
    x = draw(40, 6, 24, tailed=True)
    if swapped:
        x = x.transpose(0, 1)
    arguments = random_weights(draw, 24, 3, 16), some_mask(x)
    target = x.clone()  # keeps the strides
    with chunk_budget(budget):
        result = kernels.attention(target, *arguments, add=True)
    assert result is target
    plain = reference.attention(x.clone(), *arguments, add=True)
    compare(result, plain, reference.attention(double(x), *map(double, arguments), add=True))


def test_strided_pair_bias(draw: Draw, compare: Compare) -> None:
    x = draw(2, 33, 16)
    check(compare, x, random_weights(draw, 16, 2, 8), None, draw(33, 33, 2, tailed=True).permute(2, 0, 1))


@pytest.mark.parametrize("length", [1, 63, 65])
def test_fully_masked_row_averages_all_keys(length: int, draw: Draw, compare: Compare) -> None:
    x = draw(3, length, 16, tailed=True)
    weights = random_weights(draw, 16, 2, 8)
    mask = torch.ones_like(x[..., 0])
    mask[1] = 0
    # with zero queries every key has the same weight
    flat = weights._replace(query=torch.zeros_like(weights.query))
    result = kernels.attention(x, weights, mask, draw(2, length, length))[1:2]
    compare(result, reference.attention(x[1:2], flat), reference.attention(double(x[1:2]), double(flat)))


@pytest.mark.parametrize("steepness, rows", [(1.0, 1), (1e3, 1), (1e3, 2)])
def test_fixed_maximum_and_recomputed_blocks(
    steepness: float, rows: int, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_launch = triton_attention.choose_launch

    def with_rows(*arguments: Any, **sizes: int) -> dict[str, dict[str, Any]]:
        options = choose_launch(*arguments, **sizes)
        return options | {"attend": options["attend"] | {"ROWS": rows}}

    monkeypatch.setattr(triton_attention, "choose_launch", with_rows)
    # float32 instead of bfloat16, whose rounding would hide errors; less precise than with a running maximum
    monkeypatch.setattr(triton_attention, "FIXED_MAX_DTYPES", (torch.float32,))
    x = draw(5, 100, 16).float()
    weights = AttentionWeights(*(w.float() for w in random_weights(draw, 16, 2, 8)))
    # with a steep bias the first maximum is far above or below those of other blocks
    slope = torch.linspace(-1, 1, 100).outer(torch.linspace(-1, 1, 100))
    bias = (steepness * slope).expand(2, 100, 100).to(x)
    mask = some_mask(x)
    mask[1] = 0
    exact = reference.attention(*map(double, (x, weights, mask, bias)))
    result = kernels.attention(x, weights, mask, bias)
    # not row 1, in which all keys are masked: float32 logits minus 1e9 have lost their digits
    assert (result.double() - exact)[[0, 2, 3, 4]].abs().max() < 1e-4
    assert result.isfinite().all()


@pytest.mark.skipif(INTERPRETED, reason="LayerNorm's tests cover it")
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("channels, heads, width", [(64, 4, 16), (64, 8, 8), (128, 4, 32), (256, 8, 32)])
def test_projections(
    channels: int, heads: int, width: int, swapped: bool, length: int, draw: Draw, compare: Compare
) -> None:
    """Projections of the network's sizes, for which Hopper GPUs have their own kernels."""
    x = 3 + draw(length, 70, channels, tailed=True)
    if swapped:
        x = x[:, :67]
    weights = random_weights(draw, channels, heads, width)
    norm = weights.norm_scale, weights.norm_offset
    four = torch.cat([w.flatten(1) for w in weights[2:6]], 1)
    exact = layer_norm(x.double(), *map(double, norm)) @ four.double()
    result = kernels.project(x, weights)
    assert result.is_contiguous()
    compare(result, layer_norm(x, *norm) @ four, exact)


@pytest.mark.skipif(INTERPRETED, reason="takes minutes there; other tests cover the Triton kernels")
@pytest.mark.parametrize("steepness", [1.0, 1e3])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_sizes_of_triangle_attention(
    batch: int,
    swapped: bool,
    steepness: float,
    length: int,
    draw: Draw,
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sizes and strides of triangle attention, with flat and steep biases."""
    monkeypatch.setattr(kernels, "MIN_LENGTH", 0, raising=False)
    x = draw(length, batch, 32).transpose(0, 1) if swapped else draw(batch, length, 32)
    slope = torch.linspace(-1, 1, length).outer(torch.linspace(-1, 1, length)).to(x)
    check(compare, x, random_weights(draw, 32, 4, 32), None, draw(4, length, length) + steepness * slope)


@pytest.mark.skipif(INTERPRETED, reason="the simulator's and the interpreter's tests cover it")
@pytest.mark.parametrize("batch, length", [(1, 70), (3, 256), (8, 400)])
def test_large_products_of_queries_and_keys(
    batch: int, length: int, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products far above those of the first keys, so that blocks are recomputed."""
    monkeypatch.setattr(kernels, "MIN_LENGTH", 0, raising=False)
    heads, width = 4, 32
    projected, bias = draw(batch, length, 4, heads, width).bfloat16(), draw(heads, length, length).bfloat16()
    projected[:, :, 0, :, 0] = 16
    projected[:, :, 1, :, 0] = torch.linspace(-60, 60, length).to(projected)[:, None]
    gating_bias, gated = draw(heads, width).bfloat16(), projected.new_empty(batch, length, heads * width)
    kernels.attend(projected.flatten(2), gating_bias, None, bias, gated)
    q, k, v, g = projected.double().unbind(2)
    weights = (torch.einsum("bihd,bjhd->bhij", q, k) * width**-0.5 + bias.double()).softmax(-1)
    exact = torch.einsum("bhij,bjhd->bihd", weights, v) * torch.sigmoid(g + gating_bias.double())
    assert (gated.double() - exact.flatten(2)).norm() / exact.norm() < 2**-8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("first, last", [(0, 20), (20, 37)])
def test_queries_of_some_positions(first: int, last: int, dtype: torch.dtype, draw: Draw) -> None:
    batch, length, heads, width = 2, 37, 2, 16
    projected, bias = draw(batch, length, 4 * heads * width).to(dtype), draw(heads, length, length).to(dtype)
    gating_bias, every = draw(heads, width).to(dtype), projected.new_empty(batch, length, heads * width)
    kernels.attend(projected, gating_bias, None, bias, every)
    some = projected.new_empty(batch, last - first, heads * width)
    kernels.attend(projected, gating_bias, None, bias[:, first:last], some, first_query=first)
    torch.testing.assert_close(some, every[:, first:last])


def test_changed_weights_are_packed_again(draw: Draw, compare: Compare) -> None:
    x, weights = draw(2, 17, 16), random_weights(draw, 16, 2, 8)
    check(compare, x, weights)
    weights.value.mul_(-1)
    check(compare, x, weights)


def test_unsupported_input_is_rejected(draw: Draw) -> None:
    with pytest.raises(ValueError, match="not 12"):
        kernels.attention(draw(2, 3, 16), random_weights(draw, 16, 2, 12))
    with pytest.raises(ValueError, match="float64"):
        kernels.attention(draw(2, 3, 16).double(), double(random_weights(draw, 16, 2, 8)))
