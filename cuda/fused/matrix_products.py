"""Matrix products with float32 results, for gradients that are sums over many positions."""

import torch

# cuBLAS 13.0 can leave out the last terms of a sum of products in 16 bits if the first matrix is stored by
# columns: seen with 4,097, 4,225 and 16,136 terms, and never with a multiple of 4,096. The terms beyond
# the last multiple are therefore multiplied in float32.
SAFE_TERMS = 4096


def wide_product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return a matrix product, or a batch of them, in at least float32.

    With results in 16 bits, the GPU's library may split a long sum and round each part to 16 bits.

    Args:
        first: [R, K] or [B, R, K].
        second: [K, C] or [B, K, C], with the dtype of the first.

    Returns:
        [R, C] or [B, R, C].
    """
    if first.element_size() > 2:
        return first @ second
    if first.device.type == "cpu":
        return first.float() @ second.float()
    multiply = torch.mm if first.dim() == 2 else torch.bmm
    terms = first.shape[-1]
    main = terms - terms % SAFE_TERMS
    if main == terms:
        return multiply(first, second, out_dtype=torch.float32)
    product = first[..., main:].float() @ second[..., main:, :].float()
    if main:
        product += multiply(first[..., :main], second[..., :main, :], out_dtype=torch.float32)
    return product
