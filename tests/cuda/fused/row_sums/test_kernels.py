"""Sums of rows, against float64."""

import pytest
import torch

from cuda.fused.row_sums import sum_rows
from tests.cuda.fused.environment import DEVICE


@pytest.mark.parametrize("rows", [0, 1, 2, 127, 129, 1000, 128 * 128 + 3])
@pytest.mark.parametrize("shape", [(), (1,), (33,), (2, 64), (3, 5, 7)])
def test_sum_rows(rows: int, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, *shape, generator=generator).to(DEVICE)
    result = sum_rows(x)
    assert result.shape == shape and result.dtype == torch.float32
    out = torch.full((result.numel(),), torch.nan, device=DEVICE)
    sum_rows(x, out)
    assert torch.equal(out, result.flatten())
    exact, magnitude = x.double().sum(0), x.double().abs().sum(0)
    assert ((result - exact).abs() <= 1e-6 * magnitude).all()
