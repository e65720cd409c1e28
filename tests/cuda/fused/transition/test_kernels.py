"""Transition kernels: accuracy against float64, strides, updates in place, unsupported input."""

from collections.abc import Callable

import pytest
import torch

from cuda.fused.dispatch import implementation_module
from cuda.fused.transition import TransitionWeights, join_gate, reference
from tests.cuda.fused.environment import DEVICE, IMPLEMENTATION, INTERPRETED

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]
kernels = implementation_module("transition", IMPLEMENTATION, DEVICE)


def random_weights(draw: Draw, channels: int, width: int, is_gated: bool = False) -> TransitionWeights:
    columns = width * (1 + is_gated)
    return TransitionWeights(
        norm_scale=draw(channels, seed=1),
        norm_offset=draw(channels, seed=2),
        widen=draw(channels, columns, seed=3, scale=channels**-0.5),
        widen_bias=draw(columns, seed=4),
        narrow=draw(width, channels, seed=5, scale=width**-0.5),
        narrow_bias=draw(channels, seed=6),
    )


@pytest.fixture
def check(draw: Draw, compare: Compare) -> Callable[..., None]:
    """Return a function that compares the update of rows x, widened to `width`, with float64."""

    def checked(x: torch.Tensor, width: int, is_gated: bool = False) -> None:
        weights = random_weights(draw, x.shape[-1], width, is_gated)
        exact = reference.transition(x.double(), TransitionWeights(*(w.double() for w in weights)))
        result = kernels.transition(x, weights)
        assert result.is_contiguous()
        compare(result, reference.transition(x, weights), exact)

    return checked


def test_matches_float64_for_lengths(length: int, check: Callable[..., None], draw: Draw) -> None:
    check(draw(2, length, 64, tailed=True), 256)


@pytest.mark.parametrize("channels, width", [(8, 8), (24, 40), (64, 128), (128, 512), (256, 1024)])
def test_matches_float64_for_channels(
    channels: int, width: int, check: Callable[..., None], draw: Draw
) -> None:
    check(draw(3, 11, channels, tailed=True), width)


@pytest.mark.parametrize("channels, width", [(24, 64), (64, 128), (128, 512)])
def test_gated_layer_matches_float64(
    channels: int, width: int, check: Callable[..., None], draw: Draw
) -> None:
    check(draw(3, 11, channels, tailed=True), width, is_gated=True)


def test_gate_is_the_first_matrix(draw: Draw) -> None:
    x, weights = draw(5, 32), random_weights(draw, 32, 128, is_gated=True)
    a, b = draw(32, 128, seed=7), draw(32, 128, seed=8)
    weights = weights._replace(widen=join_gate(a, b), widen_bias=0 * weights.widen_bias)
    normed = torch.nn.functional.layer_norm(x.double(), (32,), *(w.double() for w in weights[:2]))
    hidden = torch.nn.functional.silu(normed @ a.double()) * (normed @ b.double())
    exact = hidden @ weights.narrow.double() + weights.narrow_bias.double()
    result = reference.transition(x.double(), TransitionWeights(*(w.double() for w in weights)))
    torch.testing.assert_close(result, exact)


@pytest.mark.parametrize("view", [lambda x: x.transpose(0, 1), lambda x: x[::2, 1:], lambda x: x[:, 3]])
def test_matches_float64_for_strided_input(
    view: Callable[[torch.Tensor], torch.Tensor], check: Callable[..., None], draw: Draw
) -> None:
    check(view(draw(9, 13, 32, tailed=True)), 64)


@pytest.mark.parametrize("transposed", [False, True])
def test_update_in_place(transposed: bool, draw: Draw, compare: Compare) -> None:
    whole = draw(9, 13, 32, tailed=True)
    x = whole.transpose(0, 1) if transposed else whole
    weights = random_weights(draw, 32, 128)
    exact = x.double() + reference.transition(x.double(), TransitionWeights(*(w.double() for w in weights)))
    plain = reference.transition(x.clone(), weights, add=True)
    result = kernels.transition(x, weights, add=True)
    assert result.data_ptr() == whole.data_ptr() and result.stride() == x.stride()
    compare(x, plain, exact)


@pytest.mark.skipif(INTERPRETED, reason="takes minutes under the interpreter")
@pytest.mark.parametrize("rows", [1, 64, 65, 16895, 16897, 50000])
@pytest.mark.parametrize("channels, factor", [(64, 2), (64, 4), (128, 4), (256, 4)])
@pytest.mark.parametrize("is_gated", [False, True])
def test_sizes_of_the_network(
    rows: int, channels: int, factor: int, is_gated: bool, draw: Draw, compare: Compare
) -> None:
    if is_gated and channels > 128:
        pytest.skip("no network has such a layer")
    x, weights = (
        draw(rows, channels, tailed=True),
        random_weights(draw, channels, factor * channels, is_gated),
    )
    exact = x.double() + reference.transition(x.double(), TransitionWeights(*(w.double() for w in weights)))
    plain = reference.transition(x.clone(), weights, add=True)
    update = kernels.transition(x, weights)
    compare(update, reference.transition(x, weights), exact - x.double())
    compare(kernels.transition(x, weights, add=True), plain, exact)


def test_unaligned_weights(draw: Draw) -> None:
    x, weights = draw(5, 32), random_weights(draw, 32, 128)
    widen = draw(1 + weights.widen.numel())[1:].view(weights.widen.shape).copy_(weights.widen)
    result = kernels.transition(x, weights._replace(widen=widen))
    assert widen.data_ptr() % 16 and torch.equal(result, kernels.transition(x, weights))


def test_unsupported_input_is_rejected(draw: Draw) -> None:
    with pytest.raises(ValueError, match="512 channels"):
        kernels.transition(draw(3, 512), random_weights(draw, 512, 512))
    with pytest.raises(ValueError, match="16 bytes"):
        kernels.transition(draw(3, 16), random_weights(draw, 16, 17))
