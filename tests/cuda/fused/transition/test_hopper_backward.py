"""The kernel of the transition's backward pass for Hopper, run by the Gluon simulator, against float64."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.transition import TransitionWeights, differentiable, hopper_backward, triton_backward
from tests.cuda.fused.gluon_simulator import SimulatedKernel

Compare = Callable[..., None]


def reference_gradients(
    upstream: torch.Tensor, inputs: list[torch.Tensor], dtype: torch.dtype
) -> list[torch.Tensor]:
    x, *weights = leaves = [tensor.to(dtype, copy=True).requires_grad_() for tensor in inputs]
    result = differentiable.transition_reference(x, TransitionWeights(*weights))
    return list(torch.autograd.grad(result, leaves, upstream.to(dtype)))


def reference_fold(weights: TransitionWeights) -> tuple[torch.Tensor, torch.Tensor]:
    scale, offset, widen, bias = (w.float() for w in weights[:4])
    return (scale[:, None] * widen).to(weights.widen.dtype), bias + offset @ widen


def reference_unfold(weights: TransitionWeights, gradient: torch.Tensor, vectors: torch.Tensor) -> None:
    scale, offset, widen = (w.float() for w in weights[:3])
    channels, bias = len(scale), vectors[3 * len(scale) :]
    vectors[:channels] = (widen * gradient).sum(1)
    vectors[channels : 2 * channels] = widen @ bias
    gradient.mul_(scale[:, None]).add_(offset[:, None] * bias)


@pytest.mark.parametrize(
    ("rows", "channels"), [(1, 64), (300, 64), (129, 128), (700, 128), (65, 256), (500, 256)]
)
def test_matches_float64(rows: int, channels: int, compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper_backward, "check_tensors", lambda *_: None)
    monkeypatch.setattr(triton_backward, "sum_rows", lambda x, out: torch.sum(x, 0, out=out))
    monkeypatch.setattr(hopper_backward, "fold", reference_fold)
    monkeypatch.setattr(hopper_backward, "unfold", reference_unfold)
    name = "transition_gradients_kernel"
    monkeypatch.setattr(hopper_backward, name, SimulatedKernel(hopper_backward, name))
    generator = torch.Generator().manual_seed(rows)
    width = 4 * channels
    shapes = [(channels,), (channels,), (channels, width), (width,), (width, channels), (channels,)]
    weights = [
        (torch.randn(shape, generator=generator) * (shape[0] ** -0.5 if len(shape) == 2 else 1)).bfloat16()
        for shape in shapes
    ]
    x = (3 + torch.randn(rows, channels, generator=generator)).bfloat16()
    upstream = torch.randn(rows, channels, generator=generator).bfloat16()
    result = hopper_backward.transition_backward(upstream, x, TransitionWeights(*weights))
    plain = reference_gradients(upstream, [x, *weights], torch.bfloat16)
    exact = reference_gradients(upstream, [x, *weights], torch.float64)
    vectors = result.vectors.split([channels, channels, channels, width])
    norm_scale, norm_offset, narrow_bias, widen_bias = vectors
    gradients = (result.x, norm_scale, norm_offset, result.widen, widen_bias, result.narrow, narrow_bias)
    for gradient, expected, true in zip(gradients, plain, exact, strict=True):
        compare(gradient.to(torch.bfloat16), expected, true)
