"""The backward pass of gated attention on projected inputs: launches of `triton_backward_kernels`."""

from collections.abc import Callable
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


class GradientInputs(NamedTuple):
    """Tensors of the kernels that are chosen by device and size; see `triton_backward_kernels`.

    Args:
        projected: [M, L, 4*H*D], contiguous.
        scaled: [M, L, H*D], dO'.
        maximum: [M, H, L] float32.
        delta: [M, H, L] float32, δ'.
        mask: [M, L] or None.
        pair_bias: [S, H, L, L] or None.
        projected_gradient: [M, L, 4*H*D], written.
    """

    projected: torch.Tensor
    scaled: torch.Tensor
    maximum: torch.Tensor
    delta: torch.Tensor
    mask: torch.Tensor | None
    pair_bias: torch.Tensor | None
    projected_gradient: torch.Tensor


# Computes what it has kernels for: returns whether dQ, dK and dV were written, and dB or None.
WriteGradients = Callable[[GradientInputs], tuple[bool, torch.Tensor | None]]


def _write_row_gradients(inputs: GradientInputs, launch: dict[str, Any]) -> None:
    """Write dQ, dK and dV of rows whose keys fit in a program."""
    projected, scaled, maximum, delta, mask, pair_bias, projected_gradient = inputs
    rows, heads, length = maximum.shape
    width = scaled.shape[-1] // heads
    # with queries last, as in the tiles of the kernel
    transposed = None if pair_bias is None else pair_bias.mT.contiguous()
    row_gradients[(rows * heads,)](
        projected,
        scaled,
        maximum,
        delta,
        mask,
        *((0, 0) if mask is None else mask.stride()),
        transposed,
        *((0, 0, 0) if transposed is None else transposed.stride()[:3]),
        projected_gradient,
        length,
        rows if pair_bias is None else rows // pair_bias.shape[0],
        HEADS=heads,
        WIDTH=width,
        PADDED=max(16, width),
        EDGE=bool(length % launch["QUERIES"] or length % launch["KEYS"]),
        BLOCKS=triton.cdiv(length, launch["KEYS"]),
        **launch,
    )


def attend_backward(
    gradient: torch.Tensor,
    projected: torch.Tensor,
    gating_bias: torch.Tensor,
    mask: torch.Tensor | None,
    pair_bias: torch.Tensor | None,
    gated: torch.Tensor,
    statistics: tuple[torch.Tensor, torch.Tensor],
    write_gradients: WriteGradients | None = None,
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
        write_gradients: kernels of a device, which are used for what they support.

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
    pair_bias = None if pair_bias is None else align_keys(pair_bias)
    inputs = (
        projected, scaled, statistics[0], delta,
        mask, *((0, 0) if mask is None else mask.stride()),
        pair_bias, *((0, 0, 0) if pair_bias is None else pair_bias.stride()[:3]),
        projected_gradient,
    )  # fmt: skip
    whole = None if pair_bias is None else pair_bias[..., :length]
    gradient_inputs = GradientInputs(projected, scaled, statistics[0], delta, mask, whole, projected_gradient)
    rows_written, bias_gradient = write_gradients(gradient_inputs) if write_gradients else (False, None)
    tile, row = options["tile"], options.get("row")
    # whether a tile has all keys of its queries, and all queries of its keys
    complete = row is None and length <= tile["KEYS"], row is None and length <= tile["QUERIES"]
    if bias_gradient is None and (pair_bias is not None or all(complete)):
        bias_gradient = _tile_gradients(gradient_inputs, inputs, bias_rows, sizes, tile, complete)
    else:
        complete = False, False
    if row is not None and not rows_written:
        _write_row_gradients(gradient_inputs, row)
    all_keys, all_queries = (True, True) if row is not None or rows_written else complete
    for kernel, name, block, done in (
        (key_gradients, "keys", "KEYS", all_queries),
        (query_gradients, "queries", "QUERIES", all_keys),
    ):
        if not done:
            launch = options[name]
            kernel[(triton.cdiv(length, launch[block]) * rows * heads,)](
                *inputs, length, bias_rows, **sizes,
                EDGE=bool(length % launch["QUERIES"] or length % launch["KEYS"]), **launch,
            )  # fmt: skip
    return projected_gradient, gating_bias_gradient, bias_gradient


def _tile_gradients(
    tensors: GradientInputs,
    arguments: tuple[Any, ...],
    bias_rows: int,
    sizes: dict[str, int],
    launch: dict[str, Any],
    complete: tuple[bool, bool],
) -> torch.Tensor | None:
    """Return dB if there is a bias, and write the gradients whose terms are all in one tile.

    Args:
        tensors: of the kernel.
        arguments: its first arguments.
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
        *arguments, bias_gradient, groups * length * length, part_rows, length, bias_rows, **sizes,
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
