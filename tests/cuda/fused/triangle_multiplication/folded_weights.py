"""The kernels' results from folded weights, in float64."""

import torch

from cuda.fused.triangle_multiplication.hopper import CHUNK


def standardise(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def project_and_gate(
    x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, gate_of: torch.Tensor
) -> torch.Tensor:
    """Compute what the kernels compute from chunks of weights: values from x, gates from another input."""
    chunks = (
        weights.double().unflatten(0, (-1, 2, CHUNK.value)),
        bias.double().unflatten(0, (-1, 2, CHUNK.value)),
    )
    values = torch.einsum("pc,nkc->pnk", x, chunks[0][:, 0]) + chunks[1][:, 0]
    gates = torch.einsum("pc,nkc->pnk", gate_of, chunks[0][:, 1]) + chunks[1][:, 1]
    return (values * (1 + gates.tanh())).flatten(1)


def assert_close(result: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
