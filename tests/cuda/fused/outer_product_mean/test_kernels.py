"""Outer product mean kernels: accuracy against float64, masks, strides, unsupported input."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cuda.fused.dispatch import implementation_module
from cuda.fused.outer_product_mean import OuterProductMeanWeights, reference
from cuda.fused.outer_product_mean import triton as triton_kernels
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION, INTERPRETED

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
kernels = implementation_module("outer_product_mean", IMPLEMENTATION, DEVICE)


def random_weights(draw: Draw, channels: int, inner: int, pair: int) -> OuterProductMeanWeights:
    return OuterProductMeanWeights(
        norm_scale=draw(channels, seed=1),
        norm_offset=draw(channels, seed=2),
        left=draw(channels, inner, seed=3, scale=channels**-0.5),
        left_bias=draw(inner, seed=4),
        right=draw(channels, inner, seed=5, scale=channels**-0.5),
        right_bias=draw(inner, seed=6),
        output=draw(inner, inner, pair, seed=7, scale=1 / inner),
        output_bias=draw(pair, seed=8),
    )


def some_mask(sequences: int, length: int, masked: str) -> torch.Tensor:
    """Return float32 [S, N] with no, some or all positions masked; "some" includes a whole row and column."""
    if masked == "some":
        mask = (torch.rand(sequences, length, generator=torch.Generator().manual_seed(length)) > 0.3).float()
        mask[sequences // 2], mask[:, length // 2] = 0, 0
        return mask
    return torch.full((sequences, length), float(masked == "none"))


def update(
    module: Any, msa: torch.Tensor, weights: OuterProductMeanWeights, mask: torch.Tensor | None = None
) -> torch.Tensor:
    pair = msa.new_zeros(msa.shape[1], msa.shape[1], weights.output.shape[-1])
    return module.add_outer_product_mean(pair, msa, weights, mask)


def check(msa: torch.Tensor, weights: OuterProductMeanWeights, mask: torch.Tensor, compare: Compare) -> None:
    mask = mask.to(msa.device)
    exact = update(
        reference, msa.double(), OuterProductMeanWeights(*(w.double() for w in weights)), mask.double()
    )
    plain = update(reference, msa, weights, mask)
    result = update(kernels, msa, weights, mask)
    # if two residues share no sequence, the bias is divided by ε, and its error would hide all others
    counted = mask.T @ mask > 0
    for cells in (counted, ~counted):
        if cells.any():
            compare(result[cells], plain[cells], exact[cells])


@pytest.mark.parametrize("masked", ["none", "some", "all"])
def test_matches_float64_for_lengths(length: int, masked: str, draw: Draw, compare: Compare) -> None:
    msa = draw(7, length, 16, tailed=True)
    check(msa, random_weights(draw, 16, 8, 16), some_mask(7, length, masked), compare)


def test_no_mask_equals_a_mask_of_ones(length: int, draw: Draw, compare: Compare) -> None:
    msa, weights = draw(7, length, 16), random_weights(draw, 16, 8, 16)
    exact = update(
        reference,
        msa.double(),
        OuterProductMeanWeights(*(w.double() for w in weights)),
        torch.ones(7, length).to(msa.device).double(),
    )
    plain = update(reference, msa, weights)
    compare(update(kernels, msa, weights), plain, exact)
    torch.testing.assert_close(plain, update(reference, msa, weights, torch.ones(7, length).to(msa.device)))


@pytest.mark.parametrize("sequences", [1, 64, 65, 130])
def test_matches_float64_for_sequences(sequences: int, draw: Draw, compare: Compare) -> None:
    msa = draw(sequences, 11, 16, tailed=True)
    check(msa, random_weights(draw, 16, 8, 16), some_mask(sequences, 11, "some"), compare)


@pytest.mark.parametrize("channels, inner, pair", [(64, 32, 128), (256, 32, 128), (24, 8, 40), (8, 16, 8)])
def test_matches_float64_for_channels(
    channels: int, inner: int, pair: int, draw: Draw, compare: Compare
) -> None:
    msa = draw(9, 6, channels, tailed=True)
    check(msa, random_weights(draw, channels, inner, pair), some_mask(9, 6, "some"), compare)


@pytest.mark.parametrize("view", [lambda x: x.transpose(0, 1), lambda x: x[::2, 1:]])
def test_matches_float64_for_strided_input(
    view: Callable[[torch.Tensor], torch.Tensor], draw: Draw, compare: Compare
) -> None:
    msa = view(draw(9, 13, 32, tailed=True))
    check(msa, random_weights(draw, 32, 8, 16), some_mask(*msa.shape[:2], "some"), compare)


@pytest.mark.parametrize("channels", [16, 40])
def test_update_in_place(length: int, channels: int, draw: Draw, compare: Compare) -> None:
    pair, msa = draw(length, length, channels, seed=9), draw(7, length, 16)
    weights, mask = random_weights(draw, 16, 8, channels), torch.ones(7, length, device=msa.device)
    exact = pair.double() + update(
        reference, msa.double(), OuterProductMeanWeights(*(w.double() for w in weights)), mask.double()
    )
    plain = reference.add_outer_product_mean(pair.clone(), msa, weights, mask)
    result = pair.clone()
    assert kernels.add_outer_product_mean(result, msa, weights, mask) is result
    compare(result, plain, exact)


@pytest.mark.skipif(INTERPRETED, reason="takes minutes under the interpreter")
class TestNetworkSizes:
    """Factors of 32 and pairs of 128 channels, for which Hopper GPUs have their own kernels."""

    @pytest.mark.parametrize("masked", ["none", "some"])
    def test_matches_float64_for_lengths(
        self, length: int, masked: str, draw: Draw, compare: Compare
    ) -> None:
        msa = draw(130, length, 64, tailed=True)
        check(msa, random_weights(draw, 64, 32, 128), some_mask(130, length, masked), compare)

    @pytest.mark.parametrize("sequences", [1, 127, 128, 129, 508, 512, 513])
    def test_matches_float64_for_sequences(self, sequences: int, draw: Draw, compare: Compare) -> None:
        msa = draw(sequences, 70, 256, tailed=True)
        check(msa, random_weights(draw, 256, 32, 128), some_mask(sequences, 70, "some"), compare)

    def test_update_in_place(self, length: int, draw: Draw, compare: Compare) -> None:
        pair, msa = draw(length, length, 128, seed=9), draw(40, length, 64)
        weights = random_weights(draw, 64, 32, 128)
        exact = pair.double() + update(
            reference, msa.double(), OuterProductMeanWeights(*(w.double() for w in weights))
        )
        plain = reference.add_outer_product_mean(pair.clone(), msa, weights)
        compare(kernels.add_outer_product_mean(pair, msa, weights), plain, exact)

    def test_unaligned_weights(self, draw: Draw) -> None:
        msa, weights = draw(9, 20, 64), random_weights(draw, 64, 32, 128)
        output = draw(1 + weights.output.numel())[1:].view(weights.output.shape).copy_(weights.output)
        result = update(kernels, msa, weights._replace(output=output))
        assert output.data_ptr() % 16 and torch.equal(result, update(kernels, msa, weights))


def test_unsupported_input_is_rejected(draw: Draw) -> None:
    with pytest.raises(ValueError, match="6 channels"):
        update(kernels, draw(3, 4, 16), random_weights(draw, 16, 6, 16), torch.ones(3, 4))
    with pytest.raises(ValueError, match="contiguous"):
        weights, pair = random_weights(draw, 16, 8, 16), draw(4, 4, 16).transpose(0, 1)
        kernels.add_outer_product_mean(pair, draw(3, 4, 16), weights, torch.ones(3, 4))


@pytest.mark.parametrize("masked", ["none", "some"])
def test_rows_of_the_pair_representation(masked: str, draw: Draw, compare: Compare) -> None:
    msa, weights = draw(9, 21, 16, tailed=True), random_weights(draw, 16, 8, 16)
    mask = None if masked == "none" else some_mask(9, 21, masked).to(msa.device)
    pair = draw(21, 21, 16, seed=9)
    wide = OuterProductMeanWeights(*(w.double() for w in weights))
    exact = pair.double() + update(reference, msa.double(), wide, None if mask is None else mask.double())
    plain = reference.add_outer_product_mean(pair.clone(), msa, weights, mask)
    parts = [slice(0, 9), slice(9, 21), slice(21, 21)]
    factors = [
        triton_kernels.project_residues(msa[:, part], weights, None if mask is None else mask[:, part])
        for part in parts
    ]
    for part, (left, _) in zip(parts, factors, strict=True):
        counts = reference.shared_counts(mask, part)
        for columns, (_, right) in zip(parts, factors, strict=True):
            block_counts = None if counts is None else counts[:, columns]
            triton_kernels.add_contraction(pair[part, columns], left, right, weights, block_counts)
    # where residues share no sequence, the divided bias would hide all other errors
    counted = torch.ones_like(pair[..., 0], dtype=torch.bool) if mask is None else mask.T @ mask > 0
    compare(pair[counted], plain[counted], exact[counted])
