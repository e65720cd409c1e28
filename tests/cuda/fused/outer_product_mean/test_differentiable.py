"""Projected outer products in chunks equal those computed at once, with their gradients."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.outer_product_mean import differentiable
from tests.cuda.fused.gradients import compare_gradients


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("elements", [1, 2000, 2**23])
@pytest.mark.parametrize("sizes", [(1, 3, 5, 4, 6), (2, 7, 13, 8, 16), (3, 1, 1, 2, 1)])
def test_chunks_have_the_same_gradients(
    sizes: tuple[int, int, int, int, int],
    elements: int,
    dtype: torch.dtype,
    compare: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(differentiable, "CHUNK_ELEMENTS", elements)
    batch, sequences, length, inner, channels = sizes
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, sequences, length, inner)] * 2 + [(inner, inner, channels)]
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    compare_gradients(compare, differentiable.project_outer_fused, differentiable.project_outer, inputs)


@pytest.mark.parametrize(
    ("dtype", "length", "padded"),
    [
        (torch.bfloat16, 16, (256, 16)),
        (torch.bfloat16, 17, (256, 24)),
        (torch.bfloat16, 256, (130, 256)),
        (torch.bfloat16, 257, (130, 264)),
        (torch.float32, 17, (130, 17)),
    ],
)
def test_padding(dtype: torch.dtype, length: int, padded: tuple[int, int]) -> None:
    factor = torch.ones(1, 130, length, 32, dtype=dtype)
    result = differentiable._pad(factor)
    assert result.shape == (1, *padded, 32)
    assert torch.equal(result[:, :130, :length], factor) and result.sum() == factor.sum()
