"""Arguments of the outer product mean's Triton and Hopper kernels: checks, and divisors from the mask.

Imports Triton, so only modules with kernels import this one.
"""

import torch

from cuda.fused.launch import check_tensors
from cuda.fused.outer_product_mean import reference
from cuda.fused.outer_product_mean.reference import OuterProductMeanWeights


def check_pair(pair: torch.Tensor, msa: torch.Tensor) -> None:
    """Check that the kernels can add to pair.

    Raises:
        ValueError: it is not contiguous, or differs from msa in device or dtype.
    """
    check_tensors("outer_product_mean", pair, msa)
    if not pair.is_contiguous():
        raise ValueError("fused outer_product_mean adds only to contiguous pair representations")


def check_sizes(msa: torch.Tensor, weights: OuterProductMeanWeights) -> None:
    """Check that the kernels support these tensors.

    Raises:
        ValueError: they do not.
    """
    check_tensors("outer_product_mean", msa, *weights)
    inner, _, pair = weights.output.shape
    if inner not in (4, 8, 16, 32) or pair > 128:
        raise ValueError(
            f"fused outer_product_mean does not support factors of {inner} channels and pairs of {pair}"
        )


def shared_counts(mask: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the mask [S, N] in contiguous float32, and the divisors of the update [N, N].

    A divisor is the number of sequences that have both residues, plus ε. Both are None without a mask.
    """
    if mask is None:
        return None, None
    mask = mask.float().contiguous()
    return mask, reference.shared_counts(mask)


def check_block(pair: torch.Tensor, right: torch.Tensor, counts: torch.Tensor | None) -> None:
    """Check the memory layout of a block of the pair representation and of its counts.

    Raises:
        ValueError: the kernels do not support it.
    """
    check_tensors("outer_product_mean", pair, right)
    channels = pair.shape[-1]
    fits = pair.stride()[1:] == (channels, 1) and pair.stride(0) % channels == 0
    if counts is not None:
        same_rows = len(pair) == 1 or counts.stride(0) == pair.stride(0) // channels
        fits = fits and counts.dtype == torch.float32 and counts.stride(1) == 1 and same_rows
    if not fits:
        raise ValueError("fused outer_product_mean adds only to blocks of contiguous pair representations")
