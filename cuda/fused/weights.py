"""Weights prepared for kernels: packed once per layer and cached until a weight changes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.utils.weak import WeakTensorKeyDictionary

Prepared = TypeVar("Prepared")

_cache = WeakTensorKeyDictionary()


@contextmanager
def separate_cache() -> Iterator[None]:
    """Prepare all weights anew inside a `with` block, and forget them after it, for graphs that do so."""
    global _cache
    outer, _cache = _cache, WeakTensorKeyDictionary()
    try:
        yield
    finally:
        _cache = outer


def cached_weights(key: str, weights: tuple[torch.Tensor, ...], prepare: Callable[[], Prepared]) -> Prepared:
    """Return prepared weights of one layer, from the cache unless one of the weights has changed.

    Args:
        key: name of the preparation.
        weights: the tensors that it reads; the cache entry lives as long as the first of them.
        prepare: computes the prepared weights.
    """
    state = tuple(_state(w) for w in weights)
    entries = _cache.setdefault(weights[0], {})
    if key not in entries or entries[key][0] != state:
        # a reference to the first weight would keep the entry alive
        entries[key] = state, weights[1:], prepare()
    prepared: Prepared = entries[key][2]
    return prepared


def prepared_tensors(weights: Iterable[torch.Tensor]) -> dict[tuple[int, str], tuple[torch.Tensor, ...]]:
    """Return all tensors in the cache that were prepared from weights and are up to date.

    Returns:
        Tensors keyed by the index of the first weight and the name of the preparation.
    """
    found = {}
    for index, first in enumerate(weights):
        for key, (state, others, prepared) in _cache.get(first, {}).items():
            if state == tuple(_state(w) for w in (first, *others)):
                found[index, key] = tuple(_tensors_in(prepared))
    return found


def _tensors_in(prepared: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of prepared weights: tensors, tensor descriptors, and tuples of these."""
    if isinstance(prepared, tuple):
        for part in prepared:
            yield from _tensors_in(part)
    else:
        yield prepared if isinstance(prepared, torch.Tensor) else prepared.base


def _state(x: torch.Tensor) -> tuple[Any, ...]:
    # inference tensors have no version counter; they cannot be written to outside inference mode either
    return x.data_ptr(), x.dtype, x.shape, x.stride(), 0 if x.is_inference() else x._version


def concatenate_columns(*weights: torch.Tensor) -> torch.Tensor:
    """Return matrices [C, ...] of one layer, flattened but for C, as columns of one (cached; read-only)."""
    return cached_weights(
        "concatenated columns",
        weights,
        lambda: torch.cat([w.reshape(w.shape[0], -1) for w in weights], dim=1),
    )


def join_rows(dtype: torch.dtype, *weights: torch.Tensor) -> torch.Tensor:
    """Return the matrices [M, C] of layers with the same input as one, in a dtype (cached; read-only)."""
    return cached_weights(f"joined rows in {dtype}", weights, lambda: torch.cat(weights).to(dtype))


def interleave_columns(*weights: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Interleave the columns of the first and second matrix, of the third and fourth, … (cached; read-only).

    Of an even number of tensors [..., M], the result is [..., M · number], in their dtype or another one.
    """
    return cached_weights(
        f"interleaved columns in {dtype}",
        weights,
        lambda: torch.cat(
            [torch.stack(two, -1).flatten(-2) for two in zip(weights[::2], weights[1::2], strict=True)], -1
        ).to(dtype or weights[0].dtype),
    )


def cast_weights(weights: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in a dtype, contiguous (cached; read-only)."""
    if weights.dtype == dtype and weights.is_contiguous():
        return weights
    return cached_weights(f"in {dtype}", (weights,), lambda: weights.to(dtype).contiguous())


def fold_layer_norm(
    scale: torch.Tensor, offset: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fold LayerNorm's scale and offset [C] into the projection that follows it, weights [C, M].

    LN(x) W equals (x − mean) / deviation times scale ⊙ W, plus the bias offset W. Returns weights [M, C] and
    bias [M], float32.
    """
    wide = weights.float()
    return (scale.float()[:, None] * wide).T, offset.float() @ wide
