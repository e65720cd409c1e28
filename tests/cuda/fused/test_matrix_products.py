"""Matrix products with float32 results."""

import pytest
import torch

from cuda.fused.matrix_products import wide_product

# on a GPU, sums whose number of terms is not a multiple of 128 are computed in two parts
TERMS = 1, 127, 128, 384, 1024, 3969, 4096, 4097, 4225, 12928, 16129, 16136, 36864


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize(
    "device, terms",
    [("cpu", 1), ("cpu", 4225), *(pytest.param("cuda", n, marks=pytest.mark.gpu) for n in TERMS)],
)
def test_long_sums_are_not_rounded_to_16_bits(
    device: str, dtype: torch.dtype, batch: tuple[int, ...], terms: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (
        torch.randn(*batch, terms, columns, generator=generator).to(device, dtype) for columns in (24, 16)
    )
    product = wide_product(first.mT, second)
    assert product.dtype == torch.promote_types(dtype, torch.float32)
    exact = first.double().mT @ second.double()
    # a rounding to float16 is wrong by up to 5e-4 of a value; tensor cores cut off the last bits of long sums
    assert (product - exact).abs().max() < 1e-4 * exact.abs().max()
