"""Sums of outer products and their projection with gradients, for training.

The outer products have E² channels per pair, several times as many as all other intermediates of a block.
Therefore `project_outer_fused` computes some rows of pairs at a time, and recomputes them in the backward
pass. On Hopper GPUs, the forward pass is one kernel that never writes them.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from cuda.fused.dispatch import kernel_implementation, triton_installed
from cuda.fused.layer_norm.differentiable import layer_norm
from cuda.fused.matrix_products import TILE_TERMS, wide_product
from cuda.fused.outer_product_mean.reference import EPSILON, OuterProductMeanWeights

# elements of the outer products of a chunk: 128 MiB in 16 bits
CHUNK_ELEMENTS = 2**26
# elements of a chunk below which a GPU may split the sums over sequences, and leave out some; see TILE_TERMS
FEW_ELEMENTS = 2**23
# multiple of residues for which rows of matrices are aligned, and sums over residues are whole tiles
ALIGNMENT = 8


def outer_product_mean(
    msa: torch.Tensor, weights: OuterProductMeanWeights, mask: torch.Tensor | None = None, *, fused: bool
) -> torch.Tensor:
    """Compute the update [B, N, N, Z] of Algorithm 10 of msa [B, S, N, C].

    The mask [B, S, N] is 1 for real positions; None for all. `fused` runs the fused kernels, and computes the
    outer products in chunks.
    """
    w = OuterProductMeanWeights(*weights[:2], *(x.to(msa.dtype) for x in weights[2:]))
    mask = msa.new_ones(msa.shape[:3]) if mask is None else mask
    normed = layer_norm(msa, w.norm_scale, w.norm_offset, fused=fused)
    present = mask[..., None].to(msa.dtype)
    projection, bias = torch.cat([w.left, w.right], dim=1), torch.cat([w.left_bias, w.right_bias])
    left, right = ((normed @ projection + bias) * present).chunk(2, dim=-1)  # [B, S, N, E]
    project = project_outer_fused if fused else project_outer
    update = project(left, right, w.output) + w.output_bias
    wide = torch.promote_types(msa.dtype, torch.float32)
    count = mask.to(wide).mT @ mask.to(wide) + EPSILON  # [B, N, N]
    return (update.to(wide) / count[..., None]).to(msa.dtype)


def project_outer(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Compute Σ_ce (Σ_s left_sic right_sje) output_cez of every pair i, j in plain PyTorch, [B, N, N, Z].

    Factors are [B, S, N, E], output is [E, E, Z].
    """
    batch, _, length, inner = left.shape
    outer = left.flatten(2).transpose(1, 2) @ right.flatten(2)  # [B, N*E, N*E]
    outer = outer.view(batch, length, inner, length, inner).transpose(2, 3).flatten(3)  # [B, N, N, E*E]
    return outer @ output.flatten(0, 1)


def project_outer_fused(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Compute `project_outer` in a fused kernel or in chunks of rows of pairs, which bounds memory."""
    result: torch.Tensor = _project(left, right, output.flatten(0, 1))
    return result


def _chunks(left: torch.Tensor) -> Iterator[slice]:
    """Yield slices of the rows of pairs, the last of which may be smaller; left is [B, S, N, E]."""
    batch, _, length, inner = left.shape
    size = max(1, CHUNK_ELEMENTS // (batch * inner * inner * length))
    # of equal sizes, and whole tiles of terms of the products over rows
    size = -(-length // -(-length // size))
    size = min(length, size + -size % 4)
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def _pad(factor: torch.Tensor) -> torch.Tensor:
    """Return a factor [B, S, N, E] with zeros appended, for the matrix products of a GPU in 16 bits.

    Residues are completed to a multiple of ALIGNMENT. If a chunk is so small that the sum over sequences may
    be split, these are completed to whole tiles of terms.
    """
    if factor.element_size() > 2:
        return factor
    batch, sequences, length, inner = factor.shape
    rows = next(_chunks(factor))
    elements = batch * (rows.stop - rows.start) * length * inner**2
    more_sequences = -sequences % TILE_TERMS if elements < FEW_ELEMENTS else 0
    more_residues = -length % ALIGNMENT
    if more_sequences == more_residues == 0:
        return factor  # `pad` would copy it
    return F.pad(factor, (0, 0, 0, more_residues, 0, more_sequences))


def _outer(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the outer products [B*n, E*E, N] of left [B, S, n, E] and right [B, S, E, N]."""
    inner, length = right.shape[2:]
    return torch.bmm(left.flatten(2).mT, right.flatten(2)).view(-1, inner * inner, length)


@torch.library.custom_op("foldcli::project_outer", mutates_args=())
def _project(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the projection [B, N, N, Z] of left and right [B, S, N, E] and output [E*E, Z]."""
    output = output.contiguous()
    batch, sequences, length, inner = left.shape
    if kernel_implementation(left.device) == "hopper":
        # deferred: Triton is optional, and Gluon differs between its versions
        from cuda.fused.outer_product_mean import hopper

        if hopper.supports_sizes(left.dtype, sequences, inner, output.shape[1]):
            return hopper.project_outer(left, right, output)
    left, right = (_pad(x) for x in (left, right))
    left, right = left.contiguous(), right.transpose(2, 3).contiguous()
    padded = left.shape[2]
    result = left.new_empty(batch, padded, padded, output.shape[1])
    for rows in _chunks(left):
        outer = _outer(left[:, :, rows], right)
        matrices = output.expand(outer.shape[0], -1, -1)
        result[:, rows] = torch.bmm(outer.mT, matrices).view(batch, -1, padded, output.shape[1])
    return result[:, :length, :length].contiguous()


@_project.register_fake
def _(left: torch.Tensor, right: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    batch, _, length, _ = left.shape
    return left.new_empty(batch, length, length, output.shape[1])


@torch.library.custom_op("foldcli::project_outer_backward", mutates_args=())
def _project_backward(
    gradient: torch.Tensor, left: torch.Tensor, right: torch.Tensor, output: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of left, right and output."""
    sequences, length = left.shape[1:3]
    left, right = (_pad(x) for x in (left, right))
    left, right = left.contiguous(), right.transpose(2, 3).contiguous()  # [B, S, N, E], [B, S, E, N]
    batch, _, padded, inner = left.shape
    if padded > length:
        gradient = F.pad(gradient, (0, 0, 0, padded - length, 0, padded - length))
    gradient, output = gradient.contiguous(), output.contiguous()
    left_gradient, right_gradient = torch.empty_like(left), None
    output_gradient = _output_gradient(left, output)
    for rows in _chunks(left):
        chunk = left[:, :, rows]
        upstream = gradient[:, rows].reshape(-1, padded, output.shape[1])  # [B*n, N, Z]
        output_gradient.add(_outer(chunk, right), upstream)
        outer_gradient = torch.bmm(output.expand(upstream.shape[0], -1, -1), upstream.mT)  # [B*n, E*E, N]
        outer_gradient = outer_gradient.view(batch, -1, inner * padded)  # [B, n*E, E*N]
        product = wide_product(right.flatten(2), outer_gradient.mT)  # [B, S, n*E]
        left_gradient[:, :, rows] = product.view(chunk.shape)
        product = wide_product(chunk.flatten(2), outer_gradient)  # [B, S, E*N]
        right_gradient = product if right_gradient is None else right_gradient.add_(product)
    assert right_gradient is not None
    right_gradient = right_gradient.view(right.shape).transpose(2, 3)
    left_gradient, right_gradient = (
        x[:, :sequences, :length].to(left.dtype).contiguous() for x in (left_gradient, right_gradient)
    )
    return left_gradient, right_gradient, output_gradient.total().to(output.dtype)


class _OutputGradient:
    """The gradient of the output weights in plain PyTorch; see `triton_training.OutputGradient`."""

    def __init__(self) -> None:
        self.sum: torch.Tensor | float = 0.0

    def add(self, outer: torch.Tensor, gradient: torch.Tensor) -> None:
        self.sum += wide_product(outer, gradient).sum(0)

    def total(self) -> torch.Tensor:
        assert isinstance(self.sum, torch.Tensor)
        return self.sum


def _output_gradient(left: torch.Tensor, output: torch.Tensor) -> Any:
    """Return an empty sum of the gradient of the output weights [E*E, Z]."""
    if left.element_size() > 2 or left.device.type != "cuda" or not triton_installed():
        return _OutputGradient()
    # deferred: Triton is optional
    from cuda.fused.outer_product_mean.triton_training import OutputGradient

    rows = next(_chunks(left))
    depth, channels = output.shape
    return OutputGradient(depth, channels, left.shape[0] * (rows.stop - rows.start), left)


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
