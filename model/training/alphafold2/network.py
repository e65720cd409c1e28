"""The differentiable form of the network: with a batch axis and dropout, and without operations in place.

These functions take the parameters of the modules of `alphafold2.network`, so a trained network needs no
conversion for inference. Algorithm numbers are those of the supplement of Jumper et al., Nature 596, 583
(2021). B is the batch, S the MSA rows, N the residues. The caller selects the dtype of the activations, to
which parameters are converted; LayerNorm, softmax and the structure module compute in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from cuda.fused.attention.reference import MASK_PENALTY
from model.alphafold2.modules.embedders import MAX_RELATIVE_POSITION, RECYCLED_BINS, distance_bins
from model.alphafold2.modules.evoformer import EvoformerBlock
from model.alphafold2.modules.templates import TemplateEmbedding, TemplatePairBlock
from model.alphafold2.network import AlphaFold, Trunk
from model.training.alphafold2.layers import (
    COLUMNS,
    ROWS,
    drop,
    layer_norm,
    linear,
    msa_column_update,
    msa_row_update,
    outer_product_mean_update,
    transition_update,
    triangle_attention_update,
    triangle_multiplication_update,
)
from model.training.alphafold2.structure import FoldedStructure, fold, fold_iteration
from model.training.runtime.execution import Execution
from msa.base.residues import RESTYPES

MSA_DROPOUT = 0.15
PAIR_DROPOUT = 0.25

Features = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class RecycledBatch:
    """The outputs of a pass that the next pass takes as inputs, for a batch, detached.

    Args:
        msa_first_row: [B, N, C].
        pair: [B, N, N, Z].
        beta: [B, N, 3] float32, Å, predicted CB (CA for glycine).
    """

    msa_first_row: torch.Tensor
    pair: torch.Tensor
    beta: torch.Tensor


@dataclass(frozen=True)
class NetworkOutput:
    """Outputs of a pass, for the losses, float32.

    Args:
        structure: all iterations of the structure module.
        logits: logits of the heads, by the head's name.
        recycled: input of the next pass.
    """

    structure: FoldedStructure
    logits: Mapping[str, torch.Tensor]
    recycled: RecycledBatch


def run_network(
    network: AlphaFold,
    features: Features,
    previous: RecycledBatch,
    dropout: torch.Tensor,
    execution: Execution,
) -> NetworkOutput:
    """Run one pass with all heads, given features of `model.training.alphafold2.features.network_features`.

    `previous` are outputs of the previous pass, or `initial_recycled_batch`. The scalar float32 `dropout` is
    1 to apply dropout and 0 for none; a tensor, so that training and validation share one compiled function.
    """
    msa, pair, single = _trunk(network.evoformer, features, previous, dropout, execution)
    structure = fold(
        network.structure_module,
        single.float(),
        pair,
        features["aatype"],
        features["seq_mask"],
        dropout,
        execution.compile_if_enabled(fold_iteration),
    )
    heads: Any = network.heads
    pair_32, single_32 = pair.float(), single.float()
    half = linear(pair_32, heads["distogram_head"].half_logits)
    logits = {
        "distogram": half + half.transpose(1, 2),
        "masked_msa": linear(msa.float(), heads["masked_msa_head"].logits),
        "experimentally_resolved": linear(single_32, heads["experimentally_resolved_head"].logits),
        "predicted_lddt": _predicted_lddt(heads["predicted_lddt_head"], structure.single),
    }
    if "predicted_aligned_error_head" in heads:
        logits["predicted_aligned_error"] = linear(pair_32, heads["predicted_aligned_error_head"].logits)
    beta = _beta(features["aatype"], structure.atom14).detach()
    return NetworkOutput(structure, logits, RecycledBatch(msa[:, 0].detach(), pair.detach(), beta))


def initial_recycled_batch(network: AlphaFold, features: Features, dtype: torch.dtype) -> RecycledBatch:
    """Return the zeros that the first pass starts from."""
    batch, length = features["aatype"].shape
    stack, device = network.config.evoformer, features["aatype"].device
    return RecycledBatch(
        torch.zeros(batch, length, stack.msa.channels, dtype=dtype, device=device),
        torch.zeros(batch, length, length, stack.pair.channels, dtype=dtype, device=device),
        torch.zeros(batch, length, 3, device=device),
    )


def _trunk(
    trunk: Trunk, features: Features, previous: RecycledBatch, dropout: torch.Tensor, execution: Execution
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return msa [B, S, N, C] without template rows, pair [B, N, N, Z] and single [B, N, C']."""
    dtype = execution.dtype
    seq_mask, msa_mask = features["seq_mask"], features["msa_mask"]
    # The rows of an alignment have the same residues. Padding differs from it, and nothing reads padding.
    row_keys, column_keys = seq_mask[:, None], msa_mask[:, :, :1]
    msa, pair = _embed(trunk, features, previous, dtype)
    num_sequences = msa.shape[1]
    embedding: Any = trunk.template_embedding
    if embedding is not None and trunk.template_torsion_embedding is not None:
        pair = pair + _embed_templates(embedding, pair, features, dropout, execution)
        torsions = trunk.template_torsion_embedding
        rows = linear(features["template_torsions"].to(dtype), torsions.template_single_embedding)
        rows = linear(torch.relu(rows), torsions.template_projection)  # [B, T, N, C]
        msa = torch.cat([msa, rows], dim=1)
        msa_mask = torch.cat([msa_mask, features["template_torsion_mask"]], dim=1)
        row_keys = column_keys = msa_mask
    extra = linear(features["extra_msa_feat"].to(dtype), trunk.extra_msa_embedding.extra_msa_activations)
    extra_mask = features["extra_msa_mask"]
    for block in trunk.extra_msa_stack:
        extra, pair = execution.run_block(
            evoformer_block, block, extra, pair, extra_mask, seq_mask[:, None], extra_mask, seq_mask, dropout
        )
    for block in trunk.evoformer_iteration:
        msa, pair = execution.run_block(
            evoformer_block, block, msa, pair, msa_mask, row_keys, column_keys, seq_mask, dropout
        )
    return msa[:, :num_sequences], pair, linear(msa[:, 0], trunk.single_activations)


def evoformer_block(
    block: EvoformerBlock,
    msa: torch.Tensor,
    pair: torch.Tensor,
    msa_mask: torch.Tensor,
    row_keys: torch.Tensor,
    column_keys: torch.Tensor,
    seq_mask: torch.Tensor,
    dropout: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run Algorithm 6, or one block of Algorithm 18; return the new msa [B, S, N, C] and pair [B, N, N, Z].

    Masks are msa_mask [B, S, N] and seq_mask [B, N]. `row_keys` are keys that rows of the MSA may attend to,
    [B, S, N], or [B, 1, N] if the same for all; `column_keys` those of its columns, [B, S, N] or [B, S, 1].
    """
    update = msa_row_update(block.msa_row_attention_with_pair_bias, msa, pair, row_keys)
    msa = msa + drop(update, MSA_DROPOUT, ROWS, dropout)
    column: Any = block.get_submodule(block.column_attention_name)
    msa = msa + msa_column_update(column, msa, column_keys)
    msa = msa + transition_update(block.msa_transition, msa)
    pair = pair + outer_product_mean_update(block.outer_product_mean, msa, msa_mask)
    pair = _attend_triangles(block, _multiply_triangles(block, pair, seq_mask, dropout), seq_mask, dropout)
    return msa, pair + transition_update(block.pair_transition, pair)


def template_block(
    block: TemplatePairBlock, pair: torch.Tensor, seq_mask: torch.Tensor, dropout: torch.Tensor
) -> torch.Tensor:
    """Run one block of Algorithm 16 on pair [B, N, N, C] with seq_mask [B, N]; return the new pair."""
    pair = _multiply_triangles(block, _attend_triangles(block, pair, seq_mask, dropout), seq_mask, dropout)
    return pair + transition_update(block.pair_transition, pair)


def _multiply_triangles(
    block: EvoformerBlock | TemplatePairBlock,
    pair: torch.Tensor,
    seq_mask: torch.Tensor,
    dropout: torch.Tensor,
) -> torch.Tensor:
    pair_mask = seq_mask[:, :, None] * seq_mask[:, None]
    for layer in (block.triangle_multiplication_outgoing, block.triangle_multiplication_incoming):
        update = triangle_multiplication_update(layer, pair, pair_mask)
        pair = pair + drop(update, PAIR_DROPOUT, ROWS, dropout)
    return pair


def _attend_triangles(
    block: EvoformerBlock | TemplatePairBlock,
    pair: torch.Tensor,
    seq_mask: torch.Tensor,
    dropout: torch.Tensor,
) -> torch.Tensor:
    starting = triangle_attention_update(block.triangle_attention_starting_node, pair, seq_mask)
    pair = pair + drop(starting, PAIR_DROPOUT, ROWS, dropout)
    ending = triangle_attention_update(block.triangle_attention_ending_node, pair, seq_mask)
    return pair + drop(ending, PAIR_DROPOUT, COLUMNS, dropout)


def _embed(
    trunk: Trunk, features: Features, previous: RecycledBatch, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return msa [B, S, N, C] and pair [B, N, N, Z] of Algorithms 3 to 5 and 32."""
    inputs: Any = trunk.input_embedding
    recycling = trunk.recycling_embedding
    target = features["target_feat"].to(dtype)  # [B, N, 22]
    msa = linear(features["msa_feat"].to(dtype), inputs.preprocess_msa)
    msa = msa + linear(target, inputs.preprocess_1d)[:, None]
    first_row = msa[:, :1] + layer_norm(previous.msa_first_row, recycling.prev_msa_first_row_norm)[:, None]
    msa = torch.cat([first_row, msa[:, 1:]], dim=1)

    index = features["residue_index"]
    offset = (index[:, :, None] - index[:, None]).clip(-MAX_RELATIVE_POSITION, MAX_RELATIVE_POSITION)
    # a product with one-hot rows: the backward pass of a lookup would have to sum all pairs into 65 rows
    positions = F.one_hot(offset.long() + MAX_RELATIVE_POSITION, 2 * MAX_RELATIVE_POSITION + 1).to(dtype)
    pair = linear(positions, inputs.relative_position)
    pair = (
        pair + linear(target, inputs.left_single)[:, :, None] + linear(target, inputs.right_single)[:, None]
    )
    bins = distance_bins(previous.beta, *RECYCLED_BINS).to(dtype)  # [B, N, N, 15]
    pair = (
        pair + linear(bins, recycling.prev_pos_linear) + layer_norm(previous.pair, recycling.prev_pair_norm)
    )
    return msa, pair


def _embed_templates(
    embedding: TemplateEmbedding,
    pair: torch.Tensor,
    features: Features,
    dropout: torch.Tensor,
    execution: Execution,
) -> torch.Tensor:
    """Return the update of pair [B, N, N, Z] by Algorithm 2, lines 9 to 13; zero without templates."""
    single: Any = embedding.single_template_embedding
    template_mask = features["template_mask"]  # [B, T]
    batch, templates = template_mask.shape
    inputs = features["template_pair_feat"].to(pair.dtype).flatten(0, 1)  # [B*T, N, N, 88]
    seq_mask = features["seq_mask"].repeat_interleave(templates, dim=0)  # [B*T, N]
    template_pair = linear(inputs, single.pair_embedding)
    for block in single.template_pair_stack:
        template_pair = execution.run_block(template_block, block, template_pair, seq_mask, dropout)
    embedded = layer_norm(template_pair, single.output_layer_norm).unflatten(0, (batch, templates))

    layer = embedding.attention
    heads, width = layer.query.shape[1:]
    query = (pair @ layer.query.flatten(1).to(pair.dtype)).unflatten(-1, (heads, width)) * width**-0.5
    key, value = (
        (embedded @ w.flatten(1).to(pair.dtype)).unflatten(-1, (heads, width)).permute(0, 2, 3, 4, 1, 5)
        for w in (layer.key, layer.value)
    )  # [B, N, N, H, T, D]
    logits = (query[..., None, :] * key).float().sum(dim=-1)  # [B, N, N, H, T]
    weights = torch.softmax(logits + MASK_PENALTY * (template_mask[:, None, None, None] - 1.0), dim=-1)
    attended = (weights.to(pair.dtype)[..., None] * value).sum(dim=-2).flatten(3)  # [B, N, N, H*D]
    update = attended @ layer.output.flatten(0, 1).to(pair.dtype) + layer.output_bias.to(pair.dtype)
    return update * template_mask.amax(dim=1).to(pair.dtype)[:, None, None, None]


def _beta(aatype: torch.Tensor, atom14: torch.Tensor) -> torch.Tensor:
    """Return the positions of CB, or CA for glycine, [B, N, 3] in Å; zero for unknown residues."""
    is_glycine = (aatype == RESTYPES.index("G"))[..., None]
    return torch.where(is_glycine, atom14[..., 1, :], atom14[..., 4, :])


def _predicted_lddt(head: Any, single: torch.Tensor) -> torch.Tensor:
    """Return logits [B, N, 50] of Algorithm 29."""
    act = torch.relu(linear(layer_norm(single, head.input_layer_norm), head.hidden_0))
    return linear(torch.relu(linear(act, head.hidden_1)), head.logits)
