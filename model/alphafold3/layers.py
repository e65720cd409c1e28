"""Layers shared by the parts of the network.

Parameters have the names and shapes of OpenFold3's files (a linear layer has `weight` [out, in]), except for
the layers reused from AlphaFold2's network; see `model.checkpoints.openfold3`. Algorithm numbers are those of
the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from cuda.fused.chunking import row_slices
from cuda.fused.layer_norm import layer_norm

# the kernel takes no more
MAX_KERNEL_CHANNELS = 1024
# added to the logits of masked keys
MASK_PENALTY = -1e9
# A float mask, 1 for real positions; None means all ones.
Mask = torch.Tensor | None


def linear(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    """Return a linear layer, which has no bias unless one is requested."""
    return nn.Linear(inputs, outputs, bias=bias)


def run_block(block: Callable[..., Any], *arguments: Any) -> Any:
    """Call a block of a stack; if gradients are recorded, the backward pass computes its inside again."""
    if not torch.is_grad_enabled():
        return block(*arguments)
    return checkpoint(block, *arguments, use_reentrant=False)


class Norm(nn.LayerNorm):
    """A LayerNorm, with a kernel for narrow rows on a GPU.

    Args:
        channels: size of the last axis.
        offset: whether it has an offset.
    """

    def __init__(self, channels: int, *, offset: bool = True) -> None:
        super().__init__(channels, bias=offset)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., C]."""
        return normalise(x, self.weight, self.bias)


def scale_norm(channels: int) -> Norm:
    """Return a LayerNorm with a scale and without an offset."""
    return Norm(channels, offset=False)


def normalise(
    x: torch.Tensor, scale: torch.Tensor | None = None, offset: torch.Tensor | None = None
) -> torch.Tensor:
    """Normalise the last axis of x [..., C], and apply scale [C] and offset [C] if there are any."""
    if not x.is_cuda or x.shape[-1] > MAX_KERNEL_CHANNELS or torch.is_grad_enabled():
        return F.layer_norm(x, x.shape[-1:], scale, offset)
    ones, zeros = _constants(x.shape[-1], x.dtype, x.device)
    return layer_norm(x, ones if scale is None else scale, zeros if offset is None else offset)


@cache
def _constants(channels: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(channels, dtype=dtype, device=device), torch.zeros(channels, dtype=dtype, device=device)


class SwiGLU(nn.Module):
    """The gated widening of a transition: silu(x A) · (x B)."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.linear_a = linear(channels, width)
        self.linear_b = linear(channels, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Widen x [..., C] to [..., W]."""
        return F.silu(self.linear_a(x)).mul_(self.linear_b(x))


class Transition(nn.Module):
    """The transition (Algorithm 11), including the residual connection."""

    def __init__(self, channels: int, factor: int) -> None:
        super().__init__()
        self.layer_norm = Norm(channels)
        self.swiglu = SwiGLU(channels, channels * factor)
        self.linear_out = linear(channels * factor, channels)

    def forward(self, x: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Add the update, masked by mask [...], to contiguous x [..., C] in place, and return x."""
        flat = x.view(-1, x.shape[-1])
        flat_mask = None if mask is None else mask.reshape(-1)
        for rows in row_slices(flat, 2 * self.linear_out.in_features):
            flat[rows] += self.update(flat[rows], None if flat_mask is None else flat_mask[rows])
        return x

    def update(self, x: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Return the update of x [..., C], masked by mask [...]."""
        update = self.linear_out(self.swiglu(self.layer_norm(x)))
        return update if mask is None else update * mask[..., None]


class Modulation(NamedTuple):
    """The effect of a conditioning signal on one layer: scale and shift of its input, gate of its output.

    Args:
        scale: [..., C].
        shift: [..., C].
        gate: [..., C]; of keys, which have no output, None.
    """

    scale: torch.Tensor
    shift: torch.Tensor
    gate: torch.Tensor | None = None

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., C], then scale and shift it (last line of Algorithm 26)."""
        return torch.addcmul(self.shift, self.scale, normalise(x))

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply x [..., C] by the gate, if there is one."""
        return x if self.gate is None else self.gate * x


class AdaptiveLayerNorm(nn.Module):
    """The LayerNorm whose scale and shift depend on a conditioning signal (Algorithm 26)."""

    def __init__(self, channels: int, condition_channels: int) -> None:
        super().__init__()
        self.layer_norm_s = scale_norm(condition_channels)
        self.linear_g = linear(condition_channels, channels, bias=True)
        self.linear_s = linear(condition_channels, channels)

    def forward(self, condition: torch.Tensor, gate: nn.Linear | None = None) -> Modulation:
        """Compute the modulation by a condition [..., S].

        Args:
            condition: [..., S].
            gate: projects the condition to the logit of the output's gate.
        """
        normed = self.layer_norm_s(condition)
        return Modulation(
            torch.sigmoid(self.linear_g(normed)),
            self.linear_s(normed),
            None if gate is None else torch.sigmoid(gate(condition)),
        )


class ConditionedTransition(nn.Module):
    """The transition of the diffusion module (Algorithm 25), including the residual connection."""

    def __init__(self, channels: int, condition_channels: int, factor: int) -> None:
        super().__init__()
        self.layer_norm = AdaptiveLayerNorm(channels, condition_channels)
        self.swiglu = SwiGLU(channels, channels * factor)
        self.linear_g = linear(condition_channels, channels, bias=True)
        self.linear_out = linear(channels * factor, channels)

    def modulation(self, condition: torch.Tensor) -> Modulation:
        """Compute what a condition [..., S] does to this layer."""
        return self.layer_norm(condition, self.linear_g)

    def forward(self, x: torch.Tensor, modulation: Modulation, mask: Mask) -> torch.Tensor:
        """Return x [..., C] plus the update, masked by mask [...]."""
        update = modulation.gated(self.linear_out(self.swiglu(modulation.norm(x))))
        return x + (update if mask is None else update * mask[..., None])


class GatedAttention(nn.Module):
    """Projections of multi-head attention whose output is gated; queries have a bias."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear_q = linear(channels, channels, bias=True)
        self.linear_k = linear(channels, channels)
        self.linear_v = linear(channels, channels)
        self.linear_g = linear(channels, channels)
        self.linear_o = linear(channels, channels)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Compute self-attention of x [B, L, C] in the dtype of bias [H, L, L], which the logits get."""
        query, key, value = (
            projection(x).to(bias.dtype).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
            for projection in (self.linear_q, self.linear_k, self.linear_v)
        )  # [..., H, L, D]
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.output(x, attended.transpose(-2, -3).flatten(-2).to(x.dtype))

    def output(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Gate attended values [..., L, C] by x [..., L, C], and project them."""
        return self.linear_o(torch.sigmoid(self.linear_g(x)) * attended)
