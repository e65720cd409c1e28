"""The reference implementations: accuracy against float64 formulas, chunking and masks."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.attention.reference import AttentionWeights, attention, global_attention
from cuda.fused.chunking import chunk_budget, row_slices
from cuda.fused.layer_norm import layer_norm
from cuda.fused.outer_product_mean.reference import OuterProductMeanWeights, add_outer_product_mean
from cuda.fused.pair_bias.reference import pair_bias
from cuda.fused.transition.reference import TransitionWeights, transition
from cuda.fused.triangle_multiplication.reference import (
    TriangleMultiplicationWeights,
    triangle_multiplication,
)
from tests.cuda.fused.gradients import double

SHAPES = [(1, 1, 8), (5, 7, 8), (3, 23, 16), (13, 4, 24)]
# relative error of float32 sums of a few hundred terms
RELATIVE = 2e-6


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator) / max(1, shape[0]) ** 0.5


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    assert result.shape == exact.shape
    return float((result - exact).norm() / exact.norm())


def norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt() * scale + offset


def some_mask(*shape: int) -> torch.Tensor:
    """Return a mask with about a third masked, but no row all masked."""
    mask = (torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) > 0.3).float()
    mask[..., 0] = 1.0
    return mask


def attention_weights(channels: int, shared_key: bool = False, outputs: int = 7) -> AttentionWeights:
    heads, width = 3, 5
    key = (channels, width) if shared_key else (channels, heads, width)
    shapes: list[tuple[int, ...]] = [(channels,), (channels,), (channels, heads, width), key, key]
    shapes += [(channels, heads, width), (heads, width)]
    return AttentionWeights(
        *(random(*shape, seed=i) for i, shape in enumerate(shapes)),
        output=random(heads, width, outputs),
        output_bias=random(outputs),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm(shape: tuple[int, ...]) -> None:
    x, scale, offset = random(*shape) + 3, random(shape[-1]), random(shape[-1], seed=1)
    exact = norm(x.double(), scale.double(), offset.double())
    assert error(layer_norm(x, scale, offset), exact) < RELATIVE


def exact_attention(
    x: torch.Tensor, w: AttentionWeights, mask: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    x = norm(x, w.norm_scale, w.norm_offset)
    query = torch.einsum("blc,chd->blhd", x, w.query) / w.query.shape[-1] ** 0.5
    key, value = torch.einsum("blc,chd->blhd", x, w.key), torch.einsum("blc,chd->blhd", x, w.value)
    logits = torch.einsum("blhd,bkhd->bhlk", query, key) + bias
    logits = logits.masked_fill(mask[:, None, None] == 0, -torch.inf)
    attended = torch.einsum("bhlk,bkhd->blhd", logits.softmax(-1), value)
    gate = torch.sigmoid(torch.einsum("blc,chd->blhd", x, w.gating) + w.gating_bias)
    return torch.einsum("blhd,hdo->blo", attended * gate, w.output) + w.output_bias


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_attention(shape: tuple[int, int, int], masked: bool, biased: bool) -> None:
    x, weights = random(*shape), attention_weights(shape[-1])
    mask = some_mask(*shape[:2]) if masked else torch.ones(shape[:2])
    bias = 3 * random(3, shape[1], shape[1]) if biased else torch.zeros(3, shape[1], shape[1])
    result = attention(x, weights, mask if masked else None, bias if biased else None)
    exact = exact_attention(x.double(), double(weights), mask.double(), bias.double())
    assert error(result, exact) < RELATIVE


@pytest.mark.parametrize("length", [1, 5, 17])
def test_pair_bias(length: int) -> None:
    pair, weights = random(length, length, 8) + 3, random(8, 3)
    scale, offset = random(8), random(8, seed=1)
    exact = norm(pair.double(), scale.double(), offset.double())
    exact = torch.einsum("ijc,ch->hij", exact, weights.double())
    assert error(pair_bias(pair, scale, offset, weights), exact) < RELATIVE


@pytest.mark.parametrize("shape", SHAPES)
def test_global_attention(shape: tuple[int, int, int]) -> None:
    x, w, mask = random(*shape), attention_weights(shape[-1], shared_key=True), some_mask(*shape[:2])
    result = global_attention(x, w, mask)
    w = double(w)
    x = norm(x.double(), w.norm_scale, w.norm_offset)
    weight = mask.double() / mask.double().sum(1, keepdim=True)
    query = torch.einsum("blc,bl,chd->bhd", x, weight, w.query) / w.query.shape[-1] ** 0.5
    logits = torch.einsum("bhd,blc,cd->bhl", query, x, w.key)
    logits = logits.masked_fill(mask[:, None] == 0, -torch.inf)
    attended = torch.einsum("bhl,blc,cd->bhd", logits.softmax(-1), x, w.value)
    gate = torch.sigmoid(torch.einsum("blc,chd->blhd", x, w.gating) + w.gating_bias)
    exact = torch.einsum("blhd,hdo->blo", gate * attended[:, None], w.output) + w.output_bias
    assert error(result, exact) < RELATIVE


def triangle_weights(channels: int) -> TriangleMultiplicationWeights:
    inner = 6
    shapes: list[tuple[int, ...]] = [(channels,), (channels,)]
    shapes += [(channels, inner), (inner,)] * 4
    shapes += [(inner,), (inner,), (inner, channels), (channels,), (channels, channels), (channels,)]
    return TriangleMultiplicationWeights(*(random(*shape, seed=i) for i, shape in enumerate(shapes)))


@pytest.mark.parametrize("length", [1, 5, 17])
@pytest.mark.parametrize("outgoing", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_triangle_multiplication(length: int, outgoing: bool, masked: bool) -> None:
    pair, w = random(length, length, 8), triangle_weights(8)
    mask = some_mask(length, length) if masked else torch.ones(length, length)
    result = triangle_multiplication(pair, w, mask if masked else None, outgoing=outgoing)
    w, mask = double(w), mask.double()
    normed = norm(pair.double(), w.norm_scale, w.norm_offset)
    left = (normed @ w.left + w.left_bias) * torch.sigmoid(normed @ w.left_gate + w.left_gate_bias)
    right = (normed @ w.right + w.right_bias) * torch.sigmoid(normed @ w.right_gate + w.right_gate_bias)
    left, right = left * mask[..., None], right * mask[..., None]
    # the published parameters need the factors of incoming edges swapped compared with the paper
    equation = "ikc,jkc->ijc" if outgoing else "kjc,kic->ijc"
    product = norm(torch.einsum(equation, left, right), w.center_scale, w.center_offset)
    exact = (product @ w.output + w.output_bias) * torch.sigmoid(normed @ w.gating + w.gating_bias)
    # LayerNorm of a product near zero amplifies its rounding error
    assert error(result, exact) < 5 * RELATIVE


def test_update_in_place() -> None:
    pair = random(9, 9, 8)
    expected = pair + triangle_multiplication(pair, triangle_weights(8), outgoing=True)
    changed = pair.clone()
    assert triangle_multiplication(changed, triangle_weights(8), outgoing=True, add=True) is changed
    assert torch.equal(changed, expected)
    weights = attention_weights(8, outputs=8)
    expected = pair + attention(pair, weights)
    changed = pair.clone()
    assert attention(changed, weights, add=True) is changed
    assert torch.equal(changed, expected)


def transition_weights(channels: int) -> TransitionWeights:
    wide = 3 * channels
    shapes = [(channels,), (channels,), (channels, wide), (wide,), (wide, channels), (channels,)]
    return TransitionWeights(*(random(*shape, seed=i) for i, shape in enumerate(shapes)))


@pytest.mark.parametrize("shape", SHAPES)
def test_transition(shape: tuple[int, ...]) -> None:
    x, w = random(*shape), transition_weights(shape[-1])
    result, w = transition(x, w), double(w)
    normed = norm(x.double(), w.norm_scale, w.norm_offset)
    exact = torch.relu(normed @ w.widen + w.widen_bias) @ w.narrow + w.narrow_bias
    assert error(result, exact) < RELATIVE


def outer_product_mean(
    msa: torch.Tensor, weights: OuterProductMeanWeights, mask: torch.Tensor
) -> torch.Tensor:
    pair = torch.zeros(msa.shape[1], msa.shape[1], weights.output.shape[-1])
    return add_outer_product_mean(pair, msa, weights, mask)


def outer_weights(channels: int) -> OuterProductMeanWeights:
    shapes = [(channels,), (channels,), (channels, 4), (4,), (channels, 4), (4,), (4, 4, 9), (9,)]
    return OuterProductMeanWeights(*(random(*shape, seed=i) for i, shape in enumerate(shapes)))


@pytest.mark.parametrize("shape", SHAPES)
def test_outer_product_mean(shape: tuple[int, int, int]) -> None:
    msa, w, mask = random(*shape), outer_weights(shape[-1]), some_mask(*shape[:2])
    result = outer_product_mean(msa, w, mask)
    w, mask = double(w), mask.double()
    normed = norm(msa.double(), w.norm_scale, w.norm_offset)
    left = (normed @ w.left + w.left_bias) * mask[..., None]
    right = (normed @ w.right + w.right_bias) * mask[..., None]
    outer = torch.einsum("sic,sje,cez->ijz", left, right, w.output) + w.output_bias
    exact = outer / (1e-3 + torch.einsum("si,sj->ij", mask, mask))[..., None]
    assert error(result, exact) < RELATIVE


CHUNKED: dict[str, Callable[[], torch.Tensor]] = {
    "attention": lambda: attention(random(11, 7, 8), attention_weights(8), some_mask(11, 7), random(3, 7, 7)),
    "attention without mask": lambda: attention(random(11, 7, 8), attention_weights(8)),
    "attention of a transposed view": lambda: attention(
        random(7, 11, 8).transpose(0, 1), attention_weights(8), some_mask(11, 7)
    ),
    "global attention": lambda: global_attention(
        random(11, 7, 8), attention_weights(8, shared_key=True), some_mask(11, 7)
    ),
    "pair bias": lambda: pair_bias(random(11, 11, 8), random(8), random(8, seed=1), random(8, 3)),
    "outgoing": lambda: triangle_multiplication(
        random(11, 11, 8), triangle_weights(8), some_mask(11, 11), outgoing=True
    ),
    "incoming": lambda: triangle_multiplication(random(11, 11, 8), triangle_weights(8), None, outgoing=False),
    "transition": lambda: transition(random(11, 7, 8), transition_weights(8)),
    "outer product mean": lambda: outer_product_mean(random(5, 11, 8), outer_weights(8), some_mask(5, 11)),
}


@pytest.mark.parametrize("operation", CHUNKED)
def test_chunks_do_not_change_the_result(operation: str) -> None:
    with chunk_budget(2**40):
        whole = CHUNKED[operation]()
    for budget in (1, 2000, None):
        with chunk_budget(budget):
            assert error(CHUNKED[operation](), whole.double()) < 1e-6


@pytest.mark.parametrize("operation", ["attention", "global", "outer"])
def test_masked_positions_do_not_affect_the_result(operation: str) -> None:
    x, mask = random(6, 9, 8), some_mask(6, 9)
    changed = torch.where(mask[..., None] > 0, x, 5.0 + random(6, 9, 8, seed=1))

    def run(x: torch.Tensor) -> torch.Tensor:
        if operation == "attention":
            return attention(x, attention_weights(8), mask) * mask[..., None]
        if operation == "global":
            return global_attention(x, attention_weights(8, shared_key=True), mask) * mask[..., None]
        return outer_product_mean(x, outer_weights(8), mask)

    assert not torch.equal(x, changed)
    assert error(run(changed), run(x).double()) < 1e-6


def test_row_slices_cover_all_rows_once() -> None:
    for rows, per_row, budget in [(0, 3, 10), (1, 100, 10), (10, 3, 10), (10, 0, 4), (7, 1, 100)]:
        with chunk_budget(budget):
            slices = list(row_slices(torch.empty(rows), per_row))
        assert [i for s in slices for i in range(rows)[s]] == list(range(rows))
        assert all(s.stop - s.start <= max(1, budget // max(1, per_row)) for s in slices)
