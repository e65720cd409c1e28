"""The kernels for Hopper of the contest's triangle multiplication against float64, partitions as threads."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from cuda.fused.triangle_multiplication import (  # noqa: E402
    GateFirstWeights,
    hopper_gate_first,
    hopper_gate_first_finish,
    hopper_gate_first_operands,
    reference,
)
from tests.cuda.fused.gluon_stand_in import InPython, Numbers  # noqa: E402

Compare = Callable[..., None]


def gated(values: Numbers, gates: Numbers) -> Any:
    """What the instructions do."""
    return values * (1 + gates.tanh())


def opened(gates: Numbers) -> Any:
    """What the instructions do."""
    return (1 + gates.tanh()) / 2


@pytest.fixture(autouse=True)
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs kernels in Python."""
    for module, name in (
        (hopper_gate_first_operands, "gate_first_operands_kernel"),
        (hopper_gate_first_finish, "gate_first_finish_kernel"),
    ):
        stand_in = InPython(module, name, gated=gated, opened=opened)
        monkeypatch.setattr(hopper_gate_first, name, stand_in)


def drawn(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, generator=generator)


def drawn_weights(channels: int) -> GateFirstWeights:
    c, m = channels, 128
    shapes = [(c,), (c,), *[(c, m)] * 5, (m,), (m,), (m, c)]
    return GateFirstWeights(*(drawn(*shape, seed=k) for k, shape in enumerate(shapes)))


@pytest.mark.parametrize(
    ("batch", "length", "channels", "outgoing", "masked", "tailed"),
    [
        (1, 1, 128, True, False, False),
        (2, 17, 128, False, True, True),
        (1, 64, 128, True, False, False),
        (2, 20, 384, True, True, False),
        (1, 70, 384, False, False, True),
    ],
)
def test_against_float64(
    batch: int, length: int, channels: int, outgoing: bool, masked: bool, tailed: bool, compare: Compare
) -> None:
    x = 3 + drawn(batch, length, length, channels, seed=1)
    if tailed:
        x /= drawn(batch, length, length, channels, seed=2).abs().clamp(min=1e-6)
    mask = (drawn(batch, length, length, seed=3) > -0.5).float() if masked else None
    weights = drawn_weights(channels)
    assert hopper_gate_first.suits(x, 128, torch.float16)
    operation = reference.gate_first_triangle_multiplication
    double = GateFirstWeights(*(w.double() for w in weights))
    of_mask = None if mask is None else mask.double()
    exact = operation(x.double(), double, of_mask, outgoing=outgoing)
    # what float32 numbers cost that are rounded to float16 once they are normalised
    normed = torch.nn.functional.layer_norm(x, (channels,)).half()
    half = GateFirstWeights(*(w.half() for w in weights))
    plain = operation(normed, half, None if mask is None else mask.half(), outgoing=outgoing)
    ours = hopper_gate_first.update(x, weights, mask, outgoing)
    torch.testing.assert_close(ours.double(), exact, rtol=2e-2, atol=2e-2)
    compare(ours, plain.float(), exact)


def test_products_as_small_as_epsilon() -> None:
    x, weights = drawn(1, 17, 17, 128, seed=1), drawn_weights(128)
    weights = weights._replace(left=0.05 * weights.left, right=0.05 * weights.right)
    double = GateFirstWeights(*(w.double() for w in weights))
    exact = reference.gate_first_triangle_multiplication(x.double(), double)
    ours = hopper_gate_first.update(x, weights, None, True)
    torch.testing.assert_close(ours.double(), exact, rtol=2e-2, atol=2e-2)
