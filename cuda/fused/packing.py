"""Weights laid side by side for one matrix product, made once and remembered."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils.weak import WeakTensorKeyDictionary

Packed = TypeVar("Packed")

_packed = WeakTensorKeyDictionary()


def side_by_side(*weights: torch.Tensor) -> torch.Tensor:
    """Matrices [C, ...] of one layer as columns of one matrix; remembered until one of them changes.

    Args:
        weights: each [C, ...]; trailing axes are flattened.

    Returns:
        [C, sum of columns]; not to be written to.
    """
    return remembered(
        "side by side", weights, lambda: torch.cat([w.reshape(w.shape[0], -1) for w in weights], dim=1)
    )


def by_turns(*weights: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Of each two matrices [..., M] the columns by turns, the pairs side by side; remembered likewise.

    Args:
        weights: an even number of them.
        dtype: of the result; theirs if not given.

    Returns:
        [..., M · weights]; not to be written to.
    """
    return remembered(
        f"by turns in {dtype}",
        weights,
        lambda: torch.cat(
            [torch.stack(both, -1).flatten(-2) for both in zip(weights[::2], weights[1::2], strict=True)], -1
        ).to(dtype or weights[0].dtype),
    )


def cast(weights: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor in a dtype, contiguous, remembered likewise; not to be written to."""
    if weights.dtype == dtype and weights.is_contiguous():
        return weights
    return remembered(f"in {dtype}", (weights,), lambda: weights.to(dtype).contiguous())


def remembered(how: str, weights: tuple[torch.Tensor, ...], make: Callable[[], Packed]) -> Packed:
    """What is made of one layer's weights, kept until one of them changes.

    Args:
        how: names what is made.
        weights: what it is made of.
        make: makes it.
    """
    state = tuple(_state(w) for w in weights)
    kept = _packed.setdefault(weights[0], {})
    if how not in kept or kept[how][0] != state:
        kept[how] = state, make()
    packed: Packed = kept[how][1]
    return packed


def _state(x: torch.Tensor) -> tuple[Any, ...]:
    # inference tensors count no versions: they cannot be written to outside inference mode either
    return x.data_ptr(), x.dtype, x.shape, x.stride(), 0 if x.is_inference() else x._version
