"""Sums of outer products and their projection with gradients, for training.

The outer products have E² channels per pair, several times as many as all other intermediates of a block.
Therefore `project_outer_chunked` computes some rows of pairs at a time, which stay in the GPU's L2 cache, and
recomputes them in the backward pass. Factors are arranged so that each step is a batch of matrix products.
"""

from collections.abc import Iterator

import torch

from cuda.fused.layer_norm.reference import wide_layer_norm
from cuda.fused.matrix_products import wide_product
from cuda.fused.outer_product_mean.reference import EPSILON, OuterProductMeanWeights

# elements of the outer products of a chunk: 16 MiB in 16 bits
CHUNK_ELEMENTS = 2**23


def outer_product_mean(
    msa: torch.Tensor, weights: OuterProductMeanWeights, mask: torch.Tensor | None = None, *, fused: bool
) -> torch.Tensor:
    """Compute the update [B, N, N, Z] of Algorithm 10 of msa [B, S, N, C] with mask [B, S, N].

    Args:
        msa: the MSA representation.
        weights: the layer's parameters.
        mask: 1 for real positions, or None for all.
        fused: compute the outer products in chunks.
    """
    w = OuterProductMeanWeights(*weights[:2], *(x.to(msa.dtype) for x in weights[2:]))
    mask = msa.new_ones(msa.shape[:3]) if mask is None else mask
    normed = wide_layer_norm(msa, w.norm_scale, w.norm_offset)
    present = mask[..., None].to(msa.dtype)
    left = (normed @ w.left + w.left_bias) * present  # [B, S, N, E]
    right = (normed @ w.right + w.right_bias) * present
    project = project_outer_chunked if fused else project_outer
    update = project(left, right, w.output) + w.output_bias
    wide = torch.promote_types(msa.dtype, torch.float32)
    count = mask.to(wide).mT @ mask.to(wide) + EPSILON  # [B, N, N]
    return (update.to(wide) / count[..., None]).to(msa.dtype)


def project_outer(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Compute Σ_ce (Σ_s left_sic right_sje) output_cez of every pair i, j in plain PyTorch.

    Args:
        left: [B, S, N, E].
        right: [B, S, N, E].
        output: [E, E, Z].

    Returns:
        [B, N, N, Z].
    """
    batch, _, length, inner = left.shape
    outer = left.flatten(2).transpose(1, 2) @ right.flatten(2)  # [B, N*E, N*E]
    outer = outer.view(batch, length, inner, length, inner).transpose(2, 3).flatten(3)  # [B, N, N, E*E]
    return outer @ output.flatten(0, 1)


def project_outer_chunked(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Compute `project_outer` in chunks of rows of pairs, which bounds memory."""
    result: torch.Tensor = _project(
        left.permute(0, 2, 3, 1).contiguous(), right.transpose(2, 3).contiguous(), output.flatten(0, 1)
    )
    return result


def _chunks(left: torch.Tensor, right: torch.Tensor) -> Iterator[slice]:
    """Yield slices of the rows of pairs."""
    batch, length, inner, _ = left.shape
    size = max(1, CHUNK_ELEMENTS // (batch * inner * inner * length))
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def _outer(left: torch.Tensor, right: torch.Tensor, rows: slice) -> torch.Tensor:
    """Return the outer products of some rows [B*n, E*E, N]."""
    inner = left.shape[2]
    chunk = left[:, rows].flatten(1, 2)  # [B, n*E, S]
    return torch.bmm(chunk, right.flatten(2)).view(-1, inner * inner, right.shape[-1])


@torch.library.custom_op("foldcli::project_outer", mutates_args=())
def _project(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the projection [B, N, N, Z] of left [B, N, E, S], right [B, S, E, N] and output [E*E, Z]."""
    batch, length = left.shape[:2]
    result = left.new_empty(batch, length, length, output.shape[1])
    for rows in _chunks(left, right):
        outer = _outer(left, right, rows)
        matrices = output.expand(outer.shape[0], -1, -1)
        result[:, rows] = torch.bmm(outer.mT, matrices).view(batch, -1, length, output.shape[1])
    return result


@_project.register_fake
def _(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return left.new_empty(left.shape[0], left.shape[1], left.shape[1], output.shape[1])


@torch.library.custom_op("foldcli::project_outer_backward", mutates_args=())
def _project_backward(
    gradient: torch.Tensor, left: torch.Tensor, right: torch.Tensor, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of left, right and output."""
    batch, length, inner, sequences = left.shape
    left_gradient = torch.empty_like(left)
    wide = torch.promote_types(left.dtype, torch.float32)
    right_gradient = left.new_zeros(batch, sequences, inner * length, dtype=wide)
    output_gradient = output.new_zeros(output.shape, dtype=wide)
    for rows in _chunks(left, right):
        upstream = gradient[:, rows].reshape(-1, length, output.shape[1])  # [B*n, N, Z]
        output_gradient += wide_product(_outer(left, right, rows), upstream).sum(0)
        outer_gradient = torch.bmm(output.expand(upstream.shape[0], -1, -1), upstream.mT)  # [B*n, E*E, N]
        outer_gradient = outer_gradient.view(batch, -1, inner * length)  # [B, n*E, E*N]
        chunk = torch.bmm(outer_gradient, right.flatten(2).mT)  # [B, n*E, S]
        left_gradient[:, rows] = chunk.view(batch, -1, inner, sequences)
        right_gradient += wide_product(left[:, rows].flatten(1, 2).mT, outer_gradient)  # [B, S, E*N]
    return left_gradient, right_gradient.to(left.dtype).view(right.shape), output_gradient.to(output.dtype)


@_project_backward.register_fake
def _(
    gradient: torch.Tensor, left: torch.Tensor, right: torch.Tensor, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    left_gradient, right_gradient, output_gradient = (x.new_empty(x.shape) for x in (left, right, output))
    return left_gradient, right_gradient, output_gradient


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, gradient):  # type: ignore[no-untyped-def]
    return tuple(_project_backward(gradient, *ctx.saved_tensors))


_project.register_autograd(_differentiate, setup_context=_save)
