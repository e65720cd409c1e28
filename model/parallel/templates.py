"""The template embeddings, divided among ranks by rows of the pair representation."""

from collections.abc import Iterable

import torch
from torch import nn

from model.alphafold2.modules.embedders import Features
from model.alphafold2.modules.templates import TemplateEmbedding, TemplatePairBlock, one_template
from model.alphafold2.multimer.templates import MultimerTemplateEmbedding
from model.parallel.pair import PairShard


def template_update(
    embedding: TemplateEmbedding | MultimerTemplateEmbedding,
    pair: torch.Tensor,
    templates: Features,
    shard: PairShard,
) -> torch.Tensor:
    """Compute the update of the pair representation from all templates.

    Args:
        embedding: the embedding with its parameters.
        pair: [n, N, Z], this rank's rows.
        templates: features with a leading template axis.
        shard: operations on this rank's rows.

    Returns:
        [n, N, Z].
    """
    if isinstance(embedding, MultimerTemplateEmbedding):
        multimer, weights = embedding.single_template_embedding, templates["template_weights"]
        inputs = (
            multimer.embed_features(pair, one_template(templates, i), shard.rows) for i in range(len(weights))
        )
        stack = multimer.template_embedding_iteration
        return embedding.combine(
            (multimer.output_layer_norm(_run_stack(stack, x, shard)) for x in inputs), weights
        )
    single = embedding.single_template_embedding

    def embed(template: Features, out: torch.Tensor) -> None:
        single.embed_features(template, out, shard.rows)
        out.copy_(single.output_layer_norm(_run_stack(single.template_pair_stack, out, shard)))

    return embedding.combine(pair, templates, embed)


def _run_stack(blocks: Iterable[nn.Module], pair: torch.Tensor, shard: PairShard) -> torch.Tensor:
    """Run the blocks of the template pair stack on this rank's rows [n, N, C] in place; return them."""
    for block in blocks:
        assert isinstance(block, TemplatePairBlock)
        if block.multiplication_first:
            _multiply(block, pair, shard)
        columns = shard.attend_starting(block.triangle_attention_starting_node, pair)
        shard.attend_ending(block.triangle_attention_ending_node, columns)
        if block.multiplication_first:
            block.pair_transition(columns)
        shard.to_rows(columns, pair).wait()
        if not block.multiplication_first:
            _multiply(block, pair, shard)
            block.pair_transition(pair)
    return pair


def _multiply(block: TemplatePairBlock, pair: torch.Tensor, shard: PairShard) -> None:
    shard.multiply(block.triangle_multiplication_outgoing, pair)
    shard.multiply(block.triangle_multiplication_incoming, pair)
