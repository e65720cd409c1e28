"""Weights with LayerNorm folded in give what the reference does; needs no GPU and no Triton."""

import torch

from cuda.fused.triangle_multiplication import GateFirstWeights, TriangleMultiplicationWeights
from cuda.fused.triangle_multiplication.folding import CHUNK, folded, folded_gate_first

CHANNELS, POSITIONS = 128, 7


def drawn(*shape: int) -> torch.Tensor:
    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return scale * torch.randn(shape, dtype=torch.float64)


def standardised(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def gated(x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, gate_of: torch.Tensor) -> torch.Tensor:
    """What the kernels do with chunks of rows of weights: values of x, gates of another input."""
    chunks = weights.double().unflatten(0, (-1, 2, CHUNK)), bias.double().unflatten(0, (-1, 2, CHUNK))
    values = torch.einsum("pc,nkc->pnk", x, chunks[0][:, 0]) + chunks[1][:, 0]
    gates = torch.einsum("pc,nkc->pnk", gate_of, chunks[0][:, 1]) + chunks[1][:, 1]
    return (values * (1 + gates.tanh())).flatten(1)


def close(ours: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


def test_folded() -> None:
    torch.manual_seed(0)
    c = CHANNELS
    shapes = [(c,), (c,), *[(c, c), (c,)] * 4, (c,), (c,), (c, c), (c,), (c, c), (c,)]
    w = TriangleMultiplicationWeights(*(drawn(*shape) for shape in shapes))
    x, product = drawn(POSITIONS, c, 1)[..., 0], drawn(POSITIONS, c, 1)[..., 0]
    found = folded(w)
    normed = standardised(x) * w.norm_scale + w.norm_offset
    left = (normed @ w.left + w.left_bias) * torch.sigmoid(normed @ w.left_gate + w.left_gate_bias)
    right = (normed @ w.right + w.right_bias) * torch.sigmoid(normed @ w.right_gate + w.right_gate_bias)
    plain = standardised(x)
    ours = gated(plain, found.operands, found.operands_bias, plain)
    close(ours, torch.cat([left, right], 1), 3e-2)
    centered = standardised(product) * w.center_scale + w.center_offset
    gate = torch.sigmoid(normed @ w.gating + w.gating_bias)
    ours = gated(standardised(product), found.finish, found.finish_bias, plain)
    close(ours, (centered @ w.output + w.output_bias) * gate, 3e-2)


def test_folded_gate_first() -> None:
    torch.manual_seed(0)
    c, m = CHANNELS, CHUNK
    shapes = [(c,), (c,), *[(c, m)] * 5, (m,), (m,), (m, c)]
    w = GateFirstWeights(*(drawn(*shape) for shape in shapes))
    x = drawn(POSITIONS, c, 1)[..., 0]
    found = folded_gate_first(w)
    normed, plain = standardised(x) * w.norm_scale + w.norm_offset, standardised(x)
    left = (normed @ w.left) * torch.sigmoid(normed @ w.left_gate)
    right = (normed @ w.right) * torch.sigmoid(normed @ w.right_gate)
    ours = gated(plain, found.operands[: 4 * m], found.operands_bias[: 4 * m], plain)
    close(ours, torch.cat([left, right], 1), 3e-3)
    gate = plain @ found.operands[4 * m :].double().T + found.operands_bias[4 * m :]
    close((1 + gate.tanh()) / 2, torch.sigmoid(normed @ w.output_gate), 3e-3)
    # a thread of four has columns 2t, 2t + 1, 2t + 8 and 2t + 9 of sixteen, and writes channels 4t to 4t + 3
    for t in range(4):
        columns = found.finish[[16 + 2 * t, 17 + 2 * t, 24 + 2 * t, 25 + 2 * t]]
        close(columns.double(), w.output.T[16 + 4 * t : 20 + 4 * t], 1e-3)
