"""The attention kernel for Hopper against float64, its partitions as threads of Python."""

import pytest
import torch

triton = pytest.importorskip("triton")

from cuda.fused.attention import hopper, kernel  # noqa: E402
from tests.cuda.fused.gluon_stand_in import InPython  # noqa: E402

HEADS, WIDTH = 2, 32


def attended(
    batch: int, length: int, swapped: bool, steepness: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The kernel's results, those of float64, and how many sums left the middle range, by block."""
    generator = torch.Generator().manual_seed(batch + 10 * length)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).bfloat16()

    shape = (length, batch) if swapped else (batch, length)
    projected, gated = draw(*shape, 4 * HEADS * WIDTH), torch.full((*shape, HEADS * WIDTH), torch.nan)
    gated = gated.bfloat16()
    if swapped:
        projected, gated = projected.transpose(0, 1), gated.transpose(0, 1)
    gating_bias, bias = draw(HEADS, WIDTH), steepness * draw(HEADS, length, length)
    blocks = HEADS * -(-batch // 2) * -(-length // 64)
    outside = torch.full((blocks,), -1, dtype=torch.int32)
    hopper.attend(projected, gating_bias, kernel._aligned(bias), gated, outside)
    q, k, v, g = projected.double().unflatten(-1, (4, HEADS, WIDTH)).unbind(2)
    logits = torch.einsum("bihd,bjhd->bhij", q, k) * WIDTH**-0.5 + bias.double()
    exact = torch.einsum("bhij,bjhd->bihd", logits.softmax(-1), v) * torch.sigmoid(g + gating_bias.double())
    return gated, exact.flatten(2), outside


@pytest.fixture(autouse=True)
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs kernels in Python."""
    # what is instructions of the GPU in it
    instructions = {"_zeros": torch.zeros_like, "_wide": torch.Tensor.float}
    monkeypatch.setattr(hopper, "attend_blocks", InPython(hopper, "attend_blocks", **instructions))


@pytest.mark.parametrize(
    ("batch", "length", "swapped"),
    [(1, 1, False), (3, 17, True), (5, 64, False), (4, 65, True), (2, 200, False), (9, 130, True)],
)
def test_against_float64(batch: int, length: int, swapped: bool) -> None:
    ours, exact, outside = attended(batch, length, swapped)
    # bfloat16 has 2⁻⁹, and weights and results are rounded to it
    assert (ours.double() - exact).norm() / exact.norm() < 2**-8
    assert not outside.any()


def test_sums_out_of_the_middle_range_are_reported_where_they_are() -> None:
    ours, exact, outside = attended(3, 100, False, steepness=100.0)
    error = (ours.double() - exact).abs().unflatten(-1, (HEADS, WIDTH)).amax(-1)  # [batch, length, heads]
    bad = ~(error < 0.1)
    assert outside.any()
    for head in range(HEADS):
        for pair in range(2):
            for block in range(2):
                here = bad[2 * pair : 2 * pair + 2, 64 * block : 64 * block + 64, head]
                assert outside.view(HEADS, 2, 2)[head, pair, block] or not here.any()
