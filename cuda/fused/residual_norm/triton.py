"""The gated residual connection and the conditioned LayerNorm as one Triton kernel."""

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from cuda.fused.launch import check_tensors, choose_launch
from cuda.fused.rows import EPSILON, sigmoid

if TYPE_CHECKING:
    from cuda.fused.residual_norm import GatedUpdate


@triton.jit(do_not_specialize=["count", "positions"])
def _residual_norm(
    x, update, gate, gate_stride, mask, scale, shift, norm_stride, result, count, positions,
    GATE_LOGITS: tl.constexpr, SCALE_LOGITS: tl.constexpr,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Update ROWS rows of x [count, CHANNELS], and write their conditioned LayerNorm to the result."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    channels = (column < CHANNELS)[None, :]
    inside = (row < count)[:, None] & channels
    position = row % positions
    offsets = row.to(tl.int64)[:, None] * CHANNELS + column[None, :]
    value = tl.load(x + offsets, mask=inside, other=0.0)
    if update is not None:
        gates = tl.load(gate + position[:, None] * gate_stride + column[None, :], mask=inside, other=0.0)
        gates = sigmoid(gates.to(tl.float32)) if GATE_LOGITS else gates.to(tl.float32)
        change = tl.load(update + offsets, mask=inside, other=0.0).to(tl.float32) * gates
        if mask is not None:
            change *= tl.load(mask + position).to(tl.float32)[:, None]
        value += change
        tl.store(x + offsets, value, mask=inside)
    if result is not None:
        mean = tl.sum(value, axis=1) / CHANNELS
        centred = tl.where(channels, value - mean[:, None], 0.0)
        variance = tl.sum(centred * centred, axis=1) / CHANNELS
        normed = centred * tl.rsqrt(variance + EPSILON)[:, None]
        condition = position[:, None] * norm_stride + column[None, :]
        scales = tl.load(scale + condition, mask=inside, other=0.0).to(tl.float32)
        scales = sigmoid(scales) if SCALE_LOGITS else scales
        shifts = tl.load(shift + condition, mask=inside, other=0.0).to(tl.float32)
        tl.store(result + offsets, (normed * scales + shifts).to(result.dtype.element_ty), mask=inside)


def residual_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    update: "GatedUpdate | None",
    dtype: torch.dtype,
    logits: bool = False,
) -> torch.Tensor:
    """Add an update to x in place and return its conditioned LayerNorm; see `cuda.fused.residual_norm`."""
    if scale.stride() != shift.stride() or scale.stride(1) != 1:
        scale, shift = scale.contiguous(), shift.contiguous()
    result = x.new_empty(x.shape, dtype=dtype)
    _launch(x, update, (scale, shift), result, logits)
    return result


def add_gated(x: torch.Tensor, update: "GatedUpdate") -> torch.Tensor:
    """Add an update to x in place, and return x."""
    _launch(x, update, (None, None), None)
    return x


def _launch(
    x: torch.Tensor,
    update: "GatedUpdate | None",
    condition: tuple[torch.Tensor | None, torch.Tensor | None],
    result: torch.Tensor | None,
    logits: bool = False,
) -> None:
    check_tensors("residual_norm", x)
    if x.dtype != torch.float32 or not x.is_contiguous():
        raise ValueError("fused residual_norm needs contiguous float32 x")
    samples, positions, channels = x.shape
    options = choose_launch("residual_norm", x, channels)
    count = samples * positions
    scale = condition[0]
    gate = None if update is None else update.gate
    if gate is not None and gate.stride(1) != 1:
        gate = gate.contiguous()
    if count:
        _residual_norm[(triton.cdiv(count, options["ROWS"]),)](
            x,
            None if update is None else update.update.contiguous(),
            gate,
            0 if gate is None else gate.stride(0),
            None if update is None else update.mask,
            *condition,
            0 if scale is None else scale.stride(0),
            result,
            count,
            positions,
            GATE_LOGITS=update is not None and update.logits,
            SCALE_LOGITS=logits,
            CHANNELS=channels,
            BLOCK=triton.next_power_of_2(channels),
            **options,
        )
