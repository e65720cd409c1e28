"""Triangle multiplication kernels: accuracy against float64, masks, strides, unsupported input."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cuda.fused.dispatch import implementation_module
from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights, reference
from cuda.fused.triangle_multiplication import triton as triton_kernels
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION, INTERPRETED
from tests.cuda.fused.gradients import double

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
kernels = implementation_module("triangle_multiplication", IMPLEMENTATION, DEVICE)
# Hopper GPUs have their own kernels for 128 channels; the interpreter does not support them
WIDTHS = (16,) if INTERPRETED else (16, 128)


def random_weights(draw: Draw, channels: int, inner: int) -> TriangleMultiplicationWeights:
    matrices = [draw(channels, inner, seed=k, scale=channels**-0.5) for k in range(1, 5)]
    biases = [draw(inner, seed=k) for k in range(5, 9)]
    return TriangleMultiplicationWeights(
        draw(channels, seed=9),
        draw(channels, seed=10),
        *(x for both in zip(matrices, biases, strict=True) for x in both),
        center_scale=draw(inner, seed=11),
        center_offset=draw(inner, seed=12),
        output=draw(inner, channels, seed=13, scale=inner**-0.5),
        output_bias=draw(channels, seed=14),
        gating=draw(channels, channels, seed=15, scale=channels**-0.5),
        gating_bias=draw(channels, seed=16),
    )


def mask_of(kind: str, x: torch.Tensor) -> torch.Tensor | None:
    """Return None or a mask [..., N, N] of all or some positions, the latter with a whole row and column."""
    if kind == "none":
        return None
    if kind == "all":
        return torch.zeros_like(x[..., 0])
    mask = (torch.rand(x.shape[:-1], generator=torch.Generator().manual_seed(x.shape[-2])) > 0.3).to(x)
    mask[..., x.shape[-2] // 2, :] = 0
    mask[..., x.shape[-2] // 3] = 0
    return mask


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use large tiles under the interpreter, whose time depends on the number of programs."""
    choose = triton_kernels.choose_launch

    def large_tiles(*arguments: Any) -> dict[str, Any]:
        return {name: options | {"POSITIONS": 1024} for name, options in choose(*arguments).items()}

    if INTERPRETED:
        monkeypatch.setattr(triton_kernels, "choose_launch", large_tiles)


def check(compare: Compare, x: torch.Tensor, weights: Any, mask: torch.Tensor | None, outgoing: bool) -> None:
    exact = reference.triangle_multiplication(double(x), double(weights), double(mask), outgoing=outgoing)
    plain = reference.triangle_multiplication(x, weights, mask, outgoing=outgoing)
    compare(kernels.triangle_multiplication(x, weights, mask, outgoing=outgoing), plain, exact)


@pytest.mark.parametrize("masked, outgoing", [("none", True), ("some", True), ("some", False)])
@pytest.mark.usefixtures("few_programs")
def test_matches_float64_for_lengths(
    length: int, masked: str, outgoing: bool, draw: Draw, compare: Compare
) -> None:
    pair = draw(length, length, 16, tailed=True)
    check(compare, pair, random_weights(draw, 16, 16), mask_of(masked, pair), outgoing)


@pytest.mark.parametrize("channels, inner", [(128, 128), (64, 64), (8, 24), (40, 128), (256, 64)])
@pytest.mark.usefixtures("few_programs")
def test_matches_float64_for_channels(channels: int, inner: int, draw: Draw, compare: Compare) -> None:
    pair = draw(18, 18, channels, tailed=True)
    check(compare, pair, random_weights(draw, channels, inner), mask_of("all", pair), True)
    check(compare, pair, random_weights(draw, channels, inner), None, False)


@pytest.mark.skipif(INTERPRETED, reason="takes minutes there; other tests cover the Triton kernels")
@pytest.mark.parametrize("channels", [64, 128])
@pytest.mark.parametrize("masked, outgoing", [("none", True), ("some", False)])
def test_sizes_of_the_network(
    length: int, channels: int, masked: str, outgoing: bool, draw: Draw, compare: Compare
) -> None:
    pair, weights = draw(length, length, channels, tailed=True), random_weights(draw, channels, channels)
    mask = mask_of(masked, pair)
    check(compare, pair, weights, mask, outgoing)
    exact = double(pair) + reference.triangle_multiplication(
        double(pair), double(weights), double(mask), outgoing=outgoing
    )
    plain = pair + reference.triangle_multiplication(pair, weights, mask, outgoing=outgoing)
    compare(kernels.triangle_multiplication(pair, weights, mask, outgoing=outgoing, add=True), plain, exact)


@pytest.mark.usefixtures("few_programs")
@pytest.mark.parametrize("channels", WIDTHS)
def test_large_mean_keeps_precision(channels: int, draw: Draw, compare: Compare) -> None:
    pair = draw(33, 33, channels) + 100 * draw(33, 33, 1, seed=1)
    check(compare, pair, random_weights(draw, channels, channels), None, True)


@pytest.mark.usefixtures("few_programs")
@pytest.mark.parametrize("channels", WIDTHS)
def test_nearly_closed_gates_keep_precision(channels: int, draw: Draw, compare: Compare) -> None:
    weights = random_weights(draw, channels, channels)
    weights = weights._replace(
        left_gate_bias=weights.left_gate_bias - 7, right_gate_bias=weights.right_gate_bias - 7
    )
    check(compare, draw(33, 33, channels), weights, None, True)


@pytest.mark.parametrize("channels", WIDTHS)
@pytest.mark.parametrize("outgoing", [True, False])
@pytest.mark.usefixtures("few_programs")
def test_matches_float64_for_strided_input(
    outgoing: bool, channels: int, draw: Draw, compare: Compare
) -> None:
    pair = draw(19, 22, 2 * channels, tailed=True)[:, :19].transpose(0, 1)[..., :channels]
    mask = mask_of("some", pair)
    assert mask is not None
    check(compare, pair, random_weights(draw, channels, channels), mask.T, outgoing)


@pytest.mark.usefixtures("few_programs")
def test_update_in_place(draw: Draw, compare: Compare) -> None:
    pair, weights = draw(33, 33, 40), random_weights(draw, 40, 16)
    exact = double(pair) + reference.triangle_multiplication(double(pair), double(weights), outgoing=True)
    plain = pair + reference.triangle_multiplication(pair, weights, outgoing=True)
    result = kernels.triangle_multiplication(pair, weights, outgoing=True, add=True)
    assert result is pair
    compare(result, plain, exact)


def test_unsupported_input_is_rejected(draw: Draw) -> None:
    with pytest.raises(ValueError, match="channels"):
        kernels.triangle_multiplication(draw(3, 3, 264), random_weights(draw, 264, 16), outgoing=True)
    with pytest.raises(ValueError, match="strides"):
        kernels.triangle_multiplication(draw(3, 3, 32)[..., ::2], random_weights(draw, 16, 16), outgoing=True)


@pytest.mark.parametrize("outgoing", [True, False])
@pytest.mark.usefixtures("few_programs")
def test_rows_of_the_pair_representation(outgoing: bool, draw: Draw, compare: Compare) -> None:
    x, weights = draw(21, 21, 16, tailed=True), random_weights(draw, 16, 8)
    mask = mask_of("some", x)
    wide = double(x), double(weights), double(mask)
    exact = wide[0] + reference.triangle_multiplication(*wide, outgoing=outgoing)
    plain = reference.triangle_multiplication(x.clone(), weights, mask, outgoing=outgoing, add=True)
    parts = [slice(0, 9), slice(9, 21), slice(21, 21)]
    factors = [triton_kernels.project_rows(x[part], weights, mask[part]) for part in parts]
    left, right = torch.cat(factors, dim=1).split(8)  # each [M, N, P]
    assert not left[:, :, 21:].any() and not right[:, :, 21:].any()
    product = left @ right.transpose(1, 2) if outgoing else right[:, :, :21].transpose(1, 2) @ left
    if outgoing:
        product = torch.nn.functional.pad(product, (0, left.shape[2] - 21))
    for part in parts:
        triton_kernels.add_product(x[part], product[:, part].contiguous(), weights)
    compare(x, plain, exact)
