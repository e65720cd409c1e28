"""Gated attention on Hopper GPUs: the choice between kernels for Hopper and for any CUDA GPU."""

import torch

from cuda.fused.attention import hopper_projections, triton
from cuda.fused.attention.hopper_core import QUERIES, ROWS, WIDTH, launch_core
from cuda.fused.attention.reference import AttentionWeights
from cuda.fused.launch import tma_aligned

# with fewer keys the Triton kernel is as fast; few rows must be half again as long, since a program of the
# Hopper kernel takes four of them
MIN_LENGTH = 256
FEW_ROWS = 127


def attention(
    x: torch.Tensor,
    weights: AttentionWeights,
    mask: torch.Tensor | None = None,
    pair_bias: torch.Tensor | None = None,
    *,
    add: bool = False,
) -> torch.Tensor:
    """Compute gated self-attention along axis 1.

    Same arguments, result and errors as `cuda.fused.attention.triton.attention`, whose kernels handle the
    dtypes and sizes that the Hopper kernels do not support.
    """
    return triton.attention(x, weights, mask, pair_bias, add=add, project=project, attend=attend)


def project(x: torch.Tensor, weights: AttentionWeights) -> torch.Tensor:
    """Compute queries, keys, values and gates of LN(x): [A, B, C] to [A, B, 4*H*D], contiguous."""
    if hopper_projections.supports(x, 4 * weights.query[0].numel()):
        return hopper_projections.project(x, weights)
    return triton.project(x, weights)


def attend(
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    gated: torch.Tensor,
    statistics: tuple[torch.Tensor, torch.Tensor] | None = None,
    first_query: int = 0,
) -> None:
    """Compute gated attention of projected inputs; same arguments and errors as `triton.attend`.

    The Hopper kernel takes masks that all rows share (`triton.is_shared`).
    """
    if pair_bias is not None and pair_bias.dim() == 4 and len(pair_bias) == 1:
        pair_bias = pair_bias[0]
    supported = (
        projected.dtype == torch.bfloat16
        and gated.shape[1] == projected.shape[1]
        and tma_aligned(projected)
        and tma_aligned(gated)
        and gating_bias.shape[1] == WIDTH.value
        and triton.is_shared(mask)
        and pair_bias is not None
        and pair_bias.dim() == 3
        and projected.shape[1] >= (MIN_LENGTH * 3 // 2 if projected.shape[0] <= FEW_ROWS else MIN_LENGTH)
    )
    if not supported:
        return triton.attend(projected, gating_bias, mask, pair_bias, gated, statistics, first_query)
    tile = {"ROWS": ROWS.value, "QUERIES": QUERIES.value}
    launch = triton.prepare_core(projected, gating_bias, mask, pair_bias, gated, statistics, **tile)
    if launch.blocks:
        launch_core(launch.arguments, launch.sizes["HEADS"])
        triton.recompute_out_of_range(launch)
