"""Attention within windows: accuracy against float64, ends, masks, strides, unsupported input."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.window_attention import differentiable, window_attention
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION
from tests.cuda.fused.gradients import compare_gradients

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
QUERIES, KEYS = 32, 128


def window_inputs(
    samples: int, atoms: int, heads: int, width: int, draw: Draw
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries, keys, bias and starts; keys outside the window of real atoms are masked."""
    windows = -(-atoms // QUERIES)
    starts = QUERIES * torch.arange(windows, device=DEVICE) + (QUERIES - KEYS) // 2
    starts = starts.clamp(max=atoms - KEYS).clamp(min=0)
    index = starts[:, None] + torch.arange(KEYS, device=DEVICE)
    bias = draw(windows, heads, QUERIES, KEYS, seed=1).float()
    bias = bias - 1e9 * (index >= atoms)[:, None, None, :]
    query, key = (draw(samples, atoms, 2 * heads * width, seed=seed) for seed in (2, 3))
    return query, key, bias, starts


@pytest.mark.parametrize("samples, heads, width", [(1, 4, 32), (3, 2, 16), (2, 1, 64)])
@pytest.mark.parametrize("atoms", [1, 31, 32, 100, 128, 129, 300])
def test_matches_float64(
    samples: int, atoms: int, heads: int, width: int, draw: Draw, compare: Compare
) -> None:
    query, key, bias, starts = window_inputs(samples, atoms, heads, width, draw)
    exact = window_attention(query.double(), key.double(), bias.double(), starts, implementation="reference")
    plain = window_attention(query, key, bias, starts, implementation="reference")
    result = window_attention(query, key, bias, starts, implementation=IMPLEMENTATION)
    compare(result, plain, exact)


@pytest.mark.parametrize("samples, heads, width", [(1, 4, 32), (3, 2, 16)])
@pytest.mark.parametrize("atoms", [31, 100, 129, 300])
def test_gradients_match_float64(
    samples: int, atoms: int, heads: int, width: int, draw: Draw, compare: Compare
) -> None:
    query, key, bias, starts = window_inputs(samples, atoms, heads, width, draw)

    def attention(fused: bool) -> Callable[..., torch.Tensor]:
        return lambda q, k, b: differentiable.window_attention(q, k, b, starts, fused=fused)

    compare_gradients(compare, attention(True), attention(False), [query, key, bias])


def test_masked_keys_have_no_influence(draw: Draw) -> None:
    query, key, bias, starts = window_inputs(1, 200, 2, 16, draw)
    bias[..., 5] = -1e9
    first = window_attention(query, key, bias, starts, implementation=IMPLEMENTATION)
    changed = key.clone()
    changed[:, starts[0] + 5] = 100
    second = window_attention(query, changed, bias, starts, implementation=IMPLEMENTATION)
    assert first[:, :QUERIES].equal(second[:, :QUERIES])


def test_reads_strided_projections(draw: Draw) -> None:
    query, key, bias, starts = window_inputs(2, 70, 2, 16, draw)
    both = torch.cat([query, key], dim=-1)
    expected = window_attention(query, key, bias, starts, implementation=IMPLEMENTATION)
    query, key = both.chunk(2, dim=-1)
    assert window_attention(query, key, bias, starts, implementation=IMPLEMENTATION).equal(expected)


def test_unsupported_sizes_are_rejected(draw: Draw) -> None:
    query, key, bias, starts = window_inputs(1, 40, 1, 24, draw)
    with pytest.raises(ValueError, match="powers of two"):
        window_attention(query, key, bias, starts, implementation=IMPLEMENTATION)
