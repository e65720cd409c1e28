"""Triangle multiplication with gradients and a batch axis, for training.

`update_fused` is an operator of `torch.library`, so that `torch.compile` keeps it in one graph with its
neighbours.
"""

import torch

from cuda.fused.layer_norm.differentiable import layer_norm
from cuda.fused.layer_norm.reference import wide_layer_norm
from cuda.fused.triangle_multiplication.reference import TriangleMultiplicationWeights


def triangle_multiplication(
    pair: torch.Tensor,
    weights: TriangleMultiplicationWeights,
    mask: torch.Tensor | None = None,
    *,
    outgoing: bool,
    fused: bool,
) -> torch.Tensor:
    """Compute the update of Algorithm 11 or 12 of pair [B, N, N, C].

    The mask [B, N, N] is 1 for real pairs; None for all. Edges are outgoing from i and j (Algorithm 11) or
    enter them (Algorithm 12). `fused` runs the Triton kernels.
    """
    if mask is None:
        mask = pair.new_ones(pair.shape[:3])
    normed = layer_norm(pair, weights.norm_scale, weights.norm_offset, fused=fused)
    update = update_fused if fused else update_reference
    return update(normed, weights, mask, outgoing)


def _converted(weights: TriangleMultiplicationWeights, dtype: torch.dtype) -> TriangleMultiplicationWeights:
    """Return weights with all matrices and biases in a dtype, but not scales and offsets of LayerNorm."""
    values = {name: w.to(dtype) for name, w in weights._asdict().items()}
    kept = ("norm_scale", "norm_offset", "center_scale", "center_offset")
    return TriangleMultiplicationWeights(**values | {name: getattr(weights, name) for name in kept})


def packed_projection(weights: TriangleMultiplicationWeights) -> tuple[torch.Tensor, torch.Tensor]:
    """Return projection [C, 4*M+C] and bias: left and right values, their gates, gates of the update."""
    w = weights
    matrices = (w.left, w.right, w.left_gate, w.right_gate, w.gating)
    biases = (w.left_bias, w.right_bias, w.left_gate_bias, w.right_gate_bias, w.gating_bias)
    return torch.cat(matrices, dim=1), torch.cat(biases)


def update_reference(
    normed: torch.Tensor, weights: TriangleMultiplicationWeights, mask: torch.Tensor, outgoing: bool
) -> torch.Tensor:
    """Compute the update [B, N, N, C] of Algorithm 11 or 12 in plain PyTorch.

    The pair representation is normalised. Matrices and biases are converted to its dtype; the mask [B, N, N]
    is 1 for real pairs.
    """
    w = _converted(weights, normed.dtype)
    present = mask[..., None].to(normed.dtype)
    left = (normed @ w.left + w.left_bias) * torch.sigmoid(normed @ w.left_gate + w.left_gate_bias) * present
    right = (normed @ w.right + w.right_bias) * torch.sigmoid(normed @ w.right_gate + w.right_gate_bias)
    right = right * present
    left, right = left.permute(0, 3, 1, 2), right.permute(0, 3, 1, 2)  # [B, M, N, N]
    # DeepMind's incoming edges take the left factor from column j and the right one from column i
    product = left @ right.mT if outgoing else right.mT @ left
    product = product.permute(0, 2, 3, 1)  # [B, N, N, M]
    update = wide_layer_norm(product, w.center_scale, w.center_offset) @ w.output + w.output_bias
    return update * torch.sigmoid(normed @ w.gating + w.gating_bias)


def update_fused(
    normed: torch.Tensor, weights: TriangleMultiplicationWeights, mask: torch.Tensor, outgoing: bool
) -> torch.Tensor:
    """Compute `update_reference` with Triton kernels between the matrix products."""
    w = _converted(weights, normed.dtype)
    center = (w.center_scale, w.center_offset)
    result = _update(normed, mask, *packed_projection(w), *center, w.output, w.output_bias, outgoing)[-1]
    return result.view(normed.shape)


@torch.library.custom_op("foldcli::triangle_update", mutates_args=())
def _update(
    normed: torch.Tensor,
    mask: torch.Tensor,
    projection: torch.Tensor,
    bias: torch.Tensor,
    center_scale: torch.Tensor,
    center_offset: torch.Tensor,
    output: torch.Tensor,
    output_bias: torch.Tensor,
    outgoing: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return intermediates for the backward pass, and last the update [P, C]."""
    # deferred: Triton is optional
    from cuda.fused.triangle_multiplication import triton_training

    packed = (projection.contiguous(), bias.contiguous())
    center = (center_scale.contiguous(), center_offset.contiguous())
    last = (output.contiguous(), output_bias.contiguous())
    saved = triton_training.update(normed.contiguous(), mask.contiguous(), *packed, *center, *last, outgoing)
    return tuple(saved)  # type: ignore[return-value]


@_update.register_fake
def _(normed, mask, projection, bias, center_scale, center_offset, output, output_bias, outgoing):  # type: ignore[no-untyped-def]
    batch, length, _, channels = normed.shape
    width, count = output.shape[0], batch * length * length
    return (
        normed.new_empty(count, projection.shape[1]),
        normed.new_empty(2 * width, batch, length, length),
        normed.new_empty(width, batch, length, length),
        normed.new_empty(2, count, dtype=torch.float32),
        normed.new_empty(count, width),
        normed.new_empty(count, channels),
    )


@torch.library.custom_op("foldcli::triangle_update_backward", mutates_args=())
def _update_backward(
    gradient: torch.Tensor,
    normed: torch.Tensor,
    mask: torch.Tensor,
    projection: torch.Tensor,
    center_scale: torch.Tensor,
    output: torch.Tensor,
    saved: list[torch.Tensor],
    outgoing: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients; see `triton_training.update_backward`."""
    # deferred: Triton is optional
    from cuda.fused.triangle_multiplication import triton_training

    of_result = (gradient.contiguous(), normed.contiguous(), mask.contiguous())
    weights = (projection.contiguous(), center_scale.contiguous(), output.contiguous())
    return triton_training.update_backward(*of_result, *weights, triton_training.Saved(*saved), outgoing)


@_update_backward.register_fake
def _(gradient, normed, mask, projection, center_scale, output, saved, outgoing):  # type: ignore[no-untyped-def]
    width, channels = output.shape
    wide = {"dtype": torch.promote_types(normed.dtype, torch.float32)}
    return (
        normed.new_empty(normed.shape),
        normed.new_empty(projection.shape, **wide),
        normed.new_empty(output.shape, **wide),
        normed.new_empty(4 * width + 2 * channels, dtype=torch.float32),
        normed.new_empty(2, width, dtype=torch.float32),
    )


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:-1], *output)
    ctx.set_materialize_grads(False)  # of the intermediates, zeros would be written
    ctx.outgoing = inputs[-1]


def _differentiate(ctx, *gradients):  # type: ignore[no-untyped-def]
    # conversions are outside of the operator, so that torch.compile can fuse them
    tensors = ctx.saved_tensors  # read once, as checkpointing demands
    normed, mask, *weights = tensors[:8]
    projection, _, center_scale, _, output, _ = weights
    saved = list(tensors[8:])
    normed_gradient, projection_gradient, output_gradient, biases, center = _update_backward(
        gradients[-1], normed, mask, projection, center_scale, output, saved, ctx.outgoing
    )
    bias, output_bias = biases.split([projection.shape[1], output.shape[1]])
    weight_gradients = projection_gradient, bias, center[0], center[1], output_gradient, output_bias
    converted = (g.to(w.dtype) for g, w in zip(weight_gradients, weights, strict=True))
    return normed_gradient, None, *converted, None


_update.register_autograd(_differentiate, setup_context=_save)
