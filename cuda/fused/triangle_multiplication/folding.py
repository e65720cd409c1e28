"""Weights of the triangle multiplication with LayerNorm's scale and offset folded in, for Hopper's kernels.

A projection of LN(x) is one of (x − mean) / deviation by weights scale ⊙ W and bias offset W + b. Half of
all these is kept, since values v under gates g are v / 2 · (1 + tanh(g / 2)).
"""

from typing import NamedTuple

import torch

from cuda.fused.folding import without_norm
from cuda.fused.triangle_multiplication.reference import TriangleMultiplicationWeights

# channels of values, then as many of gates
CHUNK = 64


class Folded(NamedTuple):
    """One layer's weights in bfloat16 and biases in float32: C pair channels, M channels of the product.

    Rows are output channels, by turns a chunk of values and one of gates.

    Args:
        operands, operands_bias: [4*M, C] and [4*M], of the left factor, then of the right.
        finish, finish_bias: [2*C, M] and [2*C], of the output and its gate. C and M have to be one.
    """

    operands: torch.Tensor
    operands_bias: torch.Tensor
    finish: torch.Tensor
    finish_bias: torch.Tensor


def folded(w: TriangleMultiplicationWeights) -> Folded:
    """Fold one layer's weights."""
    norm, center = (w.norm_scale, w.norm_offset), (w.center_scale, w.center_offset)
    values = torch.cat([w.left, w.right], 1), torch.cat([w.left_bias, w.right_bias])
    gates = torch.cat([w.left_gate, w.right_gate], 1), torch.cat([w.left_gate_bias, w.right_gate_bias])
    return Folded(
        *_by_turns(_halved(*norm, *values), _halved(*norm, *gates)),
        *_by_turns(_halved(*center, w.output, w.output_bias), _halved(*norm, w.gating, w.gating_bias)),
    )


def _halved(
    scale: torch.Tensor, offset: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [M, C] and bias [M] in float32 for half the projection; from [C], [C], [C, M] and [M]."""
    matrix, from_offset = without_norm(scale, offset, 0.5 * weights.float())
    return matrix, from_offset + 0.5 * bias.float()


def _by_turns(
    values: tuple[torch.Tensor, torch.Tensor], gates: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [2*M, C] and bias [2*M], a chunk of values and one of gates by turns."""
    weights, bias = (
        torch.stack([x.unflatten(0, (-1, CHUNK)), y.unflatten(0, (-1, CHUNK))], 1).flatten(0, 2)
        for x, y in zip(values, gates, strict=True)
    )
    return weights.bfloat16(), bias.flatten()
