"""The kernel of the gradients of attention's rows for Hopper, run by the Gluon simulator, against float64."""

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.attention import hopper_backward, triton_backward
from cuda.fused.attention.differentiable import attend_reference
from cuda.fused.attention.triton_backward import RowInputs
from tests.cuda.fused.gluon_simulator import SimulatedKernel

HEADS, LENGTH, WIDTH = 2, 256, 32
INNER = HEADS * WIDTH


def exact_gradients(
    projected: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor, upstream: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of projected [S, R, L, 4*H*D] in float64, given that of the ungated result."""
    leaf = projected.double().requires_grad_()
    # gates of 1
    open_gates = torch.full((HEADS, WIDTH), 1e3, dtype=torch.float64)
    result = attend_reference(leaf, open_gates, mask, bias.double())
    (gradient,) = torch.autograd.grad(result, leaf, upstream.double())
    return gradient


@pytest.mark.parametrize(("parts", "rows", "masked"), [(1, 3, False), (1, 2, True), (2, 2, False)])
def test_gradients_of_rows(parts: int, rows: int, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "row_gradients_kernel"
    monkeypatch.setattr(hopper_backward, name, SimulatedKernel(hopper_backward, name))
    generator = torch.Generator().manual_seed(parts + rows)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).bfloat16()

    projected, upstream = random(parts, rows, LENGTH, 4 * INNER), random(parts, rows, LENGTH, INNER)
    bias, mask = random(parts, HEADS, LENGTH, LENGTH), None
    if masked:
        mask = (torch.rand(parts, 1, LENGTH, generator=generator) > 0.2).float()
        mask[..., -70:] = 0.0  # whole blocks of keys
    query, key, value, _ = (
        x.double().unflatten(-1, (HEADS, WIDTH)).transpose(2, 3) for x in projected.split(INNER, -1)
    )
    logits = query @ key.mT * WIDTH**-0.5 + bias.double()[:, None]
    if mask is not None:
        logits += 1e9 * (mask.double()[:, :, None, None] - 1.0)
    maximum = logits.amax(-1)
    weights = torch.exp(logits - maximum[..., None])
    total = weights.sum(-1)  # [S, R, H, L]
    scaled = upstream.double().unflatten(-1, (HEADS, WIDTH)).transpose(2, 3) / total[..., None]
    delta = (scaled * (weights @ value / total[..., None])).sum(-1)
    gradient = torch.full_like(projected, torch.nan)
    inputs = RowInputs(
        projected.flatten(0, 1),
        scaled.transpose(2, 3).flatten(3).flatten(0, 1).bfloat16(),
        maximum.float().flatten(0, 1),
        delta.float().flatten(0, 1),
        None if mask is None else mask.expand(parts, rows, LENGTH).flatten(0, 1),
        bias,
        gradient.flatten(0, 1),
    )
    hopper_backward.write_row_gradients(inputs, {})
    exact = exact_gradients(projected, mask, bias, upstream)
    for part in range(3):
        channels = slice(part * INNER, (part + 1) * INNER)
        difference = gradient[..., channels].double() - exact[..., channels]
        assert difference.norm() <= 0.01 * exact[..., channels].norm()
        assert difference.abs().max() <= 0.02 * exact[..., channels].abs().max()
    # the gradient of the gates belongs to another kernel
    assert gradient[..., 3 * INNER :].isnan().all()


@pytest.mark.parametrize("change", ["length", "mask", "bias", "dtype"])
def test_others_are_left_to_triton(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = []
    monkeypatch.setattr(triton_backward, "write_row_gradients", lambda inputs, _: passed.append(inputs))
    length = 192 if change == "length" else LENGTH
    dtype = torch.float16 if change == "dtype" else torch.bfloat16
    projected = torch.zeros(2, length, 4 * INNER, dtype=dtype)
    statistics = torch.zeros(2, HEADS, length)
    inputs = RowInputs(
        projected,
        projected[..., :INNER].contiguous(),
        statistics,
        statistics,
        torch.ones(2, length) if change == "mask" else None,
        None if change == "bias" else torch.zeros(1, HEADS, length, length, dtype=dtype),
        projected.clone(),
    )
    hopper_backward.write_row_gradients(inputs, {})
    assert passed == [inputs]
