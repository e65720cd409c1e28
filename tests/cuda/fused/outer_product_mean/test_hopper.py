"""The outer product mean kernel for Hopper, run by the Gluon simulator, against float64."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.outer_product_mean import OuterProductMeanWeights, differentiable, hopper, reference
from tests.cuda.fused.gluon_simulator import SimulatedKernel

Compare = Callable[..., None]
INNER, PAIR = 32, 128


@pytest.mark.parametrize(
    ("sequences", "length", "with_counts"),
    [
        (1, 1, False),
        (130, 17, True),
        (512, 6, False),
        pytest.param(300, 70, True, marks=pytest.mark.slow),
    ],
)
def test_matches_float64(
    sequences: int,
    length: int,
    with_counts: bool,
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
        return (
            pair.double() + (torch.einsum("ijce,cez->ijz", outer, output.double()) + bias.double()) / divisor
        )

    exact, plain = finished(outer), finished(outer.bfloat16().double()).bfloat16()
    result = pair.clone()
    columns = length // 3
    for part in (slice(0, columns), slice(columns, length)):
        hopper.contract_factors(
            left.flatten(1),
            b[:, part].flatten(1),
            weights,
            None if counts is None else counts[:, part],
            result[:, part],
        )
    compare(result, plain, exact)


def test_rows_of_the_pair_representation(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper, "outer_product_kernel", SimulatedKernel(hopper, "outer_product_kernel"))
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).bfloat16()

    weights = OuterProductMeanWeights(*[torch.empty(0)] * 6, draw(INNER, INNER, PAIR) / INNER, draw(PAIR))
    rows, length, sequences = 7, 9, 3
    left, right = draw(rows, INNER, sequences), draw(sequences, length, INNER)
    double = OuterProductMeanWeights(*(w.double() for w in weights))
    exact = reference.contract_factors(left.double(), right.double(), double, None)
    plain = reference.contract_factors(left, right, weights, None)
    padded = left.new_full((sequences, INNER, hopper.padded_length(rows)), torch.nan)
    padded[..., :rows] = left.permute(2, 1, 0)
    result = torch.zeros_like(plain)
    hopper.contract_factors(padded.flatten(1), right.flatten(1), weights, None, result)
    compare(result, plain, exact)


@pytest.mark.parametrize(("batch", "sequences", "length"), [(1, 130, 17), (2, 3, 66)])
def test_projection_of_factors(
    batch: int, sequences: int, length: int, compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hopper, "outer_product_kernel", SimulatedKernel(hopper, "outer_product_kernel"))
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, sequences, length, INNER)] * 2 + [(INNER, INNER, PAIR)]
    left, right, output = (torch.randn(shape, generator=generator).bfloat16() for shape in shapes)
    exact = differentiable.project_outer(left.double(), right.double(), output.double())
    plain = differentiable.project_outer(left, right, output)
    compare(hopper.project_outer(left, right, output.flatten(0, 1)), plain, exact)
