"""Layers shared by all parts of the network.

A linear layer has `weights` [in, out], the transpose of those of torch. A module that calls a fused operation
gathers its parameters in `operands`, once, on first use. `model.checkpoints` translates the names of files.
"""

from functools import cached_property

import torch
from torch import nn

from cuda.fused.transition import TransitionWeights
from model.layers.kernels import Kernels


def parameter(*shape: int) -> nn.Parameter:
    """Create an uninitialised parameter without gradient; values are loaded or drawn later."""
    return nn.Parameter(torch.empty(shape), requires_grad=False)


class Linear(nn.Module):
    """A linear layer: y = x W + b with W [in, out]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weights = parameter(inputs, outputs)
        self.bias = parameter(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Project x [..., in] to [..., out]."""
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weights)
        return flat.view(*x.shape[:-1], len(self.bias))


class OneHotLinear(Linear):
    """A linear layer for one-hot inputs, computed by looking up rows."""

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Project one-hot inputs, given the indices [...] of their ones, to [..., out]."""
        return (self.weights + self.bias)[indices]


class LayerNorm(nn.Module):
    """Layer normalisation over the last axis."""

    def __init__(self, channels: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.scale = parameter(channels)
        self.offset = parameter(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x [..., C]."""
        return self.kernels.layer_norm(x, self.scale, self.offset)


class Attention(nn.Module):
    """Parameters of a gated self-attention layer, which `cuda.fused.attention` computes.

    Args:
        channels: channels of input and output.
        heads: number of heads.
        width: channels per head.
        shared_key: whether all query heads share one key and value head, as in global attention.
    """

    def __init__(self, channels: int, heads: int, width: int, *, shared_key: bool = False) -> None:
        super().__init__()
        key = (channels, width) if shared_key else (channels, heads, width)
        self.query = parameter(channels, heads, width)
        self.key = parameter(*key)
        self.value = parameter(*key)
        self.gating = parameter(channels, heads, width)
        self.gating_bias = parameter(heads, width)
        self.output = parameter(heads, width, channels)
        self.output_bias = parameter(channels)


class Transition(nn.Module):
    """The transition of Algorithms 9 and 15, including the residual connection."""

    def __init__(self, channels: int, factor: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.input_layer_norm = LayerNorm(channels, kernels)
        self.transition1 = Linear(channels, channels * factor)
        self.transition2 = Linear(channels * factor, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the update to x [..., C] in place, and return x."""
        return self.kernels.add_transition(x, self.operands)

    def gather_operands(self) -> TransitionWeights:
        """Return the parameters in the form that the fused operation takes; torch.compile can trace this."""
        norm, widen, narrow = self.input_layer_norm, self.transition1, self.transition2
        return TransitionWeights(
            norm.scale, norm.offset, widen.weights, widen.bias, narrow.weights, narrow.bias
        )

    operands = cached_property(gather_operands)
