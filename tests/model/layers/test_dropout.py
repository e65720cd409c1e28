"""Tests of dropout in predictions."""

import torch
from torch import nn

from model.layers.dropout import dropout
from model.layers.graphs import module_has_hooks


class Adds(nn.Module):
    """Adds ones to its argument in place."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.update_dropout = (0.25, axis)
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(self.weight.detach())


class Normed(nn.Module):
    """Calls a child on its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Identity()
        self.weight = nn.Parameter(torch.ones(()))
        self.input_dropout = {"norm": 0.1}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def test_updates_share_a_mask_along_an_axis_and_keep_their_mean() -> None:
    for axis in (0, 1):
        x = torch.full((40, 50, 30), 2.0)
        with dropout(module := Adds(axis), seed=3):
            module(x)
        update = x - 2
        assert torch.allclose(update, update.narrow(axis, 0, 1).expand_as(update))
        values = update.select(axis, 0)
        assert set(values.unique().tolist()) == {0.0, values.max().item()}
        assert abs(values.max() - 4 / 3) < 1e-5 and abs((values == 0).float().mean() - 0.25) < 0.04
        assert torch.equal(module(torch.zeros(2, 2)), torch.ones(2, 2))  # the hooks are gone


def test_inputs_are_dropped_element_by_element() -> None:
    with dropout(module := Normed(), seed=1):
        result = module(torch.ones(100, 100))
    assert abs((result == 0).float().mean() - 0.1) < 0.02 and abs(result.mean() - 1) < 0.02


def test_a_block_that_contains_such_modules_deeper_is_not_replayed_as_a_graph() -> None:
    block = nn.Sequential(nn.Sequential(Adds(0)))
    assert not module_has_hooks(block)
    with dropout(block, seed=0):
        assert module_has_hooks(block)
    assert not module_has_hooks(block)
