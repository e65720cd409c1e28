"""The contest's kernels for Hopper: folded weights, and results in the Gluon simulator against float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from benchmarks import contest_kernels
from benchmarks.contest import plain_operator
from benchmarks.contest_kernels import GateFirstWeights, gate_first_triangle_multiplication
from tests.cuda.fused.gluon_simulator import SimulatedKernel, SimulatedTensor
from tests.cuda.fused.triangle_multiplication.folded_weights import (
    assert_close,
    project_and_gate,
    standardise,
)

Compare = Callable[..., None]


def gated(values: SimulatedTensor, gates: SimulatedTensor) -> Any:
    """Compute what the GPU instructions of `gated` compute."""
    return values * (1 + gates.tanh())


def open_gates(gates: SimulatedTensor) -> Any:
    """Compute what the GPU instructions of `open_gates` compute."""
    return (1 + gates.tanh()) / 2


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernels in the simulator."""
    for name in ("operands_kernel", "finish_kernel"):
        kernel = SimulatedKernel(contest_kernels, name, gated=gated, open_gates=open_gates)
        monkeypatch.setattr(contest_kernels, name, kernel)


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, generator=generator)


def random_weights(channels: int) -> GateFirstWeights:
    c, m = channels, 128
    shapes = [(c,), (c,), *[(c, m)] * 5, (m,), (m,), (m, c)]
    return GateFirstWeights(*(random(*shape, seed=k) for k, shape in enumerate(shapes)))


@pytest.mark.parametrize(
    ("batch", "length", "channels", "outgoing", "masked", "tailed"),
    [
        (1, 1, 128, True, False, False),
        (2, 17, 128, False, True, True),
        pytest.param(1, 64, 128, True, False, False, marks=pytest.mark.slow),
        pytest.param(2, 20, 384, True, True, False, marks=pytest.mark.slow),
        pytest.param(1, 70, 384, False, False, True, marks=pytest.mark.slow),
    ],
)
def test_matches_float64(
    batch: int, length: int, channels: int, outgoing: bool, masked: bool, tailed: bool, compare: Compare
) -> None:
    x = 3 + random(batch, length, length, channels, seed=1)
    if tailed:
        x /= random(batch, length, length, channels, seed=2).abs().clamp(min=1e-6)
    mask = (random(batch, length, length, seed=3) > -0.5).float() if masked else None
    weights = random_weights(channels)
    assert contest_kernels.supports(x, 128, torch.float16)
    double = GateFirstWeights(*(w.double() for w in weights))
    exact_mask = None if mask is None else mask.double()
    exact = plain_operator(x.double(), double, exact_mask, outgoing=outgoing)
    # the error of plain PyTorch with normalised inputs rounded to float16
    normed = torch.nn.functional.layer_norm(x, (channels,)).half()
    half = GateFirstWeights(*(w.half() for w in weights))
    plain = plain_operator(normed, half, None if mask is None else mask.half(), outgoing=outgoing)
    result = gate_first_triangle_multiplication(x, weights, mask, outgoing=outgoing)
    torch.testing.assert_close(result.double(), exact, rtol=2e-2, atol=2e-2)
    compare(result, plain.float(), exact)


def test_products_as_small_as_epsilon() -> None:
    x, weights = random(1, 17, 17, 128, seed=1), random_weights(128)
    weights = weights._replace(left=0.05 * weights.left, right=0.05 * weights.right)
    double = GateFirstWeights(*(w.double() for w in weights))
    exact = plain_operator(x.double(), double)
    result = gate_first_triangle_multiplication(x, weights)
    torch.testing.assert_close(result.double(), exact, rtol=2e-2, atol=2e-2)


def test_folded_weights() -> None:
    c, m = 128, contest_kernels.CHUNK.value
    shapes = [(c,), (c,), *[(c, m)] * 5, (m,), (m,), (m, c)]
    w = GateFirstWeights(*(random(*shape, seed=k).double() for k, shape in enumerate(shapes)))
    x = random(7, c, 1, seed=20)[..., 0].double()
    folded = contest_kernels.fold_weights(w)
    normed, plain = standardise(x) * w.norm_scale + w.norm_offset, standardise(x)
    left = (normed @ w.left) * torch.sigmoid(normed @ w.left_gate)
    right = (normed @ w.right) * torch.sigmoid(normed @ w.right_gate)
    result = project_and_gate(plain, folded.operands[: 4 * m], folded.operands_bias[: 4 * m], plain)
    assert_close(result, torch.cat([left, right], 1), 3e-3)
    gate = plain @ folded.operands[4 * m :].double().T + folded.operands_bias[4 * m :]
    assert_close((1 + gate.tanh()) / 2, torch.sigmoid(normed @ w.output_gate), 3e-3)
    # thread t of four has columns 2t, 2t + 1, 2t + 8 and 2t + 9 of sixteen, stored as channels 4t to 4t + 3
    for t in range(4):
        columns = folded.finish[[16 + 2 * t, 17 + 2 * t, 24 + 2 * t, 25 + 2 * t]]
        assert_close(columns.double(), w.output.T[16 + 4 * t : 20 + 4 * t], 1e-3)
