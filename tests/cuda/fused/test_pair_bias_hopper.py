"""The pair bias' kernel for Hopper against float64, its partitions as threads of Python."""

from collections.abc import Callable

import pytest
import torch

triton = pytest.importorskip("triton")

from cuda.fused.pair_bias import hopper, reference  # noqa: E402
from tests.cuda.fused.gluon_stand_in import InPython  # noqa: E402

Compare = Callable[..., None]


@pytest.mark.parametrize("tailed", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("length", "heads"), [(1, 8), (17, 4), (33, 8), (64, 1), (70, 4)])
def test_against_float64(
    length: int,
    heads: int,
    swapped: bool,
    tailed: bool,
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hopper, "bias_kernel", InPython(hopper, "bias_kernel"))
    channels = 128
    generator = torch.Generator().manual_seed(length)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).bfloat16()

    pair = 3 + draw(length, length, channels)
    if tailed:
        pair /= draw(length, length, channels).abs().clamp(min=1e-3)
    if swapped:
        pair = pair.transpose(0, 1)
    given = draw(channels), draw(channels), draw(channels, heads)
    assert hopper.suits(pair, heads)
    room = -(-length // 32) * 32
    # poisoned, so that what is not written shows
    ours = torch.full((heads, length, room), torch.nan).bfloat16()
    hopper.write_bias(pair, *given, ours)
    exact = reference.pair_bias(pair.double(), *(x.double() for x in given))
    compare(ours[..., :length], reference.pair_bias(pair, *given), exact)
    assert (ours[..., length:] == float("-inf")).all()
