"""The pair bias kernel for Hopper, run by the Gluon simulator, against float64."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.pair_bias import hopper, reference
from tests.cuda.fused.gluon_simulator import SimulatedKernel

Compare = Callable[..., None]


@pytest.mark.parametrize("tailed", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("length", "heads"), [(1, 8), (17, 4), (33, 8), (64, 1), (70, 4)])
def test_matches_float64(
    length: int,
    heads: int,
    swapped: bool,
    tailed: bool,
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hopper, "pair_bias_kernel", SimulatedKernel(hopper, "pair_bias_kernel"))
    channels = 128
    generator = torch.Generator().manual_seed(length)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).bfloat16()

    pair = 3 + draw(length, length, channels)
    if tailed:
        pair /= draw(length, length, channels).abs().clamp(min=1e-3)
    if swapped:
        pair = pair.transpose(0, 1)
    layer = draw(channels), draw(channels), draw(channels, heads)
    assert hopper.supports(pair, heads)
    padded_keys = -(-length // 32) * 32
    # NaN wherever the kernel does not write
    result = torch.full((heads, length, padded_keys), torch.nan).bfloat16()
    rows = length // 3
    for part in (slice(0, rows), slice(rows, length)) if rows else (slice(None),):
        hopper.write_pair_bias(pair[part], *layer, queries := torch.full_like(result[:, part], torch.nan))
        result[:, part] = queries
    exact = reference.pair_bias(pair.double(), *(x.double() for x in layer))
    compare(result[..., :length], reference.pair_bias(pair, *layer), exact)
    assert (result[..., length:] == float("-inf")).all()
