"""The contest's kernels on a Hopper GPU: accuracy against float64."""

from collections.abc import Callable

import pytest
import torch

from tests.cuda.fused.gradients import double

pytest.importorskip("triton")

from benchmarks.contest import plain_operator
from benchmarks.contest_kernels import GateFirstWeights, gate_first_triangle_multiplication
from cuda.fused.dispatch import hopper_available

Draw = Callable[..., torch.Tensor]
Compare = Callable[..., None]


def random_weights(draw: Draw, channels: int, inner: int) -> GateFirstWeights:
    # transposed, like the weights [out, in] of torch's linear layers
    matrices = [draw(inner, channels, seed=k, scale=channels**-0.5).T for k in range(5)]
    return GateFirstWeights(
        draw(channels, seed=5),
        draw(channels, seed=6),
        *matrices,
        center_scale=draw(inner, seed=7),
        center_offset=draw(inner, seed=8),
        output=draw(channels, inner, seed=9, scale=inner**-0.5).T,
    )


def random_mask(x: torch.Tensor) -> torch.Tensor:
    """Return a mask [..., N, N] of some positions, without those of a whole row and column."""
    mask = (torch.rand(x.shape[:-1], generator=torch.Generator().manual_seed(x.shape[-2])) > 0.3).to(x)
    mask[..., x.shape[-2] // 2, :] = 0
    mask[..., x.shape[-2] // 3] = 0
    return mask


@pytest.mark.gpu
@pytest.mark.skipif(not (torch.cuda.is_available() and hopper_available("cuda")), reason="needs a Hopper GPU")
@pytest.mark.parametrize("masked, outgoing", [(False, True), (True, False)])
@pytest.mark.parametrize("channels", [128, 384])
@pytest.mark.parametrize("length", [1, 17, 64, 100, 257])
def test_sizes_of_the_contest(
    length: int, channels: int, masked: bool, outgoing: bool, draw: Draw, compare: Compare
) -> None:
    x = draw(2, length, length, channels, tailed=True).float()
    weights = random_weights(draw, channels, 128)
    weights = type(weights)(*(w.float() for w in weights))
    mask = random_mask(x) if masked else None
    exact = plain_operator(double(x), double(weights), double(mask), outgoing=outgoing)
    # normalised inputs are in float16's range
    normed = torch.nn.functional.layer_norm(x, (channels,)).half()
    halves = type(weights)(*(w.half() for w in weights))
    plain = plain_operator(normed, halves, None if mask is None else mask.half(), outgoing=outgoing).float()
    # with other strides
    mask = None if mask is None else mask.repeat_interleave(2, -1)[..., ::2]
    compare(gate_first_triangle_multiplication(x, weights, mask, outgoing=outgoing), plain, exact)
