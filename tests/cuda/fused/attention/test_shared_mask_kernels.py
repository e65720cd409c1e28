"""Attention with gradients for crops of 256 residues, whose rows share a mask, against float64.

Hopper GPUs have a kernel of their own for the forward pass. Without a GPU, the Gluon simulator runs it, and
Triton's interpreter the others.
"""

import pytest
import torch

from cuda.fused import launch
from cuda.fused.attention import differentiable, triton, triton_backward
from tests.cuda.fused.environment import DEVICE, INTERPRETED

HEADS, WIDTH, LENGTH = 2, 32, 256
ROWS = 2 if INTERPRETED else 128


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernel for Hopper in the simulator."""
    from cuda.fused.attention import hopper
    from tests.cuda.fused.attention import simulated_core

    simulated_core.replace_kernel(monkeypatch)
    for module in (triton, triton_backward):
        monkeypatch.setattr(module, "check_tensors", lambda *_: None, raising=False)
    monkeypatch.setattr(hopper, "MIN_LENGTH", 0)
    monkeypatch.setattr(launch, "_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(differentiable, "kernel_implementation", lambda _: "hopper")
    monkeypatch.setattr(differentiable, "implementation_module", lambda *_: hopper)


@pytest.mark.usefixtures(*(["simulated"] if INTERPRETED else []))
@pytest.mark.parametrize("masked", [False, True])
def test_matches_float64(masked: bool) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(DEVICE, torch.bfloat16)

    leaves = [
        draw(1, ROWS, LENGTH, 4 * HEADS * WIDTH).requires_grad_(),
        draw(HEADS, WIDTH).requires_grad_(),
        draw(1, HEADS, LENGTH, LENGTH).requires_grad_(),
    ]
    upstream, mask = draw(1, ROWS, LENGTH, HEADS * WIDTH), None
    if masked:
        mask = (torch.rand(1, 1, LENGTH, generator=generator) > 0.2).float().to(DEVICE)
        mask[..., -70:] = 0.0
    projected, gating_bias, bias = leaves
    result = differentiable.attend_fused(projected, gating_bias, mask, bias)
    computed = [result, *torch.autograd.grad(result, leaves, upstream)]
    wide = [x.detach().double().requires_grad_() for x in leaves]
    exact = differentiable.attend_reference(wide[0], wide[1], mask, wide[2])
    expected = [exact, *torch.autograd.grad(exact, wide, upstream.double())]
    for value, true in zip(computed, expected, strict=True):
        assert (value.double() - true).norm() <= 0.006 * true.norm()
