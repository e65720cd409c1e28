"""LayerNorm folded into the first projection of the transition: kernels against float64."""

import pytest
import torch

from cuda.fused.transition import TransitionWeights
from cuda.fused.transition.folded_norm import fold, unfold
from tests.cuda.fused.environment import DEVICE

ROWS = 40


@pytest.mark.parametrize("channels", [64, 128, 256])
def test_projection_and_gradients(channels: int) -> None:
    generator = torch.Generator().manual_seed(channels)
    width = 4 * channels
    shapes = ((channels,), (channels,), (channels, width), (width,), (width, channels), (channels,))
    tensors = [torch.randn(shape, generator=generator).to(DEVICE) for shape in shapes]
    weights = TransitionWeights(*tensors)
    standard = torch.randn(ROWS, channels, generator=generator).to(DEVICE)
    upstream = torch.randn(ROWS, width, generator=generator).to(DEVICE)

    scale, offset, widen, bias = leaves = [w.double().requires_grad_() for w in tensors[:4]]
    exact = (standard.double() * scale + offset) @ widen + bias
    expected = torch.autograd.grad(exact, leaves, upstream.double())

    folded, folded_bias = fold(weights)
    torch.testing.assert_close(standard @ folded + folded_bias, exact.float(), rtol=1e-4, atol=1e-3)

    gradient = standard.mT @ upstream
    vectors = torch.full((3 * channels + width,), torch.nan, device=DEVICE)
    vectors[3 * channels :] = upstream.sum(0)
    unfold(weights, gradient, vectors)
    for result, true in (
        (vectors[:channels], expected[0]),
        (vectors[channels : 2 * channels], expected[1]),
        (gradient, expected[2]),
    ):
        torch.testing.assert_close(result, true.float(), rtol=1e-4, atol=2e-3)
    assert vectors[2 * channels : 3 * channels].isnan().all()


def test_folded_weights_have_the_dtype_of_the_projection() -> None:
    c, w = 64, 256
    shapes = ((c,), (c,), (c, w), (w,), (w, c), (c,))
    weights = TransitionWeights(*(torch.ones(shape, device=DEVICE).bfloat16() for shape in shapes))
    folded, bias = fold(weights)
    assert folded.dtype == torch.bfloat16 and bias.dtype == torch.float32
    assert (folded == 1).all() and (bias == 1 + c).all()
