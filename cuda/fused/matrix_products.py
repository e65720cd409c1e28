"""Matrix products with float32 results, for gradients that are sums over many positions."""

import torch


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
    return multiply(first, second, out_dtype=torch.float32)
