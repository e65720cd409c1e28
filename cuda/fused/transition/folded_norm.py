"""LayerNorm folded into the transition's first projection, and its gradients, in two small Triton kernels.

With standardised rows s = (x − mean) / deviation, the projection of LN(x) = s ⊙ γ + β is W₁ᵀ LN(x) + b₁ =
W'ᵀ s + b' with W' = γ ⊙ W₁ and b' = b₁ + W₁ᵀ β. The gradients of W' and b' give all others without sums over
rows: dW₁ = γ ⊙ dW' + β dbᵀ, dγ = Σ_columns W₁ ⊙ dW' and dβ = W₁ db, where db = db₁ = db'.
"""

import torch
import triton
import triton.language as tl

from cuda.fused.transition.reference import TransitionWeights

COLUMNS = 32


@triton.jit
def _fold(
    widen, widen_bias, scale, offset, folded, folded_bias, width,
    CHANNELS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write COLUMNS columns of the folded projection."""
    channel = tl.arange(0, CHANNELS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    positions = channel[:, None] * width + column[None, :]
    weights = tl.load(widen + positions, mask=inside[None, :], other=0.0).to(tl.float32)
    scaled = weights * tl.load(scale + channel).to(tl.float32)[:, None]
    tl.store(folded + positions, scaled.to(folded.dtype.element_ty), mask=inside[None, :])
    shift = tl.sum(weights * tl.load(offset + channel).to(tl.float32)[:, None], 0)
    bias = tl.load(widen_bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(folded_bias + column, bias + shift, mask=inside)


@triton.jit
def _unfold(widen, scale, offset, gradient, vectors, CHANNELS: tl.constexpr, WIDTH: tl.constexpr):
    """Replace one row of the folded projection's gradient; write the gradients of its scale and offset."""
    channel = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    weights = tl.load(widen + channel * WIDTH + column).to(tl.float32)
    folded = tl.load(gradient + channel * WIDTH + column)
    bias = tl.load(vectors + 3 * CHANNELS + column)
    tl.store(vectors + channel, tl.sum(weights * folded, 0))
    tl.store(vectors + CHANNELS + channel, tl.sum(weights * bias, 0))
    row_scale = tl.load(scale + channel).to(tl.float32)
    row_offset = tl.load(offset + channel).to(tl.float32)
    tl.store(gradient + channel * WIDTH + column, folded * row_scale + bias * row_offset)


def fold(weights: TransitionWeights) -> tuple[torch.Tensor, torch.Tensor]:
    """Return W' [C, W] in the projection's dtype, and b' [W] float32; C must be a power of 2."""
    channels, width = weights.widen.shape
    folded = torch.empty_like(weights.widen)
    bias = torch.empty(width, device=folded.device, dtype=torch.float32)
    _fold[(triton.cdiv(width, COLUMNS),)](
        weights.widen, weights.widen_bias, weights.norm_scale, weights.norm_offset, folded, bias, width,
        CHANNELS=channels, COLUMNS=COLUMNS,
    )  # fmt: skip
    return folded, bias


def unfold(weights: TransitionWeights, gradient: torch.Tensor, vectors: torch.Tensor) -> None:
    """Replace the gradient of W' by that of W₁, and write those of LayerNorm's scale and offset.

    The gradient is float32 [C, W], W a power of 2. The first 2 C elements of `vectors`, float32 [3*C + W] as
    in `TransitionGradients`, are written.
    """
    channels, width = weights.widen.shape
    _unfold[(channels,)](
        weights.widen, weights.norm_scale, weights.norm_offset, gradient, vectors,
        CHANNELS=channels, WIDTH=width,
    )  # fmt: skip
