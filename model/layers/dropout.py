"""Dropout in predictions, which trained networks otherwise have in training only.

Modules that update a representation in place get hooks, so that no other prediction pays for it; hooks also
switch CUDA graphs off, which would repeat the same numbers.

A module that adds an update in place to its first argument has `update_dropout`, a rate and the axis that
shares a mask. A module whose children take inputs with dropout has `input_dropout`, their rates by name.
Rates are those of the training: AlphaFold2's (Jumper et al., Nature 596, 583, 2021, supplement 1.11.6) and
AlphaFold 3's (Algorithms 8 and 17).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def dropout(network: nn.Module, seed: int) -> Iterator[None]:
    """Let a network drop updates inside a `with` block, as in its training.

    The same seed, 0 ≤ seed < 2⁶³, drops the same on the same kind of device.
    """
    generator = torch.Generator(next(network.parameters()).device).manual_seed(seed)
    handles: list[Any] = []
    for module in network.modules():
        rule: tuple[float, int] | None = getattr(module, "update_dropout", None)
        if rule is not None:
            handles += _drop_update(module, generator, *rule)
        if any(hasattr(child, "update_dropout") for child in module.children()):
            # stacks look for hooks of their blocks and of what these directly contain
            handles.append(module.register_forward_pre_hook(lambda module, inputs: None))
        for name, rate in getattr(module, "input_dropout", {}).items():
            hook = _drop_input(generator, rate)
            handles.append(module.get_submodule(name).register_forward_pre_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _drop_update(module: nn.Module, generator: torch.Generator, rate: float, shared_axis: int) -> list[Any]:
    """Drop the update that a module adds in place to its first argument; rows or columns share the mask."""
    before: list[torch.Tensor] = []

    def remember(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        before.append(inputs[0].clone())

    def drop(module: nn.Module, inputs: tuple[Any, ...], result: torch.Tensor) -> None:
        earlier, updated = before.pop(), inputs[0]
        shape = [1 if axis == shared_axis else size for axis, size in enumerate(updated.shape)]
        updated.sub_(earlier).mul_(_mask(updated, shape, generator, rate)).add_(earlier)

    return [module.register_forward_pre_hook(remember), module.register_forward_hook(drop)]


def _drop_input(generator: torch.Generator, rate: float) -> Any:
    def drop(module: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        return (inputs[0] * _mask(inputs[0], inputs[0].shape, generator, rate),)

    return drop


def _mask(like: torch.Tensor, shape: Any, generator: torch.Generator, rate: float) -> torch.Tensor:
    """Return 0 with the probability `rate`, else 1 / (1 − rate)."""
    kept = torch.rand(shape, generator=generator, device=like.device) >= rate
    return kept.to(like.dtype) / (1 - rate)
