"""`cuda.fused.attention.masked_bias` in plain PyTorch, for simulated kernels and as a reference."""

import pytest
import torch

from cuda.fused.attention import hopper, hopper_backward
from cuda.fused.attention.reference import KEY_ALIGNMENT, MASK_PENALTY


def masked(pair_bias: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the bias [..., L, L or more] of real keys plus the penalty of a mask [M, L] of equal rows."""
    bias = pair_bias[..., : pair_bias.shape[-2]]
    return bias if mask is None else bias + ((mask[0].float() - 1) * MASK_PENALTY).to(bias.dtype)


def masked_with_maxima(pair_bias: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    bias = masked(pair_bias, mask)
    padding = (0, -bias.shape[-1] % KEY_ALIGNMENT)
    return torch.nn.functional.pad(bias, padding, value=-torch.inf), bias.amax(-1)


def masked_and_transposed(
    pair_bias: torch.Tensor, mask: torch.Tensor | None, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    bias = masked(pair_bias, mask).contiguous()
    return bias, bias.mT.contiguous() if transpose else None


def replace_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernels for Hopper use these functions."""
    monkeypatch.setattr(hopper, "masked_with_maxima", masked_with_maxima)
    monkeypatch.setattr(hopper_backward, "masked_and_transposed", masked_and_transposed)
