"""The transition with gradients, for training.

`transition_fused` is an operator of `torch.library`, so that `torch.compile` keeps it in one graph with its
neighbours. Of the activations it keeps only its input for the backward pass.
"""

from collections.abc import Sequence

import torch

from cuda.fused.dispatch import implementation_module, kernel_implementation
from cuda.fused.layer_norm.reference import wide_layer_norm
from cuda.fused.transition.reference import TransitionWeights


def transition(x: torch.Tensor, weights: TransitionWeights, *, fused: bool) -> torch.Tensor:
    """Compute the update W₂ relu(W₁ LN(x) + b₁) + b₂ of x [..., C]; LayerNorm computes in float32.

    Matrices and biases are converted to x's dtype. The fused kernels take at most 256 channels.
    """
    return transition_fused(x, weights) if fused else transition_reference(x, weights)


def transition_reference(x: torch.Tensor, weights: TransitionWeights) -> torch.Tensor:
    """Compute `transition` in plain PyTorch."""
    scale, offset, *matrices = weights
    normed = wide_layer_norm(x, scale, offset)
    widen, widen_bias, narrow, narrow_bias = (w.to(x.dtype) for w in matrices)
    return torch.relu(normed @ widen + widen_bias) @ narrow + narrow_bias


def transition_fused(x: torch.Tensor, weights: TransitionWeights) -> torch.Tensor:
    """Compute `transition` in fused kernels."""
    result: torch.Tensor = _transition(x, *weights[:2], *(w.to(x.dtype) for w in weights[2:]))
    return result


@torch.library.custom_op("foldcli::transition", mutates_args=())
def _transition(
    x: torch.Tensor,
    norm_scale: torch.Tensor,
    norm_offset: torch.Tensor,
    widen: torch.Tensor,
    widen_bias: torch.Tensor,
    narrow: torch.Tensor,
    narrow_bias: torch.Tensor,
) -> torch.Tensor:
    weights = TransitionWeights(norm_scale, norm_offset, widen, widen_bias, narrow, narrow_bias)
    kernels = implementation_module("transition", kernel_implementation(x.device), x.device)
    result: torch.Tensor = kernels.transition(x.contiguous(), weights)
    return result


_transition.register_fake(lambda x, *weights: x.new_empty(x.shape))


@torch.library.custom_op("foldcli::transition_backward", mutates_args=())
def _transition_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    norm_scale: torch.Tensor,
    norm_offset: torch.Tensor,
    widen: torch.Tensor,
    widen_bias: torch.Tensor,
    narrow: torch.Tensor,
    narrow_bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of x and the weights; see `triton_backward.TransitionGradients`."""
    # Triton is optional, and Gluon differs between its versions
    if kernel_implementation(x.device) == "hopper":
        from cuda.fused.transition.hopper_backward import transition_backward  # imports Gluon
    else:
        from cuda.fused.transition.triton_backward import transition_backward  # imports Triton

    weights = TransitionWeights(norm_scale, norm_offset, widen, widen_bias, narrow, narrow_bias)
    gradients = transition_backward(
        gradient.contiguous().flatten(0, -2),
        x.contiguous().flatten(0, -2),
        TransitionWeights(*(w.contiguous() for w in weights)),
    )
    return gradients.x.view(x.shape), gradients.widen, gradients.narrow, gradients.vectors


@_transition_backward.register_fake
def _(gradient: torch.Tensor, x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    _, _, widen, _, narrow, _ = weights
    length = widen.shape[1] + 3 * widen.shape[0]
    shapes: tuple[Sequence[int], ...] = (widen.shape, narrow.shape, (length,))
    return x.new_empty(x.shape), *(x.new_empty(shape, dtype=torch.float32) for shape in shapes)


def _differentiate(ctx, gradient):  # type: ignore[no-untyped-def]
    # conversions are outside of the operator, so that torch.compile can fuse them
    x, *weights = ctx.saved_tensors
    x_gradient, widen, narrow, vectors = _transition_backward(gradient, x, *weights)
    channels, width = widen.shape
    norm_scale, norm_offset, narrow_bias, widen_bias = vectors.split([channels, channels, channels, width])
    gradients = TransitionWeights(norm_scale, norm_offset, widen, widen_bias, narrow, narrow_bias)
    return x_gradient, *(g.to(w.dtype) for g, w in zip(gradients, weights, strict=True))


_transition.register_autograd(
    _differentiate, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)
