"""The backward pass of gated attention on projected inputs: launches of `triton_backward_kernels`."""

from typing import Any, NamedTuple

import torch
import triton

from cuda.fused.attention.triton import align_keys
from cuda.fused.attention.triton_backward_kernels import (
    key_gradients,
    prepare_gradient,
    query_gradients,
    row_gradients,
    tile_gradients,
)
from cuda.fused.launch import choose_launch, program_count
from cuda.fused.row_sums import sum_rows

# programs of the bias kernel for each multiprocessor, unless the launch table has PROGRAMS
BIAS_PROGRAMS = 4


class _Tensors(NamedTuple):
    """Tensors of the kernels; see `triton_backward_kernels`."""

    projected: torch.Tensor  # [M, L, 4*H*D], contiguous
    scaled: torch.Tensor  # [M, L, H*D], dO'
    maximum: torch.Tensor  # [M, H, L] float32
    delta: torch.Tensor  # [M, H, L] float32, δ'
    mask: torch.Tensor | None  # [M, L]
    pair_bias: torch.Tensor | None  # [S, H, L, L]
    projected_gradient: torch.Tensor  # [M, L, 4*H*D], written

    def arguments(self) -> tuple[Any, ...]:
        """Return the first arguments of the kernels."""
        *tensors, mask, pair_bias, projected_gradient = self
        mask_strides = (0, 0) if mask is None else mask.stride()
        bias_strides = (0, 0, 0) if pair_bias is None else pair_bias.stride()[:3]
        return (*tensors, mask, *mask_strides, pair_bias, *bias_strides, projected_gradient)


def _write_row_gradients(
    tensors: _Tensors, bias_rows: int, sizes: dict[str, int], row: dict[str, Any]
) -> None:
    """Write dQ, dK and dV of rows whose keys fit in a program."""
    rows, heads, length = tensors.maximum.shape
    if tensors.pair_bias is not None:
        # with queries last, as in the tiles of the kernel
        tensors = tensors._replace(pair_bias=tensors.pair_bias.mT.contiguous())
    row_gradients[(rows * heads,)](
        *tensors.arguments(), length, bias_rows, **sizes,
        EDGE=bool(length % row["QUERIES"] or length % row["KEYS"]),
        BLOCKS=triton.cdiv(length, row["KEYS"]), **row,
    )  # fmt: skip


def attend_backward(
    gradient: torch.Tensor,
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    gated: torch.Tensor,
    statistics: tuple[torch.Tensor, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Compute the gradients of `cuda.fused.attention.triton.attend`.

    Args:
        gradient: [M, L, H*D], of the result.
        projected: [M, L, 4*H*D], contiguous.
        gating_bias: [H, D].
        mask: [M, L] or None.
        pair_bias: [S, H, L, L] for M / S rows each, or None.
        gated: [M, L, H*D], the result, contiguous.
        statistics: two tensors [M, H, L], as the forward pass wrote them.

    Returns:
        The gradients of projected [M, L, 4*H*D], of gating_bias [H, D] float32, and of pair_bias
        [S, H, L, L] float32.
    """
    rows, length, _ = projected.shape
    heads, width = gating_bias.shape
    edge = int(length % 64 > 0)
    options = choose_launch(
        "attention", projected, width, "backward", length=length, edge=edge, biased=int(pair_bias is not None)
    )
    projected_gradient = torch.empty_like(projected)
    scaled, delta, gating_bias_gradient = _prepare(
        gradient, projected, gating_bias, gated, statistics, projected_gradient, options["prepare"]
    )
    sizes = {"HEADS": heads, "WIDTH": width, "PADDED": max(16, width)}
    bias_rows = rows if pair_bias is None else rows // pair_bias.shape[0]
    if pair_bias is not None:
        pair_bias = align_keys(pair_bias)[..., :length]
    tensors = _Tensors(projected, scaled, statistics[0], delta, mask, pair_bias, projected_gradient)
    tile, row = options["tile"], options.get("row")
    # whether a tile has all keys of its queries, and all queries of its keys
    complete = row is None and length <= tile["KEYS"], row is None and length <= tile["QUERIES"]
    bias_gradient = None
    if pair_bias is not None or all(complete):
        bias_gradient = _tile_gradients(tensors, bias_rows, sizes, tile, complete)
    else:
        complete = False, False
    if row is not None:
        _write_row_gradients(tensors, bias_rows, sizes, row)
        complete = True, True
    all_keys, all_queries = complete
    for kernel, name, block, done in (
        (key_gradients, "keys", "KEYS", all_queries),
        (query_gradients, "queries", "QUERIES", all_keys),
    ):
        if not done:
            launch = options[name]
            kernel[(triton.cdiv(length, launch[block]) * rows * heads,)](
                *tensors.arguments(), length, bias_rows, **sizes,
                EDGE=bool(length % launch["QUERIES"] or length % launch["KEYS"]), **launch,
            )  # fmt: skip
    return projected_gradient, gating_bias_gradient, bias_gradient


def _tile_gradients(
    tensors: _Tensors,
    bias_rows: int,
    sizes: dict[str, int],
    launch: dict[str, Any],
    complete: tuple[bool, bool],
) -> torch.Tensor | None:
    """Return dB if there is a bias, and write the gradients whose terms are all in one tile.

    Args:
        tensors: of the kernel.
        bias_rows: rows that share a bias.
        sizes: heads and channels.
        launch: tuned options.
        complete: whether a tile has all keys of its queries, and all queries of its keys.
    """
    rows, heads, length = tensors.maximum.shape
    tile = dict(launch)
    resident = tile.pop("PROGRAMS", BIAS_PROGRAMS)
    groups = rows // bias_rows * heads
    tiles = triton.cdiv(length, tile["QUERIES"]) * triton.cdiv(length, tile["KEYS"])
    programs = program_count(tensors.projected, tiles * groups * bias_rows, resident)
    part_rows = triton.cdiv(bias_rows, max(1, programs // (tiles * groups)))
    parts = triton.cdiv(bias_rows, part_rows)
    bias_gradient = None
    if tensors.pair_bias is not None:
        bias_gradient = tensors.delta.new_empty(parts, rows // bias_rows, heads, length, length)
    tile_gradients[(tiles, groups, parts)](
        *tensors.arguments(), bias_gradient, groups * length * length, part_rows, length, bias_rows, **sizes,
        EDGE=bool(length % tile["QUERIES"] or length % tile["KEYS"]),
        ALL_KEYS=complete[0], ALL_QUERIES=complete[1], **tile,
    )  # fmt: skip
    if bias_gradient is None:
        return None
    return bias_gradient[0] if parts == 1 else bias_gradient.sum(0)


def _prepare(
    gradient: torch.Tensor,
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    gated: torch.Tensor,
    statistics: tuple[torch.Tensor, torch.Tensor],
    projected_gradient: torch.Tensor,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Write the gradient of the gates; return dO', δ' and the gradient of gating_bias."""
    rows, length, _ = projected.shape
    heads, width = gating_bias.shape
    maximum, total = statistics
    scaled, delta = torch.empty_like(gated), torch.empty_like(maximum)
    block_heads = triton.next_power_of_2(heads)
    positions = max(1, options["ELEMENTS"] // (block_heads * width))
    programs = triton.cdiv(rows * length, positions)
    gating_sums = maximum.new_empty(programs, heads, width)
    prepare_gradient[(programs,)](
        gradient.contiguous(), projected, gating_bias.contiguous(), gated, maximum, total, scaled, delta,
        projected_gradient, gating_sums, rows * length, length, HEADS=heads, WIDTH=width,
        BLOCK_HEADS=block_heads, POSITIONS=positions, num_warps=options["num_warps"],
    )  # fmt: skip
    return scaled, delta, sum_rows(gating_sums)
