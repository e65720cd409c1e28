"""Gradients of projected outer products: the kernel of the output weights, and all of them on a GPU."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.outer_product_mean import differentiable
from cuda.fused.outer_product_mean.triton_training import OutputGradient
from tests.cuda.fused.environment import DEVICE, INTERPRETED
from tests.cuda.fused.gradients import compare_gradients

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]


@pytest.mark.parametrize("chunks", [(5,), (3, 3, 1)])
@pytest.mark.parametrize("depth, channels", [(16, 16), (64, 24), (144, 160)])
def test_output_gradient_matches_float64(
    chunks: tuple[int, ...], depth: int, channels: int, length: int, draw: Draw, dtype: torch.dtype
) -> None:
    if dtype == torch.float32:
        pytest.skip("the kernel takes 16 bits")
    total = OutputGradient(depth, channels, chunks[0], draw(1))
    exact, magnitude = torch.zeros(2, depth, channels, dtype=torch.float64, device=DEVICE)
    for k, slices in enumerate(chunks):
        outer = draw(slices, depth, length, seed=k, tailed=True)
        gradient = draw(slices, length, channels, seed=10 + k)
        total.add(outer, gradient)
        exact += (outer.double() @ gradient.double()).sum(0)
        magnitude += (outer.double().abs() @ gradient.double().abs()).sum(0)
    assert total.total().dtype == torch.float32
    # exact products, whose sums a GPU truncates to float32 after every 16 terms
    assert ((total.total() - exact).abs() <= 3e-5 * magnitude).all()


@pytest.mark.skipif(INTERPRETED, reason="the kernels are chosen for GPUs")
@pytest.mark.parametrize("elements", [2**20, 2**26])
@pytest.mark.parametrize("batch, sequences", [(1, 128), (2, 33), (1, 600)])
def test_gradients_of_projected_outer_products(
    batch: int,
    sequences: int,
    elements: int,
    length: int,
    draw: Draw,
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(differentiable, "CHUNK_ELEMENTS", elements)
    factor = (batch, sequences, length, 32)
    # the gradient of the output weights is finite in float16
    factors = [draw(*factor, seed=seed, scale=0.3) for seed in range(2)]
    inputs = [*factors, draw(32, 32, 128, seed=2, scale=1 / 32)]
    compare_gradients(compare, differentiable.project_outer_fused, differentiable.project_outer, inputs)
