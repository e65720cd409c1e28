"""The transition kernel for Hopper, run by the Gluon simulator, against float64."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.transition import TransitionWeights, hopper, reference
from tests.cuda.fused.gluon_simulator import SimulatedKernel

Compare = Callable[..., None]


@pytest.mark.parametrize(
    ("rows", "channels", "add"),
    [
        (1, 64, False),
        (300, 64, True),
        (129, 128, True),
        (700, 128, False),
        (65, 256, False),
        (500, 256, True),
    ],
)
def test_matches_float64(
    rows: int, channels: int, add: bool, compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hopper, "check_tensors", lambda *_: None)
    monkeypatch.setattr(hopper, "transition_kernel", SimulatedKernel(hopper, "transition_kernel"))
    generator = torch.Generator().manual_seed(rows)
    width = 4 * channels
    shapes = [(channels,), (channels,), (channels, width), (width,), (width, channels), (channels,)]
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
    result = x if add else torch.full_like(x, torch.nan)
    hopper.write_update(x, weights, result, add)
    compare(result, plain, exact)
