"""Gated attention with gradients and a batch axis, for training.

`attend_fused` is an operator of `torch.library`, so that `torch.compile` keeps it in one graph with its
neighbours. Its kernels save two numbers per query and head for the backward pass, which recomputes the
softmax weights.
"""

import torch

from cuda.fused.attention.reference import MASK_PENALTY, AttentionWeights
from cuda.fused.dispatch import implementation_module, kernel_implementation
from cuda.fused.layer_norm.reference import wide_layer_norm


def attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    *,
    fused: bool,
) -> torch.Tensor:
    """Compute gated self-attention of LN(x) along axis 2, independently for each entry of axes 0 and 1.

    Args:
        x: [B, R, L, C].
        weights: the layer's parameters, of x's dtype.
        mask: [B, R, L], 1 for keys that may be attended to, or None for all.
        pair_bias: [B, H, L, L], the same for all R, or None.
        fused: run the Triton kernels.

    Returns:
        [B, R, L, O], the update.
    """
    normed = wide_layer_norm(x, weights.norm_scale, weights.norm_offset)
    projection = torch.cat([w.flatten(1) for w in weights[2:6]], dim=1)  # [C, 4*H*D]
    gated = attend(normed @ projection, weights.gating_bias, mask, pair_bias, fused=fused)
    return gated @ weights.output.flatten(0, 1) + weights.output_bias


def attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    *,
    fused: bool,
) -> torch.Tensor:
    """Compute softmax(q kᵀ · scale + bias) v ⊙ sigmoid(g + b) of projected inputs, [B, R, L, H*D].

    Args:
        projected: [B, R, L, 4*H*D], queries, keys, values and gates; the kernels take heads of 8, 16, 32 or
            64 channels.
        gating_bias: [H, D].
        mask: [B, R, L], or [B, 1, L] for all R, or None.
        pair_bias: [B, H, L, L], or None.
        fused: run the Triton kernels.
    """
    function = attend_fused if fused else attend_reference
    return function(projected, gating_bias, mask, pair_bias)


def attend_reference(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
) -> torch.Tensor:
    """Compute `attend` in plain PyTorch."""
    heads, width = gating_bias.shape
    query, key, value, gate = projected.split(heads * width, dim=-1)  # each [B, R, L, H*D]
    query, key, value = (y.unflatten(-1, (heads, width)).transpose(2, 3) for y in (query, key, value))
    logits = (query * width**-0.5) @ key.transpose(-1, -2)  # [B, R, H, L, L]
    if logits.dtype != torch.float64:
        logits = logits.float()
    if mask is not None:
        logits = logits + MASK_PENALTY * (mask[:, :, None, None].to(logits.dtype) - 1.0)
    if pair_bias is not None:
        logits = logits + pair_bias[:, None]
    attended = torch.softmax(logits, dim=-1).to(value.dtype) @ value  # [B, R, H, L, D]
    return attended.transpose(2, 3).flatten(3) * torch.sigmoid(gate + gating_bias.flatten())


def attend_fused(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
) -> torch.Tensor:
    """Compute `attend` in fused kernels."""
    gated: torch.Tensor = _attend(projected, gating_bias, mask, pair_bias)[0]
    return gated


def _mask_of_rows(mask: torch.Tensor | None, projected: torch.Tensor) -> torch.Tensor | None:
    """Return the mask [B*R, L]; with a stride of 0 if all rows have the same."""
    return None if mask is None else mask.expand(projected.shape[:3]).flatten(0, 1)


@torch.library.custom_op("foldcli::attend", mutates_args=())
def _attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the result [B, R, L, H*D] and two statistics [B*R, H, L] for the backward pass."""
    kernels = implementation_module("attention", kernel_implementation(projected.device), projected.device)
    flat = projected.contiguous().flatten(0, 1)
    heads, width = gating_bias.shape
    gated = flat.new_empty(*flat.shape[:2], heads * width)
    maximum, total = (
        flat.new_empty(flat.shape[0], heads, flat.shape[1], dtype=torch.float32) for _ in range(2)
    )
    kernels.attend(
        flat,
        gating_bias.to(flat.dtype),
        _mask_of_rows(mask, projected),
        None if pair_bias is None else pair_bias.to(flat.dtype),
        gated,
        (maximum, total),
    )
    return gated.view(*projected.shape[:3], -1), maximum, total


@_attend.register_fake
def _(
    projected: torch.Tensor, gating_bias: torch.Tensor, *_: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, rows, length = projected.shape[:3]
    heads, width = gating_bias.shape
    maximum, total = (projected.new_empty(batch * rows, heads, length, dtype=torch.float32) for _ in range(2))
    return projected.new_empty(batch, rows, length, heads * width), maximum, total


@torch.library.custom_op("foldcli::attend_backward", mutates_args=())
def _attend_backward(
    gradient: torch.Tensor,
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    gated: torch.Tensor,
    maximum: torch.Tensor,
    total: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of projected, gating_bias, and pair_bias (empty without one)."""
    # deferred: Triton is optional
    from cuda.fused.attention import triton_backward

    flat = projected.contiguous().flatten(0, 1)
    projected_gradient, gating_bias_gradient, pair_bias_gradient = triton_backward.attend_backward(
        gradient.flatten(0, 1),
        flat,
        gating_bias.to(flat.dtype),
        _mask_of_rows(mask, projected),
        None if pair_bias is None else pair_bias.to(flat.dtype),
        gated.flatten(0, 1),
        (maximum, total),
    )
    if pair_bias_gradient is None or pair_bias is None:
        pair_bias_gradient = flat.new_empty(0)
    else:
        pair_bias_gradient = pair_bias_gradient.to(pair_bias.dtype)
    gating_bias_gradient = gating_bias_gradient.to(gating_bias.dtype)
    return projected_gradient.view(projected.shape), gating_bias_gradient, pair_bias_gradient


@_attend_backward.register_fake
def _(
    gradient: torch.Tensor,
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    *_: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    pair_bias_gradient = (
        projected.new_empty(0)
        if pair_bias is None
        else torch.empty(pair_bias.shape, dtype=pair_bias.dtype, device=pair_bias.device)
    )
    projected_gradient = torch.empty(projected.shape, dtype=projected.dtype, device=projected.device)
    return projected_gradient, torch.empty_like(gating_bias), pair_bias_gradient


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs, *output)


def _differentiate(ctx, gradient, *_):  # type: ignore[no-untyped-def]
    projected, gating_bias, mask, pair_bias, gated, maximum, total = ctx.saved_tensors
    projected_gradient, gating_bias_gradient, pair_bias_gradient = _attend_backward(
        gradient, projected, gating_bias, mask, pair_bias, gated, maximum, total
    )
    return projected_gradient, gating_bias_gradient, None, None if pair_bias is None else pair_bias_gradient


_attend.register_autograd(_differentiate, setup_context=_save)
