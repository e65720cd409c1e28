"""Comparison of gradients of kernels with those of plain PyTorch and with float64."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def gradients(
    function: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], dtype: torch.dtype | None = None
) -> list[torch.Tensor]:
    """Return the result of a function and the gradients of its inputs, for a fixed gradient of the result.

    Args:
        function: called with the inputs.
        inputs: floating-point tensors.
        dtype: which they are converted to, or None.
    """
    leaves = [x.detach().to(dtype or x.dtype, copy=True).requires_grad_() for x in inputs]
    result = function(*leaves)
    upstream = torch.randn(result.shape, generator=torch.Generator().manual_seed(3)).to(inputs[0])
    return [result.detach(), *torch.autograd.grad(result, leaves, upstream.to(result.dtype))]


def compare_gradients(
    compare: Callable[..., None],
    fused: Callable[..., torch.Tensor],
    plain: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
) -> None:
    """Compare results, with the fixture `compare`, and gradients of two implementations."""
    fused_values, plain_values = gradients(fused, inputs), gradients(plain, inputs)
    exact_values = gradients(plain, inputs, torch.float64)
    compare(fused_values[0], plain_values[0], exact_values[0])
    values = zip(fused_values[1:], plain_values[1:], exact_values[1:], strict=True)
    for index, (value, expected, exact) in enumerate(values):
        assert value.shape == exact.shape and value.dtype == expected.dtype
        # and one rounding of the largest value: plain PyTorch may be exact by chance in a few elements
        rounding = max(1e-6, torch.finfo(value.dtype).eps) * exact.abs().max().clamp(min=1)
        allowed = 2 * (expected.double() - exact).abs().max() + rounding
        error = (value.double() - exact).abs().max()
        assert error <= allowed, f"input {index}: error {error:.3g}, allowed {allowed:.3g}"


def compare_mean_errors(
    fused: Callable[..., torch.Tensor],
    plain: Callable[..., torch.Tensor],
    draws: Sequence[Sequence[torch.Tensor]],
) -> None:
    """Compare root mean square errors of results and gradients over several draws of the inputs.

    The largest error of a gradient with few elements varies by chance; the mean error shows a sum in 16 bits.
    """
    squares = []
    for inputs in draws:
        exact = gradients(plain, inputs, torch.float64)
        computed = gradients(fused, inputs), gradients(plain, inputs)
        squares.append([[_sum_of_squares(x - e) for x, e in zip(y, exact, strict=True)] for y in computed])
    fused_squares, plain_squares = torch.tensor(squares).sum(0)
    ratios = (fused_squares / plain_squares).sqrt()
    assert (ratios <= 1.5).all(), f"errors relative to those of plain PyTorch: {ratios.tolist()}"


def _sum_of_squares(x: torch.Tensor) -> float:
    return float(x.square().sum())


def double(x: Any) -> Any:
    """Convert a tensor, or each of a tuple of tensors, to float64; None remains None."""
    if isinstance(x, tuple):
        return type(x)(*map(double, x))  # type: ignore[arg-type]
    return None if x is None else x.double()
