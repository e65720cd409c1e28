"""Weights with LayerNorm folded in give the same results as the layer's own weights."""

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.triangle_multiplication import TriangleMultiplicationWeights
from cuda.fused.triangle_multiplication.hopper import fold_weights
from tests.cuda.fused.triangle_multiplication.folded_weights import (
    assert_close,
    project_and_gate,
    standardise,
)

CHANNELS, POSITIONS = 128, 7


def random(*shape: int) -> torch.Tensor:
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, dtype=torch.float64)


def test_folded_weights() -> None:
    torch.manual_seed(0)
    c = CHANNELS
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    w = TriangleMultiplicationWeights(*(random(*shape) for shape in shapes))
    x, product = random(POSITIONS, c, 1)[..., 0], random(POSITIONS, c, 1)[..., 0]
    folded = fold_weights(w)
    normed = standardise(x) * w.norm_scale + w.norm_offset
    left = (normed @ w.left + w.left_bias) * torch.sigmoid(normed @ w.left_gate + w.left_gate_bias)
    right = (normed @ w.right + w.right_bias) * torch.sigmoid(normed @ w.right_gate + w.right_gate_bias)
    plain = standardise(x)
    result = project_and_gate(plain, folded.operands, folded.operands_bias, plain)
    assert_close(result, torch.cat([left, right], 1), 3e-2)
    centered = standardise(product) * w.center_scale + w.center_offset
    gate = torch.sigmoid(normed @ w.gating + w.gating_bias)
    result = project_and_gate(standardise(product), folded.finish, folded.finish_bias, plain)
    assert_close(result, (centered @ w.output + w.output_bias) * gate, 3e-2)
