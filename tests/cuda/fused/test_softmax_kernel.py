"""The softmax kernel against float64."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.softmax import kernel, reference

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]


def check(
    compare: Compare, logits: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None
) -> None:
    double = [None if x is None else x.double() for x in (mask, bias)]
    exact = reference.softmax(logits.double(), 0.3, *double)
    compare(kernel.softmax(logits, 0.3, mask, bias), reference.softmax(logits, 0.3, mask, bias), exact)


def some_mask(logits: torch.Tensor) -> torch.Tensor:
    """[B, K] with every third key masked, but not the first."""
    mask = torch.ones_like(logits[:, 0, 0])
    mask[:, 1::3] = 0
    return mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_lengths(length: int, masked: bool, biased: bool, draw: Draw, compare: Compare) -> None:
    logits = draw(3, 2, 5, length, tailed=True)
    bias = draw(2, 5, length, seed=1, tailed=True) if biased else None
    check(compare, logits, some_mask(logits) if masked else None, bias)


def test_strides(draw: Draw, compare: Compare) -> None:
    logits = draw(7, 3, 33, 2, tailed=True).permute(1, 3, 0, 2)  # [3, 2, 7, 33]
    bias = draw(33, 7, 2, seed=1).permute(2, 1, 0)
    check(compare, logits, some_mask(logits).T.contiguous().T, bias)


def test_rows_without_keys_average_all_of_them(draw: Draw) -> None:
    logits = draw(2, 2, 3, 40)
    mask = torch.ones_like(logits[:, 0, 0])
    mask[1] = 0
    ours = kernel.softmax(logits, 1.0, mask, draw(2, 3, 40, seed=1))[1]
    assert torch.equal(ours, torch.full_like(ours, 1 / 40))


def test_what_no_kernel_takes(draw: Draw) -> None:
    with pytest.raises(ValueError, match="16385"):
        kernel.softmax(draw(1, 1, 1, 16385))
