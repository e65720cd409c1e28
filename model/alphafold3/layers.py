"""Layers shared by the parts of the network.

Parameters have the names and shapes of OpenFold3's files (a linear layer has `weight` [out, in]), except for
the layers reused from AlphaFold2's network; see `model.checkpoints.openfold3`. Algorithm numbers are those of
the supplement of Abramson et al., Nature 630, 493 (2024).

On a GPU, the diffusion module computes with half-precision operands, whose significands are as long as those
of TF32: the residual stream, updates and sums are float32, operands of products and all between are float16.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from cuda.fused.attention.differentiable import attend_fused
from cuda.fused.chunking import row_slices
from cuda.fused.dispatch import needs_gradients
from cuda.fused.layer_norm import differentiable, layer_norm
from cuda.fused.matrix_products import wide_product
from cuda.fused.residual_norm import GatedUpdate, residual_norm
from cuda.fused.swiglu import swiglu
from cuda.fused.swiglu.differentiable import swiglu as differentiable_swiglu
from cuda.fused.transition import TransitionWeights, add_transition, join_gate
from cuda.fused.transition.reference import GATE_BLOCK
from cuda.fused.weights import cached_weights, join_rows

# the kernel takes no more
MAX_KERNEL_CHANNELS = 1024
MAX_TRANSITION_CHANNELS = 128
# added to the logits of masked keys
MASK_PENALTY = -1e9
HALF = torch.float16
# hidden values of a half-precision transition are multiplied by it, to stay in float16's range
HIDDEN_SCALE = 2.0**-6
# channels of a head of half-precision attention, to which narrower ones are padded
HEAD_CHANNELS = 64
# those of the kernels with gradients
HEAD_WIDTHS = (8, 16, 32, 64)
# of the modulations that two products compute; they should stay in a GPU's cache until they are read
MODULATION_ELEMENTS = 8 * 2**20
# A float mask, 1 for real positions; None means all ones.
Mask = torch.Tensor | None


class CastingLinear(nn.Linear):
    """A linear layer that computes in the dtype of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Project x [..., C]."""
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


def linear(inputs: int, outputs: int, *, bias: bool = False) -> nn.Linear:
    """Return a linear layer, which has no bias unless one is requested."""
    return CastingLinear(inputs, outputs, bias=bias)


def uses_kernels(x: torch.Tensor) -> bool:
    """Return whether kernels take the place of plain PyTorch for a tensor."""
    return x.is_cuda and x.dtype != torch.float64


def masked(x: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Multiply x [..., C] by a mask [...] of any dtype, if there is one."""
    return x if mask is None else x * mask[..., None].to(x.dtype)


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
    if not uses_kernels(x) or x.shape[-1] > MAX_KERNEL_CHANNELS:
        scale, offset = (None if y is None else y.to(x.dtype) for y in (scale, offset))
        return F.layer_norm(x, x.shape[-1:], scale, offset)
    ones, zeros = _constants(x.shape[-1], x.dtype, x.device)
    scale, offset = ones if scale is None else scale, zeros if offset is None else offset
    if torch.is_grad_enabled() or scale.dtype != x.dtype:
        return differentiable.layer_norm(x, scale, offset, fused=True)
    return layer_norm(x, scale, offset)


@cache
@torch.inference_mode(False)  # inference tensors cannot be saved for a backward pass
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
        a, b = self.linear_a.weight, self.linear_b.weight
        if not uses_kernels(x):
            return F.silu(self.linear_a(x)) * self.linear_b(x)
        if needs_gradients(x, a):
            return differentiable_swiglu(F.linear(x, torch.cat([a, b]).to(x.dtype)), fused=True)
        return swiglu(F.linear(x, join_rows(x.dtype, a, b)))


class SwiGLUTransition(nn.Module):
    """The transition (Algorithm 11), including the residual connection."""

    def __init__(self, channels: int, factor: int) -> None:
        super().__init__()
        self.layer_norm = Norm(channels)
        self.swiglu = SwiGLU(channels, channels * factor)
        self.linear_out = linear(channels * factor, channels)
        self.has_kernel = channels <= MAX_TRANSITION_CHANNELS and channels * factor % GATE_BLOCK == 0

    def forward(self, x: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Add the update, masked by mask [...], to contiguous x [..., C] in place, and return x."""
        if mask is None and self.has_kernel and x.is_cuda and not needs_gradients(x, self.linear_out.weight):
            return add_transition(x, self.fused_weights())
        flat = x.view(-1, x.shape[-1])
        flat_mask = None if mask is None else mask.reshape(-1)
        for rows in row_slices(flat, 2 * self.linear_out.in_features):
            flat[rows] += self.update(flat[rows], None if flat_mask is None else flat_mask[rows])
        return x

    def fused_weights(self) -> TransitionWeights:
        """Return the parameters as the fused transition takes them; biases are zeros."""
        layers = (self.swiglu.linear_a, self.swiglu.linear_b, self.linear_out)

        def prepare() -> tuple[torch.Tensor, ...]:
            a, b, narrow = (layer.weight.T for layer in layers)
            widen = join_gate(a, b)
            return widen, torch.zeros_like(widen[0]), narrow.contiguous(), torch.zeros_like(narrow[0])

        prepared = cached_weights("of the fused transition", tuple(x.weight for x in layers), prepare)
        return TransitionWeights(self.layer_norm.weight, self.layer_norm.bias, *prepared)

    def update(self, x: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Return the update of x [..., C], masked by mask [...]."""
        return masked(self.linear_out(self.swiglu(self.layer_norm(x))), mask)


class Modulation(NamedTuple):
    """The effect of a conditioning signal on one layer: scale and shift of its input, gate of its output.

    Args:
        scale: [..., C].
        shift: [..., C].
        gate: [..., C]; of keys, which have no output, None.
        logits: whether scale and gate are the sigmoids of the given ones, in half precision only.
    """

    scale: torch.Tensor
    shift: torch.Tensor
    gate: torch.Tensor | None = None
    logits: bool = False

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., C], then scale and shift it (last line of Algorithm 26)."""
        return torch.addcmul(self.shift, self.scale, normalise(x))

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply x [..., C] by the gate, if there is one."""
        return x if self.gate is None else self.gate * x

    def half_norm(self, x: torch.Tensor, update: GatedUpdate | None = None) -> torch.Tensor:
        """Add an update to float32 x [S, N, C] in place; return its `norm` in half precision."""
        return residual_norm(x, self.scale, self.shift, update, dtype=HALF, logits=self.logits)

    def update(self, x: torch.Tensor, weights: torch.Tensor, mask: Mask = None) -> GatedUpdate:
        """Return the gated projection of half-precision x [S, N, D] by weights [C, D]."""
        if self.gate is None:
            raise ValueError("the modulation has no gate")
        product = wide_product(x.flatten(0, 1), weights.T)
        return GatedUpdate(product.view(*x.shape[:2], -1), self.gate, mask, self.logits)


class AdaptiveLayerNorm(nn.Module):
    """The LayerNorm whose scale and shift depend on a conditioning signal (Algorithm 26)."""

    def __init__(self, channels: int, condition_channels: int) -> None:
        super().__init__()
        self.layer_norm_s = scale_norm(condition_channels)
        self.linear_g = linear(condition_channels, channels, bias=True)
        self.linear_s = linear(condition_channels, channels)

    def forward(self, condition: torch.Tensor, gate: nn.Linear | None = None) -> Modulation:
        """Compute the modulation by a condition [..., S]; `gate` projects it to the output gate's logit."""
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
        return x + masked(update, mask)

    def half_update(
        self, x: torch.Tensor, update: GatedUpdate, modulation: Modulation, mask: Mask
    ) -> GatedUpdate:
        """Add an update to x [S, N, C] in place; return that of this layer, with half-precision operands."""
        widening = join_rows(HALF, self.swiglu.linear_a.weight, self.swiglu.linear_b.weight)
        hidden = swiglu(F.linear(modulation.half_norm(x, update), widening), HIDDEN_SCALE)
        weights = self.linear_out.weight
        scaled = cached_weights("scaled half", (weights,), lambda: (weights / HIDDEN_SCALE).to(HALF))
        return modulation.update(hidden, scaled, mask)


def joint_modulations(
    norms: Sequence[AdaptiveLayerNorm], gates: Sequence[nn.Linear], condition: torch.Tensor
) -> Iterator[Modulation]:
    """Compute the modulations of layers by one condition [N, S], those of several layers in two products.

    Scales and gates are logits; each of `gates` projects the condition to those of a layer. Scales and shifts
    are in half precision, since the normalised condition has no large values.
    """

    def prepare() -> tuple[torch.Tensor, ...]:
        weights = [
            torch.stack([norm.linear_g.weight, norm.linear_s.weight]) * norm.layer_norm_s.weight
            for norm in norms
        ]
        offsets = [torch.stack([x.linear_g.bias, torch.zeros_like(x.linear_g.bias)]) for x in norms]
        return (
            torch.stack(weights).to(HALF),  # [L, 2, C, S]
            torch.stack(offsets).to(HALF),  # [L, 2, C]
            torch.stack([gate.weight for gate in gates]),
            torch.stack([gate.bias for gate in gates]),
        )

    read = [x.weight for norm in norms for x in (norm.linear_g, norm.linear_s, norm.layer_norm_s)]
    read += [norm.linear_g.bias for norm in norms] + [x for gate in gates for x in (gate.weight, gate.bias)]
    prepared = cached_weights("joint modulations", (*read,), prepare)
    normed, channels = normalise(condition).to(HALF), prepared[1].shape[-1]
    size = max(1, MODULATION_ELEMENTS // (2 * len(condition) * channels))
    for start in range(0, len(norms), size):
        weights, offsets, gate_weights, gate_offsets = (x[start : start + size] for x in prepared)
        values = F.linear(normed, weights.flatten(0, 2), offsets.flatten())
        logits = F.linear(condition, gate_weights.flatten(0, 1), gate_offsets.flatten())
        scales = values.view(len(condition), -1, 2, channels)
        logits = logits.view(len(condition), -1, channels)
        for index in range(len(weights)):
            yield Modulation(scales[:, index, 0], scales[:, index, 1], logits[:, index], logits=True)


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

    def forward(self, x: torch.Tensor, bias: torch.Tensor, keys: torch.Tensor | None = None) -> torch.Tensor:
        """Compute attention of x [B, Q, C] to keys [B, L, C], or to x, with a bias [H, Q, L] of the logits.

        A gradient of the bias is summed over B before it is written.
        """
        if uses_kernels(x) and needs_gradients(x, bias, self.linear_q.weight):
            return self._with_gradients(x, bias)
        sources = (x, *[x if keys is None else keys] * 2)
        query, key, value = (
            projection(y).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
            for projection, y in zip((self.linear_q, self.linear_k, self.linear_v), sources, strict=True)
        )  # [..., H, L, D]
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.output(x, attended.transpose(-2, -3).flatten(-2))

    def _with_gradients(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Compute `forward` in kernels that compute the weights of attention again in a backward pass."""
        width = next(w for w in HEAD_WIDTHS if w * self.heads >= self.linear_q.out_features)
        weights, offset, output = self._pad_weights(width, x.dtype)
        projected = F.linear(x, weights, offset)[None]  # [1, B, L, 4 H P]
        gated = attend_fused(projected, projected.new_zeros(self.heads, width), None, bias[None])
        return F.linear(gated.squeeze(0), output)

    def padded_weights(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return `_pad_weights` in half precision, with P = HEAD_CHANNELS (cached; read-only)."""
        layers = (self.linear_q, self.linear_k, self.linear_v, self.linear_g)
        read = (*(layer.weight for layer in layers), self.linear_q.bias, self.linear_o.weight)
        return cached_weights(
            "padded heads in half precision", read, lambda: self._pad_weights(HEAD_CHANNELS, HALF)
        )

    def _pad_weights(self, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return weights [4 H P, C] and offsets of the projections, and weights [C, H P] of the output.

        Heads are padded by zeros to P = width. Queries are multiplied by √(P / D), because the kernel divides
        logits by √P.
        """

        def pad(x: torch.Tensor) -> torch.Tensor:
            heads = x.unflatten(0, (self.heads, -1))
            return F.pad(heads, (0, 0, 0, width - heads.shape[1])).flatten(0, 1)

        scale = (width * self.heads / self.linear_q.out_features) ** 0.5
        layers = (self.linear_k, self.linear_v, self.linear_g)
        weights = torch.cat([pad(self.linear_q.weight * scale), *(pad(x.weight) for x in layers)])
        offset = pad(self.linear_q.bias[:, None] * scale)[:, 0]
        offset = F.pad(offset, (0, 3 * len(offset)))
        return weights.to(dtype), offset.to(dtype), pad(self.linear_o.weight.T).T.contiguous().to(dtype)

    def output(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Gate attended values [..., L, C] by x [..., L, C], and project them."""
        return self.linear_o(torch.sigmoid(self.linear_g(x)) * attended)
