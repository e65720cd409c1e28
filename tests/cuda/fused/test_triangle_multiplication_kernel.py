"""The triangle multiplication's kernels against float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton

from cuda.fused.triangle_multiplication import (
    GateFirstWeights,
    TriangleMultiplicationWeights,
    kernel,
    reference,
)

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
# some GPUs have kernels of their own for 128 channels, which the interpreter does not know
WIDTHS = (16,) if triton.knobs.runtime.interpret else (16, 128)


def weights_of(draw: Draw, channels: int, inner: int) -> TriangleMultiplicationWeights:
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


def gate_first_weights(draw: Draw, channels: int, inner: int) -> GateFirstWeights:
    # as torch's linear layers have them: [out, in]
    matrices = [draw(inner, channels, seed=k, scale=channels**-0.5).T for k in range(5)]
    return GateFirstWeights(
        draw(channels, seed=5),
        draw(channels, seed=6),
        *matrices,
        center_scale=draw(inner, seed=7),
        center_offset=draw(inner, seed=8),
        output=draw(channels, inner, seed=9, scale=inner**-0.5).T,
    )


def mask_of(kind: str, x: torch.Tensor) -> torch.Tensor | None:
    """[..., N, N]: no mask, some positions and a whole row and column masked, or all."""
    if kind == "none":
        return None
    if kind == "all":
        return torch.zeros_like(x[..., 0])
    mask = (torch.rand(x.shape[:-1], generator=torch.Generator().manual_seed(x.shape[-2])) > 0.3).to(x)
    mask[..., x.shape[-2] // 2, :] = 0
    mask[..., x.shape[-2] // 3] = 0
    return mask


def double(x: Any) -> Any:
    if isinstance(x, tuple):
        return type(x)(*map(double, x))  # type: ignore[arg-type]
    return None if x is None else x.double()


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large tiles under the interpreter, whose time goes by the program."""
    choose = kernel.choose_launch

    def chosen(*given: Any, **sizes: Any) -> dict[str, Any]:
        return {name: options | {"POSITIONS": 1024} for name, options in choose(*given, **sizes).items()}

    if triton.knobs.runtime.interpret:
        monkeypatch.setattr(kernel, "choose_launch", chosen)


def check(compare: Compare, x: torch.Tensor, weights: Any, mask: torch.Tensor | None, outgoing: bool) -> None:
    exact = reference.triangle_multiplication(double(x), double(weights), double(mask), outgoing=outgoing)
    plain = reference.triangle_multiplication(x, weights, mask, outgoing=outgoing)
    compare(kernel.triangle_multiplication(x, weights, mask, outgoing=outgoing), plain, exact)


@pytest.mark.parametrize("masked, outgoing", [("none", True), ("some", True), ("some", False)])
@pytest.mark.usefixtures("few_programs")
def test_lengths(length: int, masked: str, outgoing: bool, draw: Draw, compare: Compare) -> None:
    pair = draw(length, length, 16, tailed=True)
    check(compare, pair, weights_of(draw, 16, 16), mask_of(masked, pair), outgoing)


@pytest.mark.parametrize("channels, inner", [(128, 128), (64, 64), (8, 24), (40, 128), (256, 64)])
@pytest.mark.usefixtures("few_programs")
def test_channels(channels: int, inner: int, draw: Draw, compare: Compare) -> None:
    pair = draw(18, 18, channels, tailed=True)
    check(compare, pair, weights_of(draw, channels, inner), mask_of("all", pair), True)
    check(compare, pair, weights_of(draw, channels, inner), None, False)


# widths that have kernels of their own on some GPUs; what they do not take goes the other way
@pytest.mark.skipif(triton.knobs.runtime.interpret, reason="no other kernels than those of other widths")
@pytest.mark.parametrize("channels", [64, 128])
@pytest.mark.parametrize("masked, outgoing", [("none", True), ("some", False)])
def test_lengths_of_wide_pairs(
    length: int, channels: int, masked: str, outgoing: bool, draw: Draw, compare: Compare
) -> None:
    pair, weights = draw(length, length, channels, tailed=True), weights_of(draw, channels, channels)
    mask = mask_of(masked, pair)
    check(compare, pair, weights, mask, outgoing)
    exact = double(pair) + reference.triangle_multiplication(
        double(pair), double(weights), double(mask), outgoing=outgoing
    )
    plain = pair + reference.triangle_multiplication(pair, weights, mask, outgoing=outgoing)
    compare(kernel.add_triangle_multiplication(pair, weights, mask, outgoing=outgoing), plain, exact)


@pytest.mark.usefixtures("few_programs")
@pytest.mark.parametrize("channels", WIDTHS)
def test_large_means(channels: int, draw: Draw, compare: Compare) -> None:
    pair = draw(33, 33, channels) + 100 * draw(33, 33, 1, seed=1)
    check(compare, pair, weights_of(draw, channels, channels), None, True)


@pytest.mark.usefixtures("few_programs")
@pytest.mark.parametrize("channels", WIDTHS)
def test_gates_that_are_nearly_closed(channels: int, draw: Draw, compare: Compare) -> None:
    weights = weights_of(draw, channels, channels)
    weights = weights._replace(
        left_gate_bias=weights.left_gate_bias - 7, right_gate_bias=weights.right_gate_bias - 7
    )
    check(compare, draw(33, 33, channels), weights, None, True)


@pytest.mark.parametrize("channels", WIDTHS)
@pytest.mark.parametrize("outgoing", [True, False])
@pytest.mark.usefixtures("few_programs")
def test_strides(outgoing: bool, channels: int, draw: Draw, compare: Compare) -> None:
    pair = draw(19, 22, 2 * channels, tailed=True)[:, :19].transpose(0, 1)[..., :channels]
    mask = mask_of("some", pair)
    assert mask is not None
    check(compare, pair, weights_of(draw, channels, channels), mask.T, outgoing)


@pytest.mark.usefixtures("few_programs")
def test_adding_in_place(draw: Draw, compare: Compare) -> None:
    pair, weights = draw(33, 33, 40), weights_of(draw, 40, 16)
    exact = double(pair) + reference.triangle_multiplication(double(pair), double(weights), outgoing=True)
    plain = pair + reference.triangle_multiplication(pair, weights, outgoing=True)
    ours = kernel.add_triangle_multiplication(pair, weights, outgoing=True)
    assert ours is pair
    compare(ours, plain, exact)


@pytest.mark.parametrize("outgoing", [True, False])
@pytest.mark.parametrize("masked", ["none", "some", "all"])
@pytest.mark.parametrize(
    "shape, inner", [((2, 17, 17, 16), 16), ((1, 34, 34, 128), 24), ((1, 9, 9, 384), 128)]
)
@pytest.mark.usefixtures("few_programs")
def test_gate_first(
    shape: tuple[int, ...], inner: int, masked: str, outgoing: bool, draw: Draw, compare: Compare
) -> None:
    x, weights = draw(*shape, tailed=True), gate_first_weights(draw, shape[-1], inner)
    mask = mask_of(masked, x)
    operation = reference.gate_first_triangle_multiplication
    exact = operation(double(x), double(weights), double(mask), outgoing=outgoing)
    ours = kernel.gate_first_triangle_multiplication(x, weights, mask, outgoing=outgoing, operands=x.dtype)
    compare(ours, operation(x, weights, mask, outgoing=outgoing), exact)


@pytest.mark.usefixtures("few_programs")
def test_the_contest_s_tolerance(draw: Draw) -> None:
    x, weights = draw(2, 40, 40, 128).float(), gate_first_weights(draw, 128, 128)
    weights = type(weights)(*(w.float() for w in weights))
    mask = mask_of("some", x)
    exact = reference.gate_first_triangle_multiplication(double(x), double(weights), double(mask))
    ours = kernel.gate_first_triangle_multiplication(x, weights, mask)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), exact, rtol=2e-2, atol=2e-2)


# as above: these inputs have kernels of their own on some GPUs
@pytest.mark.skipif(triton.knobs.runtime.interpret, reason="no other kernels than those of other widths")
@pytest.mark.parametrize("masked, outgoing", [("none", True), ("some", False)])
@pytest.mark.parametrize("channels", [128, 384])
@pytest.mark.parametrize("length", [1, 17, 64, 100, 257])
def test_lengths_of_the_contest_s_inputs(
    length: int, channels: int, masked: str, outgoing: bool, draw: Draw, compare: Compare
) -> None:
    x = draw(2, length, length, channels, tailed=True).float()
    weights = gate_first_weights(draw, channels, 128)
    weights = type(weights)(*(w.float() for w in weights))
    mask = mask_of(masked, x)
    operation = reference.gate_first_triangle_multiplication
    exact = operation(double(x), double(weights), double(mask), outgoing=outgoing)
    # float16 holds inputs once they are normalised
    normed = torch.nn.functional.layer_norm(x, (channels,)).half()
    halves = type(weights)(*(w.half() for w in weights))
    plain = operation(normed, halves, None if mask is None else mask.half(), outgoing=outgoing).float()
    # in other strides
    mask = None if mask is None else mask.repeat_interleave(2, -1)[..., ::2]
    compare(kernel.gate_first_triangle_multiplication(x, weights, mask, outgoing=outgoing), plain, exact)


@pytest.mark.usefixtures("few_programs")
def test_sums_beyond_the_range_of_float16(draw: Draw) -> None:
    x, weights = draw(1, 20, 20, 16).float(), gate_first_weights(draw, 16, 16)
    weights = type(weights)(*(w.float() for w in weights))
    # one sign, so that nothing cancels: terms of some 3e4, of which float16 holds two
    weights = weights._replace(
        norm_offset=torch.full_like(weights.norm_offset, 60.0),
        left=weights.left.abs(),
        right=weights.right.abs(),
    )
    exact = reference.gate_first_triangle_multiplication(double(x), double(weights))
    ours = kernel.gate_first_triangle_multiplication(x, weights)
    torch.testing.assert_close(ours.double(), exact, rtol=2e-2, atol=2e-2)


def test_what_no_kernel_takes(draw: Draw) -> None:
    with pytest.raises(ValueError, match="channels"):
        kernel.triangle_multiplication(draw(3, 3, 264), weights_of(draw, 264, 16), outgoing=True)
    with pytest.raises(ValueError, match="strides"):
        kernel.triangle_multiplication(draw(3, 3, 32)[..., ::2], weights_of(draw, 16, 16), outgoing=True)
