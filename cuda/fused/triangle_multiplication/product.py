"""The middle of the triangle multiplication: a matrix product for each channel, by the GPU's own library."""

import torch

# matrices are padded with zeros to so many rows and columns, which keeps every load wide whatever the length
ALIGNMENT = 16


def padded(length: int) -> int:
    """Rows and columns of the factors and the product of a pair representation of so many residues."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def multiplied(left: torch.Tensor, right: torch.Tensor, outgoing: bool) -> tuple[torch.Tensor, float]:
    """The product of factors [M, N, N], scaled, and the scale.

    Outgoing: Σ_k left[i, k] right[j, k]; incoming: Σ_k right[k, i] left[k, j]. In float16 it is scaled down
    by a power of two, as sums of many large terms would leave its range; the LayerNorm that follows takes
    that out again.
    """
    first, second = (left, right.transpose(1, 2)) if outgoing else (right.transpose(1, 2), left)
    scale = 0.5 ** (left.shape[-1] - 1).bit_length() if left.dtype == torch.float16 else 1.0
    product = torch.empty_like(left)
    torch.baddbmm(product, first, second, beta=0, alpha=scale, out=product)
    return product, scale
