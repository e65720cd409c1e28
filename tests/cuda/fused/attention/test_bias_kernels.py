"""The kernel that prepares pair biases gives the numbers of plain PyTorch."""

import pytest
import torch

from cuda.fused.attention import biases
from tests.cuda.fused.attention import plain_bias
from tests.cuda.fused.environment import DEVICE, INTERPRETED


def draw(parts: int, length: int, heads: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    # more keys than are real, heads last in memory
    bias = torch.randn(parts, length, length + 8, heads, generator=generator).to(DEVICE, torch.bfloat16)
    mask = (torch.rand(1, length, generator=generator) > 0.3).float().to(DEVICE)
    return bias.permute(0, 3, 1, 2), mask.expand(4, length)


@pytest.mark.parametrize("length", [1, 40, 129] if INTERPRETED else [1, 40, 129, 600])
def test_relative(length: int) -> None:
    bias, mask = draw(1, length)
    steep = bias[0] * torch.tensor([1.0, 1e4, 1.0], device=DEVICE)[:, None, None].bfloat16()
    for arguments in ((bias[0], None), (bias[0], mask), (steep, mask)):
        relative, maxima = biases.relative_bias(*arguments)
        expected, expected_maxima = plain_bias.relative_bias(*arguments)
        assert relative.is_contiguous() and torch.equal(maxima, expected_maxima)
        # one unit in the last place, as float32 products may be fused with sums
        torch.testing.assert_close(relative, expected, rtol=2**-10, atol=0)
