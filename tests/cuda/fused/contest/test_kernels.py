"""The contest's kernels: accuracy against float64, tolerance of the contest, range of float16."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks import contest
from benchmarks.contest import GateFirstWeights, gate_first_triangle_multiplication, plain_operator
from tests.cuda.fused.environment import INTERPRETED

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


def mask_of(kind: str, x: torch.Tensor) -> torch.Tensor | None:
    """Return None or a mask [..., N, N] of all or some positions, the latter with a whole row and column."""
    if kind == "none":
        return None
    if kind == "all":
        return torch.zeros_like(x[..., 0])
    mask = (torch.rand(x.shape[:-1], generator=torch.Generator().manual_seed(x.shape[-2])) > 0.3).to(x)
    mask[..., x.shape[-2] // 2, :] = 0
    mask[..., x.shape[-2] // 3] = 0
    return mask


def double(x: Any) -> Any:
    if isinstance(x, tuple):
        return type(x)(*map(double, x))  # type: ignore[arg-type]
    return None if x is None else x.double()


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use large tiles under the interpreter, whose time depends on the number of programs."""
    choose = contest.launch_options

    def large_tiles(*arguments: Any) -> dict[str, Any]:
        return {name: options | {"POSITIONS": 1024} for name, options in choose(*arguments).items()}

    if INTERPRETED:
        monkeypatch.setattr(contest, "launch_options", large_tiles)


@pytest.mark.parametrize("outgoing", [True, False])
@pytest.mark.parametrize("masked", ["none", "some", "all"])
@pytest.mark.parametrize(
    "shape, inner", [((2, 17, 17, 16), 16), ((1, 34, 34, 128), 24), ((1, 9, 9, 384), 128)]
)
@pytest.mark.usefixtures("few_programs")
def test_matches_float64(
    shape: tuple[int, ...], inner: int, masked: str, outgoing: bool, draw: Draw, compare: Compare
) -> None:
    x, weights = draw(*shape, tailed=True), random_weights(draw, shape[-1], inner)
    mask = mask_of(masked, x)
    exact = plain_operator(double(x), double(weights), double(mask), outgoing=outgoing)
    result = gate_first_triangle_multiplication(x, weights, mask, outgoing=outgoing, operands=x.dtype)
    compare(result, plain_operator(x, weights, mask, outgoing=outgoing), exact)


@pytest.mark.usefixtures("few_programs")
def test_within_the_tolerance_of_the_contest(draw: Draw) -> None:
    x, weights = draw(2, 40, 40, 128).float(), random_weights(draw, 128, 128)
    weights = type(weights)(*(w.float() for w in weights))
    mask = mask_of("some", x)
    exact = plain_operator(double(x), double(weights), double(mask))
    result = gate_first_triangle_multiplication(x, weights, mask)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), exact, rtol=2e-2, atol=2e-2)


@pytest.mark.skipif(INTERPRETED, reason="takes minutes there; other tests cover the Triton kernels")
@pytest.mark.parametrize("masked, outgoing", [("none", True), ("some", False)])
@pytest.mark.parametrize("channels", [128, 384])
@pytest.mark.parametrize("length", [1, 17, 64, 100, 257])
def test_sizes_of_the_contest(
    length: int, channels: int, masked: str, outgoing: bool, draw: Draw, compare: Compare
) -> None:
    x = draw(2, length, length, channels, tailed=True).float()
    weights = random_weights(draw, channels, 128)
    weights = type(weights)(*(w.float() for w in weights))
    mask = mask_of(masked, x)
    exact = plain_operator(double(x), double(weights), double(mask), outgoing=outgoing)
    # normalised inputs are in float16's range
    normed = torch.nn.functional.layer_norm(x, (channels,)).half()
    halves = type(weights)(*(w.half() for w in weights))
    plain = plain_operator(normed, halves, None if mask is None else mask.half(), outgoing=outgoing).float()
    # with other strides
    mask = None if mask is None else mask.repeat_interleave(2, -1)[..., ::2]
    compare(gate_first_triangle_multiplication(x, weights, mask, outgoing=outgoing), plain, exact)


@pytest.mark.usefixtures("few_programs")
def test_sums_beyond_the_range_of_float16(draw: Draw) -> None:
    x, weights = draw(1, 20, 20, 16).float(), random_weights(draw, 16, 16)
    weights = type(weights)(*(w.float() for w in weights))
    # terms of about 3e4 with one sign, so that nothing cancels; the sum of three overflows float16
    weights = weights._replace(
        norm_offset=torch.full_like(weights.norm_offset, 60.0),
        left=weights.left.abs(),
        right=weights.right.abs(),
    )
    exact = plain_operator(double(x), double(weights))
    result = gate_first_triangle_multiplication(x, weights)
    torch.testing.assert_close(result.double(), exact, rtol=2e-2, atol=2e-2)
