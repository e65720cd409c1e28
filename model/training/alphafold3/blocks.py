"""The differentiable form of the blocks that change representations in place, with dropout.

The functions read the parameters of the blocks of `model.alphafold3.blocks`, and return new representations.
All other modules of the network have gradients as they are. Dropout is that of Abramson et al., Nature 630,
493 (2024), supplement, algorithms 8 and 17; `dropout` is 1 to apply it and 0 for none, `factors` what it
draws.
"""

import torch
import torch.nn.functional as F
from torch import nn

from model.alphafold2.modules.evoformer import TriangleAttention
from model.alphafold3.blocks import BiasProjection, EndingAttention, MsaBlock, PairBlock, PairformerBlock
from model.alphafold3.embedding import TemplateEmbedder
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.layers import MASK_PENALTY, Mask, run_block
from model.layers.block_graphs import run_module
from model.training.alphafold2.layers import (
    COLUMNS,
    ROWS,
    gated_attention,
    layer_norm,
    outer_product_mean_update,
    triangle_attention_update,
    triangle_multiplication_update,
)

MSA_DROPOUT, PAIR_DROPOUT = 0.15, 0.25
# pairs whose transition has gradients at once
_TRANSITION_PAIRS = 150_000


def dropout_factors(like: torch.Tensor, count: int, rate: float, dropout: float) -> Mask:
    """Draw factors [count, N, C] for updates of representations [..., N, C], or None without dropout."""
    if not dropout:
        return None
    return F.dropout(like.new_ones(count, *like.shape[-2:]), rate * dropout)


def _add_dropped(x: torch.Tensor, update: torch.Tensor, factors: Mask, axis: int) -> torch.Tensor:
    """Return x plus an update [1, rows, columns, C], with the same factors [N, C] along an axis."""
    return x + update if factors is None else torch.addcmul(x, update, factors.unsqueeze(axis - 1))


def pair_block(block: PairBlock, pair: torch.Tensor, mask: Mask, factors: Mask) -> torch.Tensor:
    """Return the updated pair [N, N, C]; mask is [N], factors [4, N, C]."""
    pair_mask = None if mask is None else mask[:, None] * mask
    batch = pair[None]
    drops = [None] * 4 if factors is None else factors.unbind()
    for layer, drop in zip((block.tri_mul_out, block.tri_mul_in), drops[:2], strict=True):
        update = triangle_multiplication_update(layer, batch, None if pair_mask is None else pair_mask[None])
        batch = _add_dropped(batch, update, drop, ROWS)
    layers = ((block.tri_att_start, ROWS), (block.tri_att_end, COLUMNS))
    for (attention, axis), drop in zip(layers, drops[2:], strict=True):
        batch = _add_dropped(batch, _attention_update(attention, batch, mask), drop, axis)
    pair = batch.squeeze(0)  # unlike an index, whose gradient would be copied
    # gradients of the widened rows are as large as all others together, so rows are updated in parts
    parts = pair.chunk(-(-(len(pair) ** 2) // _TRANSITION_PAIRS))
    masks = [None] * len(parts) if pair_mask is None else pair_mask.chunk(len(parts))
    updates = [block.pair_transition.update(x, y) for x, y in zip(parts, masks, strict=True)]
    return torch.cat([x + update for x, update in zip(parts, updates, strict=True)])


def _attention_update(layer: TriangleAttention, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Return the update of pair [1, N, N, C] by triangle attention; mask is [N]."""
    batch_mask = None if mask is None else mask[None]
    if not isinstance(layer, EndingAttention):
        return triangle_attention_update(layer, pair, batch_mask)
    # the bias is not transposed with the pair representation
    columns = layer_norm(pair.transpose(1, 2), layer.query_norm, layer.kernels.fused)
    bias = (columns @ layer.pair_bias.to(pair.dtype)).permute(0, 3, 2, 1).contiguous()  # [1, H, N, N]
    key_mask = None if batch_mask is None else batch_mask[None]
    update = gated_attention(columns, layer.attention, layer.kernels.fused, bias, key_mask)
    return update.transpose(1, 2)


def _head_biases(layer: BiasProjection, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Return the bias [H, N, N] of pair [N, N, C]; mask is [N] for keys, or [N, N] for pairs."""
    bias = layer.linear_z(layer.layer_norm_z(pair)).permute(2, 0, 1)
    return bias if mask is None else bias + MASK_PENALTY * (1 - mask).to(bias.dtype)


def msa_block(
    block: MsaBlock, msa: torch.Tensor, pair: torch.Tensor, msa_mask: Mask, mask: Mask, dropout: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the updated msa [R, N, M] and pair [N, N, C]; msa_mask is [R, N], mask [N]."""
    msa, pair = run_block(_msa_update, block, msa, pair, msa_mask, mask, dropout)
    factors = dropout_factors(pair, 4, PAIR_DROPOUT, dropout)
    return msa, run_module(pair_block, block.pair_stack, (pair,), (mask, factors))


def _msa_update(
    block: MsaBlock, msa: torch.Tensor, pair: torch.Tensor, msa_mask: Mask, mask: Mask, dropout: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute `msa_block` without the triangle updates."""
    present = msa.new_ones(msa.shape[:2]) if msa_mask is None else msa_mask
    pair = pair + outer_product_mean_update(block.outer_product_mean, msa[None], present[None]).squeeze(0)
    averaging, transition = block.msa_att_row, block.msa_transition
    if averaging is not None and transition is not None:
        pair_mask = None if mask is None else mask[:, None] * mask
        weights = _head_biases(averaging, pair, pair_mask).softmax(dim=-1)
        update = averaging.update(msa, weights)[None]
        factors = dropout_factors(msa, 1, MSA_DROPOUT, dropout)
        msa = _add_dropped(msa[None], update, None if factors is None else factors[0], ROWS).squeeze(0)
        msa = msa + transition.update(msa, msa_mask)
    return msa, pair


def pairformer_block(
    block: PairformerBlock, single: torch.Tensor, pair: torch.Tensor, mask: Mask, factors: Mask
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the updated single [N, S] and pair [N, N, C]; mask is [N], factors [4, N, C]."""
    pair = pair_block(block.pair_stack, pair, mask, factors)
    attention = block.attn_pair_bias
    bias = _head_biases(attention, pair, mask)
    single = single + attention.mha(attention.layer_norm_a(single)[None], bias)[0]
    return single + block.single_transition.update(single, mask), pair


def pairformer(
    blocks: nn.ModuleList, single: torch.Tensor, pair: torch.Tensor, mask: Mask, dropout: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the updated single [N, S] and pair [N, N, C] after all blocks; mask is [N]."""
    for block in blocks:
        factors = dropout_factors(pair, 4, PAIR_DROPOUT, dropout)
        single, pair = run_module(pairformer_block, block, (single, pair), (mask, factors))
    return single, pair


def template_update(
    embedder: TemplateEmbedder, inputs: AlphaFold3Inputs, pair: torch.Tensor, mask: Mask, dropout: float
) -> torch.Tensor:
    """Return the update of pair [N, N, Z] by all templates (Algorithm 16); mask is [N]."""
    embedding, stack = embedder.template_pair_embedder, embedder.template_pair_stack
    projected = embedding.linear_z(embedding.layer_norm_z(pair))
    count = len(inputs.template_restype)
    total = torch.zeros_like(projected)
    for template in range(count):
        embedded = projected + run_block(embedding, inputs, template).to(projected.dtype)
        for block in stack.blocks:
            factors = dropout_factors(embedded, 4, PAIR_DROPOUT, dropout)
            embedded = run_module(pair_block, block, (embedded,), (mask, factors))
        total = total + stack.layer_norm(embedded)
    return embedder.linear_t(torch.relu(total / count))
