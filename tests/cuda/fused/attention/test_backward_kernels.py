"""Attention with gradients: kernels against float64, masks, shared biases, use in a compiled graph."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cuda.fused.attention import differentiable, triton_backward
from cuda.fused.attention import triton as triton_attention
from cuda.fused.launch import choose_launch
from tests.cuda.fused.environment import DEVICE, INTERPRETED
from tests.cuda.fused.gradients import compare_gradients, gradients

Attend = Callable[..., torch.Tensor]
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


def bound(attend: Attend, inputs: Inputs) -> tuple[Attend, list[torch.Tensor]]:
    """Return a function of the differentiable inputs alone, and these."""
    projected, gating_bias, mask, bias = inputs

    def attended(*leaves: torch.Tensor) -> torch.Tensor:
        return attend(leaves[0], leaves[1], mask, leaves[2] if bias is not None else None)

    return attended, [x for x in (projected, gating_bias, bias) if x is not None]


def check(compare: Compare, inputs: Inputs, attend: Attend = differentiable.attend_fused) -> None:
    fused, leaves = bound(attend, inputs)
    compare_gradients(compare, fused, bound(differentiable.attend_reference, inputs)[0], leaves)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_gradients_for_lengths(length: int, masked: bool, biased: bool, draw: Draw, compare: Compare) -> None:
    # between two keys a tailed bias leaves a constant, whose gradient is a difference of rounded numbers
    check(compare, random_inputs(draw, 1, 3, length, 2, 16, masked, biased, tailed=length > 2))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("queries, keys, blocks", [(16, 32, 4), (64, 128, 1)])
def test_gradients_of_whole_rows(
    queries: int,
    keys: int,
    blocks: int,
    length: int,
    masked: bool,
    biased: bool,
    draw: Draw,
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel that computes all gradients of a row but the bias's, whatever the launch table says."""
    row = {"QUERIES": queries, "KEYS": keys, "STAGES": 2, "PRECISION": "ieee", "num_warps": 4}
    monkeypatch.setattr(
        triton_backward, "choose_launch", lambda *x, **y: choose_launch(*x, **y) | {"row": row}
    )
    if length <= blocks * keys:
        check(compare, random_inputs(draw, 1, 3, length, 2, 16, masked, biased, tailed=length > 2))


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
    projected.requires_grad_()
    result = differentiable.attend_fused(projected, gating_bias, mask, None)
    gradient = torch.autograd.grad(result.sum(), projected)[0]
    assert gradient.isfinite().all()
    # each value gets the same share of the gated gradient
    gate = torch.sigmoid(projected[0, 1, :, 96:].detach().double() + gating_bias.double().flatten())
    expected = gate.mean(0).expand(65, 32)
    assert torch.allclose(gradient[0, 1, :, 64:96].double(), expected, rtol=1e-2)


@pytest.mark.parametrize("steepness", [1.0, 100.0])
def test_fixed_maximum(steepness: float, draw: Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights relative to the first block's maximum, as in bfloat16, and steep biases."""
    monkeypatch.setattr(triton_attention, "FIXED_MAX_DTYPES", (torch.float32,))
    projected, gating_bias, mask, _ = random_inputs(draw, 1, 2, 70, 2, 16, True, False)
    slope = torch.linspace(-1, 1, 70).outer(torch.linspace(-1, 1, 70)).to(DEVICE)
    bias = (steepness * slope).expand(1, 2, 70, 70)
    inputs = projected.float(), gating_bias.float(), mask, bias
    fused, leaves = bound(differentiable.attend_fused, inputs)
    exact = gradients(bound(differentiable.attend_reference, inputs)[0], leaves, torch.float64)
    for value, expected in zip(gradients(fused, leaves), exact, strict=True):
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
    fused, leaves = bound(differentiable.attend_fused, random_inputs(draw, 2, 64, 128, 4, 32, True, True))
    for first, second in zip(gradients(fused, leaves), gradients(fused, leaves), strict=True):
        assert torch.equal(first, second)
