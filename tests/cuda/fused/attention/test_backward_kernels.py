"""Attention with gradients: kernels against float64, masks, shared biases, use in a compiled graph."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cuda.fused.attention import differentiable
from cuda.fused.attention import triton as triton_attention
from tests.cuda.fused.environment import DEVICE, INTERPRETED

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def random_inputs(
    draw: Draw,
    batch: int,
    rows: int,
    length: int,
    heads: int,
    width: int,
    masked: bool,
    biased: bool,
    tailed: bool = True,
) -> Inputs:
    """Return projections, gating bias, mask and pair bias."""
    mask = None
    if masked:
        generator = torch.Generator().manual_seed(length)
        mask = (torch.rand(batch, rows, length, generator=generator) > 0.3).to(DEVICE, torch.float32)
        mask[..., length // 2] = 1
    return (
        draw(batch, rows, length, 4 * heads * width),
        draw(heads, width, seed=1),
        mask,
        draw(batch, heads, length, length, seed=2, tailed=tailed) if biased else None,
    )


def gradients(
    attend: Callable[..., torch.Tensor],
    inputs: Inputs,
    upstream: torch.Tensor,
    dtype: torch.dtype | None = None,
) -> list[torch.Tensor]:
    """Return the result and the gradients of projections, gating bias and pair bias, in a dtype."""
    projected, gating_bias, mask, bias = inputs
    leaves = [
        x.to(dtype or x.dtype, copy=True).requires_grad_()
        for x in (projected, gating_bias, bias)
        if x is not None
    ]
    result = attend(leaves[0], leaves[1], mask, leaves[2] if bias is not None else None)
    return [result, *torch.autograd.grad(result, leaves, upstream.to(result.dtype))]


def check(
    compare: Compare, inputs: Inputs, attend: Callable[..., torch.Tensor] = differentiable.attend_fused
) -> None:
    batch, rows, length, _ = inputs[0].shape
    generator = torch.Generator().manual_seed(3)
    upstream = torch.randn(batch, rows, length, inputs[1].numel(), generator=generator).to(inputs[0])
    fused = gradients(attend, inputs, upstream)
    plain = gradients(differentiable.attend_reference, inputs, upstream)
    exact = gradients(differentiable.attend_reference, inputs, upstream, torch.float64)
    for values in zip(fused, plain, exact, strict=True):
        if values[2].abs().max() == 0:
            # with one key softmax is constant; the kernels subtract two numbers that were rounded to 16 bits
            assert values[0].abs().max() <= 8 * torch.finfo(inputs[0].dtype).eps
        else:
            compare(*values)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_gradients_for_lengths(length: int, masked: bool, biased: bool, draw: Draw, compare: Compare) -> None:
    check(compare, random_inputs(draw, 1, 3, length, 2, 16, masked, biased))


@pytest.mark.parametrize("width", [8, 32, 64])
def test_gradients_for_head_widths(width: int, draw: Draw, compare: Compare) -> None:
    check(compare, random_inputs(draw, 1, 2, 70, 3, width, True, True, tailed=False))


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_each_sample_has_its_own_bias(rows: int, draw: Draw, compare: Compare) -> None:
    check(compare, random_inputs(draw, 3, rows, 40, 2, 16, True, True))


def test_one_mask_for_all_rows(draw: Draw, compare: Compare) -> None:
    projected, gating_bias, mask, bias = random_inputs(draw, 2, 3, 33, 2, 16, True, True)
    assert mask is not None
    check(compare, (projected, gating_bias, mask[:, :1], bias))


def test_fully_masked_row_averages_all_keys(draw: Draw) -> None:
    projected, gating_bias, mask, _ = random_inputs(draw, 1, 3, 65, 2, 16, True, False)
    assert mask is not None
    mask[:, 1] = 0
    upstream = torch.ones_like(projected[..., :32])
    fused = gradients(differentiable.attend_fused, (projected, gating_bias, mask, None), upstream)
    assert all(x.isfinite().all() for x in fused)
    # each value gets the same share of the gated gradient
    gate = torch.sigmoid(projected[0, 1, :, 96:].double() + gating_bias.double().flatten())
    expected = gate.mean(0).expand(65, 32)
    assert torch.allclose(fused[1][0, 1, :, 64:96].double(), expected, rtol=1e-2)


def test_fixed_maximum(draw: Draw, compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights relative to the first block's maximum, as in bfloat16, and steep biases."""
    monkeypatch.setattr(triton_attention, "FIXED_MAX_DTYPES", (torch.float32,))
    inputs = [None if x is None else x.float() for x in random_inputs(draw, 1, 2, 70, 2, 16, True, True)]
    slope = torch.linspace(-1, 1, 70).outer(torch.linspace(-1, 1, 70)).to(DEVICE)
    for steepness in (1.0, 100.0):
        bias = (steepness * slope).expand(1, 2, 70, 70)
        values = gradients(differentiable.attend_fused, (*inputs[:3], bias), inputs[0][..., :32])
        exact = gradients(
            differentiable.attend_reference, (*inputs[:3], bias), inputs[0][..., :32], torch.float64
        )
        for value, expected in zip(values, exact, strict=True):
            assert (value.double() - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.skipif(INTERPRETED, reason="float32 in the interpreter takes minutes")
@pytest.mark.parametrize("length", [64, 128, 192, 256, 320])
@pytest.mark.parametrize("heads, width", [(4, 32), (8, 32), (4, 16), (8, 8)])
def test_sizes_of_the_network(length: int, heads: int, width: int, draw: Draw, compare: Compare) -> None:
    check(compare, random_inputs(draw, 2, 32, length, heads, width, True, True))
    check(compare, random_inputs(draw, 2, 32, length, heads, width, True, False))


def test_compiled_graph_has_no_breaks(draw: Draw, compare: Compare) -> None:
    backend = "aot_eager" if INTERPRETED else "inductor"

    def attend(*inputs: Any) -> torch.Tensor:
        return differentiable.attend_fused(inputs[0] * 1.0, *inputs[1:]) * 1.0

    compiled = torch.compile(attend, backend=backend, fullgraph=True, dynamic=False)
    check(compare, random_inputs(draw, 2, 3, 20, 2, 16, True, True), compiled)


@pytest.mark.skipif(INTERPRETED, reason="the order of execution is fixed there")
def test_gradients_are_the_same_again(draw: Draw) -> None:
    inputs = random_inputs(draw, 2, 64, 128, 4, 32, True, True)
    upstream = draw(2, 64, 128, 128, seed=5)
    first, second = (gradients(differentiable.attend_fused, inputs, upstream) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
