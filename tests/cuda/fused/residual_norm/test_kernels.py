"""Gated residual connection and conditioned LayerNorm: accuracy against float64, unsupported input."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused import residual_norm as operation
from cuda.fused.residual_norm import GatedUpdate
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]


@pytest.mark.parametrize("channels", [1, 3, 128, 257, 768])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("updated", [False, True])
@pytest.mark.parametrize("logits", [False, True])
def test_matches_float64(
    channels: int, masked: bool, updated: bool, logits: bool, length: int, draw: Draw, compare: Compare
) -> None:
    x = draw(3, length, channels, tailed=True).float()
    conditions = draw(length, 3 * channels, seed=1)
    mask = (draw(length, seed=2) > 0).float() if masked else None
    change = draw(3, length, channels, seed=3) if updated else None

    def run(x: torch.Tensor, to: torch.dtype, dtype: torch.dtype, implementation: str) -> torch.Tensor:
        scale, shift, gate = conditions.to(to).split(channels, dim=1)
        update = None if change is None else GatedUpdate(change.to(to), gate, mask, logits)
        return operation.residual_norm(
            x, scale, shift, update, dtype=dtype, logits=logits, implementation=implementation
        )

    exact_x, plain_x = x.double(), x.clone()
    exact = run(exact_x, torch.float64, torch.float64, "reference")
    plain = run(plain_x, torch.float32, conditions.dtype, "reference")
    result = run(x, conditions.dtype, conditions.dtype, IMPLEMENTATION)
    compare(result, plain, exact)
    compare(x, plain_x, exact_x)


def test_adds_without_a_norm(draw: Draw, compare: Compare) -> None:
    x = draw(2, 7, 24).float()
    update = GatedUpdate(draw(2, 7, 24, seed=1), draw(7, 24, seed=2), torch.ones(7, device=DEVICE))
    exact = operation.add_gated(
        x.double(), GatedUpdate(*(y.double() for y in update[:3])), implementation="reference"
    )
    plain = operation.add_gated(x.clone(), update, implementation="reference")
    result = operation.add_gated(x, update, implementation=IMPLEMENTATION)
    assert result is x
    compare(x, plain, exact)


def test_unsupported_input_is_rejected(draw: Draw) -> None:
    x, condition = draw(2, 3, 1025).float(), draw(3, 1025)
    with pytest.raises(ValueError, match="1025 channels"):
        operation.residual_norm(x, condition, condition, dtype=x.dtype, implementation=IMPLEMENTATION)
    with pytest.raises(ValueError, match="contiguous float32"):
        operation.residual_norm(
            x[..., ::2], condition[:, ::2], condition[:, ::2], dtype=x.dtype, implementation=IMPLEMENTATION
        )
    with pytest.raises(ValueError, match="shift has shape"):
        operation.residual_norm(x, condition, condition[:2], dtype=x.dtype, implementation=IMPLEMENTATION)
