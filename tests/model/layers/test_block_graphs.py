"""Tests of replayed blocks with gradients; on a CPU, the block is called instead of replayed."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from model.layers.block_graphs import KEPT, run_graphed, run_module, span_of
from model.training.runtime.parameters import FlatParameters


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(5)
        self.linear = nn.Linear(5, 5)
        self.unused = nn.Linear(2, 3)

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, factor: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        update = F.silu(self.linear(self.norm(x)))
        return x + update * (1 if factor is None else factor), y * update.mean()


def gradients(graphed: bool, factor: torch.Tensor | None) -> list[torch.Tensor]:
    """Return results of a stack of blocks, and the gradients of its arguments and parameters."""
    torch.manual_seed(0)
    stack = nn.ModuleList([Block() for _ in range(3)])
    flat = FlatParameters(stack, torch.device("cpu"))
    stack[0].linear.bias.requires_grad_(False)
    x, y = (torch.randn(4, 5).requires_grad_() for _ in range(2))
    results = (x * 2, y)
    for block in stack:
        span = span_of(block)
        assert span is not None
        if graphed:
            results = run_graphed(span, Block.forward, block, results, (factor,))
        else:
            results = run_module(Block.forward, block, results, (factor,))
    (results[0].square().sum() + results[1].sum()).backward()
    assert x.grad is not None and y.grad is not None
    return [*(z.detach() for z in results), x.grad, y.grad, flat.gradients.clone()]


def test_replayed_blocks_equal_normal_ones() -> None:
    for factor in (None, torch.linspace(0, 1, 5)):
        for first, second in zip(gradients(True, factor), gradients(False, factor), strict=True):
            assert torch.allclose(first, second, rtol=1e-6)
            assert bool(first.any())


def test_few_graphs_are_kept() -> None:
    stack = nn.ModuleList([Block()])
    FlatParameters(stack, torch.device("cpu"))
    span = span_of(stack[0])
    assert span is not None
    calls = 0

    def forward(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return Block.forward(*arguments)

    def count_calls(size: int) -> int:
        before, x = calls, torch.ones(size, 5)
        with torch.no_grad():
            run_graphed(span, forward, stack[0], (x, x), (None,))
        return calls - before

    # a new graph calls the function when it is made, once forward and once with its backward pass
    sizes = range(1, 2 * KEPT)
    assert [count_calls(size) for size in sizes] == [3] * len(sizes)
    assert [count_calls(size) for size in sizes[-KEPT:]] == [1] * KEPT
    assert count_calls(1) == 3


def test_parameters_apart_are_not_replayed() -> None:
    assert span_of(Block()) is None
