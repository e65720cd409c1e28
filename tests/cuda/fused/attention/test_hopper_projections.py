"""Attention's projection kernel for Hopper, run by the Gluon simulator, against float64."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.attention import AttentionWeights, hopper_projections
from cuda.fused.layer_norm.reference import layer_norm
from tests.cuda.fused.gluon_simulator import SimulatedKernel

Compare = Callable[..., None]


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernel in the simulator."""
    monkeypatch.setattr(
        hopper_projections, "project_kernel", SimulatedKernel(hopper_projections, "project_kernel")
    )


def random_weights(channels: int, heads: int, width: int) -> AttentionWeights:
    generator = torch.Generator().manual_seed(channels)
    shapes: list[tuple[int, ...]] = [(channels,), (channels,), *[(channels, heads, width)] * 4]
    shapes += [(heads, width), (heads, width, channels), (channels,)]
    scales = (1.0 if len(shape) < 3 else shape[0] ** -0.5 for shape in shapes)
    return AttentionWeights(
        *(
            (scale * torch.randn(shape, generator=generator)).bfloat16()
            for shape, scale in zip(shapes, scales, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("shape", "channels", "heads", "width", "part"),
    [
        ((1, 1), 64, 8, 8, False),
        ((3, 70), 64, 8, 8, True),
        ((20, 33), 128, 4, 32, False),
        ((5, 65), 128, 4, 32, True),
        ((7, 64), 256, 8, 32, False),
        ((2, 129), 256, 8, 32, True),
    ],
)
@pytest.mark.parametrize("tailed", [False, True])
def test_matches_float64(
    shape: tuple[int, int],
    channels: int,
    heads: int,
    width: int,
    part: bool,
    tailed: bool,
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(channels)
    x = 3 + torch.randn(*shape, channels, generator=generator)
    if tailed:
        x /= torch.randn(x.shape, generator=generator)
    x = x.bfloat16()
    if part:
        # strides of some of the columns of an MSA
        x = x[:, : shape[1] - 1]
    weights = random_weights(channels, heads, width)
    # NaN wherever the kernel does not write
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *size: self.new_full(size, torch.nan))
    assert hopper_projections.supports(x, 4 * heads * width)
    four = torch.cat([w.flatten(1) for w in weights[2:6]], dim=1)
    norm = weights.norm_scale, weights.norm_offset
    exact = layer_norm(x.double(), *(w.double() for w in norm)) @ four.double()
    compare(hopper_projections.project(x, weights), layer_norm(x, *norm) @ four, exact)
