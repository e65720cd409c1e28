"""The attention core kernel for Hopper, run by the Gluon simulator, against float64."""

import pytest
import torch

pytest.importorskip("triton")

from cuda.fused.attention import hopper, hopper_core
from cuda.fused.attention import triton as triton_attention
from tests.cuda.fused.attention import plain_bias, simulated_core

HEADS, WIDTH = 2, 32


def run_kernel(
    batch: int,
    length: int,
    swapped: bool,
    bias_scales: tuple[float, ...] = (1.0,) * HEADS,
    query_scales: tuple[float, ...] = (1.0,) * HEADS,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the kernel's result, the exact one, and the number of sums out of range in each block.

    The bias and the queries of each head are multiplied by its scales.
    """
    generator = torch.Generator().manual_seed(batch + 10 * length)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).bfloat16()

    shape = (length, batch) if swapped else (batch, length)
    projected, gated = draw(*shape, 4 * HEADS * WIDTH), torch.full((*shape, HEADS * WIDTH), torch.nan)
    gated = gated.bfloat16()
    if swapped:
        projected, gated = projected.transpose(0, 1), gated.transpose(0, 1)
    gating_bias, bias = draw(HEADS, WIDTH), draw(HEADS, length, length)
    bias *= torch.tensor(bias_scales)[:, None, None]
    projected.unflatten(-1, (4, HEADS, WIDTH))[:, :, 0].mul_(torch.tensor(query_scales)[:, None])
    tile = {"ROWS": hopper_core.ROWS.value, "QUERIES": hopper_core.QUERIES.value}
    launch = triton_attention.prepare_core(projected, gating_bias, None, bias, gated, **tile)
    out_of_range = launch.arguments[-1].fill_(-1)
    assert len(out_of_range) == launch.blocks == HEADS * -(-batch // 2) * -(-length // 64)
    hopper_core.launch_core(launch.arguments, HEADS)
    q, k, v, g = projected.double().unflatten(-1, (4, HEADS, WIDTH)).unbind(2)
    logits = torch.einsum("bihd,bjhd->bhij", q, k) * WIDTH**-0.5 + bias.double()
    exact = torch.einsum("bhij,bjhd->bihd", logits.softmax(-1), v) * torch.sigmoid(g + gating_bias.double())
    return gated, exact.flatten(2), out_of_range


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernel in the simulator."""
    monkeypatch.setattr(triton_attention, "check_tensors", lambda *_: None)
    simulated_core.replace_kernel(monkeypatch)
    plain_bias.replace_kernel(monkeypatch)


@pytest.mark.parametrize(
    ("batch", "length", "swapped"),
    [(1, 1, False), (3, 17, True), (5, 64, False), (4, 65, True), (2, 200, False), (9, 130, True)],
)
def test_matches_float64(batch: int, length: int, swapped: bool) -> None:
    result, exact, out_of_range = run_kernel(batch, length, swapped)
    # bfloat16's precision is 2⁻⁹, and both weights and results are rounded to it
    assert (result.double() - exact).norm() / exact.norm() < 2**-8
    assert not out_of_range.any()


@pytest.mark.parametrize("masked", [False, True])
def test_statistics_and_shared_mask(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """exp(m) times the sum of weights is the softmax's denominator."""
    monkeypatch.setattr(hopper, "MIN_LENGTH", 0)
    recomputed = []
    monkeypatch.setattr(triton_attention, "recompute_out_of_range", recomputed.append)
    batch, length, inner = 3, 100, HEADS * WIDTH
    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(batch, length, 4 * inner, generator=generator).bfloat16()
    bias = torch.randn(1, HEADS, length, length, generator=generator).bfloat16()
    gated = projected.new_full((batch, length, inner), torch.nan)
    statistics = tuple(torch.full((batch, HEADS, length), torch.nan) for _ in range(2))
    mask = None
    if masked:
        mask = (torch.rand(1, length, generator=generator) > 0.3).float()
        mask[:, :40] = 0.0  # all keys of the first tile
    shared = None if mask is None else mask.expand(batch, length)
    hopper.attend(projected, torch.full((HEADS, WIDTH), 1e3).bfloat16(), shared, bias, gated, statistics)
    q, k, v, _ = projected.double().unflatten(-1, (4, HEADS, WIDTH)).unbind(2)
    logits = torch.einsum("bihd,bjhd->bhij", q, k) * WIDTH**-0.5 + bias.double()
    if mask is not None:
        logits = logits.masked_fill(mask == 0, -torch.inf)
    exact = torch.einsum("bhij,bjhd->bihd", logits.softmax(-1), v).flatten(2)
    assert (gated.double() - exact).norm() / exact.norm() < 2**-8
    maximum, total = statistics
    torch.testing.assert_close(
        maximum.double() + total.double().log(), logits.logsumexp(-1), atol=5e-3, rtol=1e-3
    )
    (launch,) = recomputed
    assert not launch.arguments[-1].any()


def test_steep_bias_takes_no_sum_out_of_range() -> None:
    result, exact, out_of_range = run_kernel(3, 100, False, bias_scales=(100.0, 1e4))
    assert (result.double() - exact).norm() / exact.norm() < 2**-8
    assert not out_of_range.any()


def test_products_of_trained_networks_take_no_sum_out_of_range() -> None:
    """Sums reach 2⁸⁰ here, and 2⁷³ in the compact network."""
    result, exact, out_of_range = run_kernel(3, 100, False, query_scales=(8.0, 12.0))
    assert (result.double() - exact).norm() / exact.norm() < 2**-6
    assert not out_of_range.any()


def test_sums_out_of_range_are_counted_in_their_block() -> None:
    result, exact, out_of_range = run_kernel(3, 100, False, query_scales=(1.0, 100.0))
    error = (result.double() - exact).abs().unflatten(-1, (HEADS, WIDTH)).amax(-1)  # [batch, length, heads]
    bad = ~(error < 0.1)
    counts = out_of_range.view(2, HEADS, 2)  # by pair of rows, head and block of queries
    assert counts[:, 1].any() and not counts[:, 0].any()
    for head in range(HEADS):
        for pair in range(2):
            for block in range(2):
                here = bad[2 * pair : 2 * pair + 2, 64 * block : 64 * block + 64, head]
                assert counts[pair, head, block] or not here.any()
