"""The kernels of attention's gradients for Hopper, run by the Gluon simulator, against float64."""

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.attention import hopper_backward, hopper_bias_gradient
from cuda.fused.attention.differentiable import attend_reference
from cuda.fused.attention.triton_backward import GradientInputs
from tests.cuda.fused.attention import plain_bias
from tests.cuda.fused.gluon_simulator import SimulatedKernel

HEADS, WIDTH = 2, 32
INNER = HEADS * WIDTH


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (hopper_backward, "row_gradients_kernel"),
        (hopper_bias_gradient, "bias_gradient_kernel"),
    ):
        monkeypatch.setattr(module, name, SimulatedKernel(module, name))
    plain_bias.replace_kernel(monkeypatch)


def exact_gradients(
    projected: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor, upstream: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of projected [S, R, L, 4*H*D] and bias in float64.

    upstream is the gradient of the result without gates.
    """
    leaves = [x.double().requires_grad_() for x in (projected, bias)]
    # gates of 1
    open_gates = torch.full((HEADS, WIDTH), 1e3, dtype=torch.float64)
    result = attend_reference(leaves[0], open_gates, mask, leaves[1])
    first, second = torch.autograd.grad(result, leaves, upstream.double())
    return first, second


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    ("parts", "rows", "length", "masked"),
    [(1, 3, 256, False), (1, 9, 256, True), (2, 2, 256, False), (1, 5, 384, True)],
)
def test_gradients(parts: int, rows: int, length: int, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # two programs of the bias kernel share the rows; of nine, the first has more than buffers
    monkeypatch.setattr(hopper_bias_gradient, "program_count", lambda x, blocks, resident: blocks // rows * 2)
    generator = torch.Generator().manual_seed(parts + rows)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).bfloat16()

    projected, upstream = random(parts, rows, length, 4 * INNER), random(parts, rows, length, INNER)
    bias, mask = random(parts, HEADS, length, length), None
    if masked:
        mask = (torch.rand(1, 1, length, generator=generator) > 0.2).float()
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
    inputs = GradientInputs(
        projected.flatten(0, 1),
        scaled.transpose(2, 3).flatten(3).flatten(0, 1).bfloat16(),
        maximum.float().flatten(0, 1),
        delta.float().flatten(0, 1),
        None if mask is None else mask.expand(parts, rows, length).flatten(0, 1),
        bias,
        gradient.flatten(0, 1),
    )
    rows_written, bias_gradient = hopper_backward.write_gradients(inputs)
    exact, exact_bias = exact_gradients(projected, mask, bias, upstream)
    assert bias_gradient is not None and bias_gradient.dtype == torch.float32
    compared = [(bias_gradient, exact_bias)]
    assert rows_written == (length == 256)
    written = 3 * INNER if rows_written else 0
    for first in range(0, written, INNER):
        channels = slice(first, first + INNER)
        compared.append((gradient[..., channels], exact[..., channels]))
    for value, true in compared:
        difference = value.double() - true
        assert difference.norm() <= 0.01 * true.norm()
        assert difference.abs().max() <= 0.02 * true.abs().max()
    # other gradients belong to other kernels
    assert gradient[..., written:].isnan().all()


@pytest.mark.parametrize("change", ["length", "short", "mask", "bias", "dtype"])
def test_others_are_left_to_triton(change: str) -> None:
    length = {"length": 320, "short": 128}.get(change, 256)
    dtype = torch.float16 if change == "dtype" else torch.bfloat16
    projected = torch.zeros(2, length, 4 * INNER, dtype=dtype)
    statistics = torch.zeros(2, HEADS, length)
    inputs = GradientInputs(
        projected,
        projected[..., :INNER].contiguous(),
        statistics,
        statistics,
        torch.ones(2, length) if change == "mask" else None,
        None if change == "bias" else torch.zeros(1, HEADS, length, length, dtype=dtype),
        projected.clone(),
    )
    assert hopper_backward.write_gradients(inputs) == (False, None)
