"""The kernels that prepare pair biases give the numbers of plain PyTorch."""

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


@pytest.mark.parametrize("length", [40, 130 if INTERPRETED else 256])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("contiguous", [False, True])
def test_transposed(length: int, masked: bool, transpose: bool, contiguous: bool) -> None:
    bias, mask = draw(2, length)
    bias = bias[..., :length]
    if contiguous:
        bias = bias.contiguous()
    arguments = bias, mask if masked else None, transpose
    values = biases.masked_and_transposed(*arguments)
    expected = plain_bias.masked_and_transposed(*arguments)
    assert torch.equal(values[0], expected[0]) and values[0].is_contiguous()
    assert (values[1] is None) == (not transpose)
    if values[1] is not None and expected[1] is not None:
        assert torch.equal(values[1], expected[1]) and values[1].is_contiguous()


def test_an_unmasked_bias_is_not_copied() -> None:
    bias = draw(1, 40)[0][..., :40].contiguous()
    assert biases.masked_and_transposed(bias, None, True)[0] is bias
