"""Weights prepared for kernels: their values, and when the cache prepares them again."""

import gc

import torch

from cuda.fused import weights
from cuda.fused.layer_norm.reference import layer_norm
from cuda.fused.weights import (
    cached_weights,
    cast_weights,
    concatenate_columns,
    fold_layer_norm,
    interleave_columns,
    prepared_tensors,
)


def test_weights_are_prepared_once_until_one_of_them_changes() -> None:
    first, second = torch.randn(3, 4), torch.randn(3, 4)
    prepared = concatenate_columns(first, second)
    assert torch.equal(prepared, torch.cat([first, second], 1))
    assert concatenate_columns(first, second) is prepared
    second.mul_(2)
    assert torch.equal(concatenate_columns(first, second), torch.cat([first, second], 1))


def test_weights_are_prepared_again_with_another_partner_or_key() -> None:
    first = torch.randn(3, 4)
    for second in (torch.randn(3, 4), torch.randn(3, 4)):
        assert torch.equal(concatenate_columns(first, second), torch.cat([first, second], 1))
    assert cached_weights("sum", (first,), first.sum) == first.sum()
    assert cached_weights("maximum", (first,), first.max) == first.max()


def test_entries_live_as_long_as_their_first_weight() -> None:
    before = len(weights._cache)
    with torch.inference_mode():
        layer = torch.randn(3, 4)
        cast_weights(layer, torch.float16)
    assert len(weights._cache) == before + 1
    del layer
    gc.collect()
    assert len(weights._cache) == before


def test_prepared_tensors_are_found_unless_they_are_outdated() -> None:
    first, second, third = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)
    columns = concatenate_columns(second, third)
    half = cast_weights(second, torch.float16)
    total, largest = cached_weights("nested", (third,), lambda: (third.sum(), (third.max(),)))
    found = prepared_tensors([first, second, third])
    assert found.keys() == {(1, "concatenated columns"), (1, "in torch.float16"), (2, "nested")}
    assert found[1, "concatenated columns"][0] is columns and found[1, "in torch.float16"][0] is half
    assert found[2, "nested"][0] is total and found[2, "nested"][1] is largest[0]
    third.mul_(2)
    assert prepared_tensors([first, second, third]).keys() == {(1, "in torch.float16")}


def test_columns_of_pairs_are_interleaved() -> None:
    columns = torch.arange(8.0).view(4, 1, 2)
    expected = torch.tensor([[0, 2, 1, 3, 4, 6, 5, 7]], dtype=torch.float16)
    assert torch.equal(interleave_columns(*columns, dtype=torch.float16), expected)


def test_cast_keeps_weights_that_need_no_change() -> None:
    matrix = torch.randn(3, 4)
    assert cast_weights(matrix, torch.float32) is matrix
    assert cast_weights(matrix.T, torch.float32).is_contiguous()
    assert torch.equal(cast_weights(matrix, torch.float16), matrix.half())


def test_folded_layer_norm_gives_the_projection_of_normalised_input() -> None:
    x, scale, offset, matrix = torch.randn(5, 8), torch.randn(8), torch.randn(8), torch.randn(8, 3)
    folded, bias = fold_layer_norm(scale, offset, matrix)
    ones, zeros = torch.ones(8), torch.zeros(8)
    expected = layer_norm(x, scale, offset) @ matrix
    torch.testing.assert_close(layer_norm(x, ones, zeros) @ folded.T + bias, expected)
