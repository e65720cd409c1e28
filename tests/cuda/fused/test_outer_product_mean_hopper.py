"""The outer product mean's kernel for Hopper against float64, its partitions as threads of Python."""

from collections.abc import Callable

import pytest
import torch

triton = pytest.importorskip("triton")

from cuda.fused.outer_product_mean import OuterProductMeanWeights, hopper  # noqa: E402
from tests.cuda.fused.gluon_stand_in import InPython  # noqa: E402

Compare = Callable[..., None]
INNER, PAIR = 32, 128


@pytest.mark.parametrize(
    ("sequences", "length", "counted", "add"),
    [(1, 1, False, False), (130, 17, True, True), (512, 6, False, True), (300, 70, True, False)],
)
def test_against_float64(
    sequences: int, length: int, counted: bool, add: bool, compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hopper, "_outer", InPython(hopper, "_outer"))
    generator = torch.Generator().manual_seed(length)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    a, b = (draw(sequences, length, INNER).bfloat16() for _ in range(2))
    output, bias = (draw(INNER, INNER, PAIR) / INNER).bfloat16(), draw(PAIR).bfloat16()
    channels = [torch.empty(0)] * 6
    weights = OuterProductMeanWeights(*channels, output, bias)
    counts = 1 + draw(length, length).abs() if counted else None
    # what lies past the last residue is anything
    left = torch.full((sequences, INNER, hopper.left_across(length)), torch.nan).bfloat16()
    left[..., :length] = a.transpose(1, 2)
    pair = draw(length, length, PAIR).bfloat16()
    outer = torch.einsum("sic,sje->ijce", a.double(), b.double())
    share = sequences + hopper.EPSILON if counts is None else counts.double()[..., None]

    def finished(outer: torch.Tensor) -> torch.Tensor:
        update = (torch.einsum("ijce,cez->ijz", outer, output.double()) + bias.double()) / share
        return update + pair.double() if add else update

    exact, plain = finished(outer), finished(outer.bfloat16().double()).bfloat16()
    result = pair.clone() if add else torch.full_like(pair, torch.nan)
    hopper.write_update(left.flatten(1), b.flatten(1), weights, counts, result, add)
    compare(result, plain, exact)
