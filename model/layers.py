"""The layers every part of the network is built from.

Parameters keep the names and shapes of DeepMind's files (a linear layer has `weights` [in, out]), so that a
network's own state is the list of keys a parameter file must have; model/naming.py translates one to the
other. What operations take of them is gathered once, on first use.
"""

from functools import cached_property

import torch
from torch import nn

from cuda.fused.transition import TransitionWeights
from model.kernels import Kernels


def parameter(*shape: int) -> nn.Parameter:
    """An uninitialised parameter: every one is read from a file or drawn, and none is trained here."""
    return nn.Parameter(torch.empty(shape), requires_grad=False)


class Linear(nn.Module):
    """y = x W + b, with W [in, out]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weights = parameter(inputs, outputs)
        self.bias = parameter(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weights)
        return flat.view(*x.shape[:-1], -1)


class OneHotLinear(Linear):
    """A linear layer whose input is one-hot: looks its rows up instead of multiplying by zeros."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Indices [...] to [..., out]; an index is the position of the 1 in the one-hot input."""
        return (self.weights + self.bias)[x]


class LayerNorm(nn.Module):
    """Normalisation over the last axis."""

    def __init__(self, channels: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.scale = parameter(channels)
        self.offset = parameter(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., C] to [..., C]."""
        return self.kernels.layer_norm(x, self.scale, self.offset)


class Attention(nn.Module):
    """The projections of a gated self-attention layer; the arithmetic is `cuda.fused.attention`.

    Args:
        channels: of input and output.
        heads: number of heads.
        width: channels of a head.
        shared_key: one key and value head for all query heads, as global attention has.
    """

    def __init__(self, channels: int, heads: int, width: int, *, shared_key: bool = False) -> None:
        super().__init__()
        key = (channels, width) if shared_key else (channels, heads, width)
        self.query_w = parameter(channels, heads, width)
        self.key_w = parameter(*key)
        self.value_w = parameter(*key)
        self.gating_w = parameter(channels, heads, width)
        self.gating_b = parameter(heads, width)
        self.output_w = parameter(heads, width, channels)
        self.output_b = parameter(channels)


class Transition(nn.Module):
    """Algorithms 9 and 15 with the residual: normalise, widen, ReLU, narrow, add."""

    def __init__(self, channels: int, factor: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.input_layer_norm = LayerNorm(channels, kernels)
        self.transition1 = Linear(channels, channels * factor)
        self.transition2 = Linear(channels * factor, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the update to x [..., C] in place, and return x."""
        return self.kernels.add_transition(x, self.operands)

    @cached_property
    def operands(self) -> TransitionWeights:
        """The parameters, as the operation takes them."""
        norm, widen, narrow = self.input_layer_norm, self.transition1, self.transition2
        return TransitionWeights(
            norm.scale, norm.offset, widen.weights, widen.bias, narrow.weights, narrow.bias
        )
