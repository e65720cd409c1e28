"""Matrix products with float32 results, for gradients that are sums over many positions."""

import torch

# Where cuBLAS splits a sum of products, versions 12.8 to 13.1 can leave out the terms beyond the last whole
# tile (https://github.com/facebookexperimental/triton/pull/2767; seen here with 4,097, 4,225, 16,136 and
# 18,818 terms). Tiles have at most 128 terms in 16 bits; terms beyond a multiple of that are multiplied in
# float32.
TILE_TERMS = 128


def wide_product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return a matrix product [R, K] × [K, C], or a batch of them [B, ...], in at least float32.

    With results in 16 bits, the GPU's library may split a long sum and round each part to 16 bits. Both
    factors have the same dtype.
    """
    if first.element_size() > 2:
        return first @ second
    if first.device.type == "cpu":
        return first.float() @ second.float()
    multiply = torch.mm if first.dim() == 2 else torch.bmm
    terms = first.shape[-1]
    main = terms - terms % TILE_TERMS
    if main == terms:
        return multiply(first, second, out_dtype=torch.float32)
    product = first[..., main:].float() @ second[..., main:, :].float()
    if main:
        product += multiply(first[..., :main], second[..., :main, :], out_dtype=torch.float32)
    return product
