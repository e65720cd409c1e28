"""The outer product mean kernel for Hopper, run by the Gluon simulator, against float64."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.outer_product_mean import OuterProductMeanWeights, hopper
from tests.cuda.fused.gluon_simulator import SimulatedKernel

Compare = Callable[..., None]
INNER, PAIR = 32, 128


@pytest.mark.parametrize(
    ("sequences", "length", "with_counts", "add"),
    [
        (1, 1, False, False),
        (130, 17, True, True),
        (512, 6, False, True),
        pytest.param(300, 70, True, False, marks=pytest.mark.slow),
    ],
)
def test_matches_float64(
    sequences: int,
    length: int,
    with_counts: bool,
    add: bool,
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hopper, "outer_product_kernel", SimulatedKernel(hopper, "outer_product_kernel"))
    generator = torch.Generator().manual_seed(length)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    a, b = (draw(sequences, length, INNER).bfloat16() for _ in range(2))
    output, bias = (draw(INNER, INNER, PAIR) / INNER).bfloat16(), draw(PAIR).bfloat16()
    channels = [torch.empty(0)] * 6
    weights = OuterProductMeanWeights(*channels, output, bias)
    counts = 1 + draw(length, length).abs() if with_counts else None
    # NaN past the last residue
    left = torch.full((sequences, INNER, hopper.padded_length(length)), torch.nan).bfloat16()
    left[..., :length] = a.transpose(1, 2)
    pair = draw(length, length, PAIR).bfloat16()
    outer = torch.einsum("sic,sje->ijce", a.double(), b.double())
    divisor = sequences + hopper.EPSILON if counts is None else counts.double()[..., None]

    def finished(outer: torch.Tensor) -> torch.Tensor:
        update = (torch.einsum("ijce,cez->ijz", outer, output.double()) + bias.double()) / divisor
        return update + pair.double() if add else update

    exact, plain = finished(outer), finished(outer.bfloat16().double()).bfloat16()
    result = pair.clone() if add else torch.full_like(pair, torch.nan)
    hopper.contract_factors(left.flatten(1), b.flatten(1), weights, counts, result, add)
    compare(result, plain, exact)
