"""The transition with gradients, for training.

`transition_fused` is an operator of `torch.library`, so that `torch.compile` keeps it in one graph with its
neighbours. It keeps nothing but its input for the backward pass.
"""

import torch

from cuda.fused.dispatch import implementation_module, kernel_implementation
from cuda.fused.layer_norm.reference import EPSILON
from cuda.fused.transition.reference import TransitionWeights


def transition_reference(x: torch.Tensor, weights: TransitionWeights) -> torch.Tensor:
    """Compute the update W₂ relu(W₁ LN(x) + b₁) + b₂ in plain PyTorch; LayerNorm computes in float32.

    Args:
        x: [..., C].
        weights: the layer's parameters; matrices and biases are converted to x's dtype.
    """
    scale, offset, *matrices = weights
    wide = x if x.dtype == torch.float64 else x.float()
    normed = torch.nn.functional.layer_norm(
        wide, x.shape[-1:], scale.to(wide.dtype), offset.to(wide.dtype), EPSILON
    ).to(x.dtype)
    widen, widen_bias, narrow, narrow_bias = (w.to(x.dtype) for w in matrices)
    return torch.relu(normed @ widen + widen_bias) @ narrow + narrow_bias


def transition_fused(x: torch.Tensor, weights: TransitionWeights) -> torch.Tensor:
    """Compute the same in fused kernels, for at most 256 channels."""
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


@_transition.register_fake
def _(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


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
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of x and the weights."""
    # deferred: Triton is optional
    from cuda.fused.transition import triton_backward

    weights = TransitionWeights(norm_scale, norm_offset, widen, widen_bias, narrow, narrow_bias)
    of_x, *of_weights = triton_backward.transition_backward(
        gradient.contiguous().flatten(0, -2),
        x.contiguous().flatten(0, -2),
        TransitionWeights(*(w.contiguous() for w in weights)),
    )
    converted = [of.to(w.dtype) for of, w in zip(of_weights, weights, strict=True)]
    return of_x.view(x.shape), *converted  # type: ignore[return-value]


@_transition_backward.register_fake
def _(gradient: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in inputs)


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, gradient):  # type: ignore[no-untyped-def]
    return tuple(_transition_backward(gradient, *ctx.saved_tensors))


_transition.register_autograd(_differentiate, setup_context=_save)
