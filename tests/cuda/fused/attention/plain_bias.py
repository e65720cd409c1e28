"""The kernels that prepare pair biases, in plain PyTorch: for simulated kernels and as a reference."""

import math

import pytest
import torch

from cuda.fused.attention import hopper_backward, hopper_core
from cuda.fused.attention.reference import KEY_ALIGNMENT, MASK_PENALTY


def masked(pair_bias: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the bias [..., L, L or more] of real keys plus the penalty of a mask [M, L] of equal rows."""
    bias = pair_bias[..., : pair_bias.shape[-2]]
    return bias if mask is None else bias + ((mask[0].float() - 1) * MASK_PENALTY).to(bias.dtype)


def relative_bias(pair_bias: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    bias = pair_bias[..., : pair_bias.shape[-2]].float()
    if mask is not None:
        bias = bias + (mask[0].float() - 1) * MASK_PENALTY
    maxima = bias.amax(-1)
    relative = ((bias - maxima[..., None]) * math.log2(math.e)).half()
    padding = (0, -bias.shape[-1] % KEY_ALIGNMENT)
    return torch.nn.functional.pad(relative, padding, value=-torch.inf), maxima


def masked_and_transposed(
    pair_bias: torch.Tensor, mask: torch.Tensor | None, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    bias = masked(pair_bias, mask).contiguous()
    return bias, bias.mT.contiguous() if transpose else None


def replace_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernels for Hopper use these functions."""
    monkeypatch.setattr(hopper_core, "relative_bias", relative_bias)
    monkeypatch.setattr(hopper_backward, "masked_and_transposed", masked_and_transposed)
