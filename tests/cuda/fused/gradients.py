"""Comparison of gradients of kernels with those of plain PyTorch and with float64."""

from collections.abc import Callable, Sequence

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
    return [result, *torch.autograd.grad(result, leaves, upstream.to(result.dtype))]


def compare_gradients(
    compare: Callable[..., None],
    fused: Callable[..., torch.Tensor],
    plain: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
) -> None:
    """Compare results and gradients of two implementations; `compare` is the fixture of that name."""
    for values in zip(
        gradients(fused, inputs),
        gradients(plain, inputs),
        gradients(plain, inputs, torch.float64),
        strict=True,
    ):
        compare(*values)
