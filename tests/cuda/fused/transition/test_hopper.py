"""The transition kernel for Hopper, run by the Gluon simulator, against float64."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.transition import TransitionWeights, hopper, reference
from tests.cuda.fused.gluon_simulator import SimulatedKernel

Compare = Callable[..., None]


def gated(values: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """Replace the kernel's function of the same name, which consists of GPU instructions."""
    return values * (1 + torch.tanh(gates))


@pytest.mark.parametrize(
    ("rows", "channels", "is_gated", "add"),
    [
        (1, 64, False, False),
        (300, 64, True, True),
        (129, 128, False, True),
        (129, 128, True, True),
        (700, 128, False, False),
        (65, 256, False, False),
        (500, 256, False, True),
    ],
)
def test_matches_float64(
    rows: int, channels: int, is_gated: bool, add: bool, compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hopper, "check_tensors", lambda *_: None)
    monkeypatch.setattr(
        hopper, "transition_kernel", SimulatedKernel(hopper, "transition_kernel", gated=gated)
    )
    generator = torch.Generator().manual_seed(rows)
    width = 4 * channels
    columns = width * (1 + is_gated)
    shapes = [(channels,), (channels,), (channels, columns), (columns,), (width, channels), (channels,)]
    weights = TransitionWeights(
        *(
            (
                torch.randn(shape, generator=generator) * (shape[0] ** -0.5 if len(shape) == 2 else 1)
            ).bfloat16()
            for shape in shapes
        )
    )
    x = (3 + torch.randn(rows, channels, generator=generator)).bfloat16()
    exact = reference.transition(x.double(), TransitionWeights(*(w.double() for w in weights)))
    plain = reference.transition(x, weights)
    if add:
        exact, plain = exact + x.double(), plain + x
    result = hopper.transition(x, weights, add=add)
    assert (result is x) == add
    compare(result, plain, exact)
