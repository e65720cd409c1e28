"""The kernel that prepares pair biases, in plain PyTorch: for simulated kernels and as a reference."""

import math

import pytest
import torch

from cuda.fused.attention import hopper_core
from cuda.fused.attention.reference import KEY_ALIGNMENT, MASK_PENALTY


def relative_bias(pair_bias: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    bias = pair_bias[..., : pair_bias.shape[-2]].float()
    if mask is not None:
        bias = bias + (mask[0].float() - 1) * MASK_PENALTY
    maxima = bias.amax(-1)
    relative = ((bias - maxima[..., None]) * math.log2(math.e)).half()
    padding = (0, -bias.shape[-1] % KEY_ALIGNMENT)
    return torch.nn.functional.pad(relative, padding, value=-torch.inf), maxima


def replace_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel for Hopper use this function."""
    monkeypatch.setattr(hopper_core, "relative_bias", relative_bias)
