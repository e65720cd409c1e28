"""Every kernel launch of a network, made with the smallest sizes that launch the same kernels as all others.

Kernels are compiled for the types of their arguments, and few of them for sizes: whether the residues fill
whole tiles, whether rows are shorter than a tile, and the sizes from which other kernels are faster.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from model.alphafold import AlphaFold
from model.config import ModelConfig
from model.embedders import Features
from model.evoformer import EvoformerBlock
from model.kernels import Kernels, select_kernels
from model.templates import TemplatePairBlock

# residues: a multiple of the padding, a number that is none, at least a tile of positions, and enough for the
# attention kernel for long rows
ALIGNED, UNALIGNED, WHOLE_TILE, LONG = 16, 17, 128, 384
# rows of an MSA: few, and more than the outer product mean for shallow MSAs takes
SHALLOW, DEEP = 4, 513

Launch = Callable[[], object]


def network_launches(config: ModelConfig, dtype: torch.dtype, kernels: str | Kernels) -> Iterator[Launch]:
    """Yield calls that together launch every kernel of a network, those that take longest to compile first.

    Args:
        config: the network's architecture.
        dtype: dtype of the trunk.
        kernels: implementation of the heavy operations, or its name.
    """
    network = _small_network(config, dtype, kernels)
    trunk = network.evoformer
    stacks = [(config.evoformer, trunk.evoformer_iteration[0]), (config.extra_msa, trunk.extra_msa_stack[0])]
    pair_blocks: list[tuple[int, EvoformerBlock | TemplatePairBlock]] = [
        (stack.pair.channels, block) for stack, block in stacks
    ]
    if config.template is not None:
        assert trunk.template_embedding is not None
        embedding = trunk.template_embedding.single_template_embedding
        pair_blocks.append((config.template.pair.channels, embedding.template_pair_stack[0]))

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    for stack, block in stacks:
        msa, pair = zeros(1, LONG, stack.msa.channels), zeros(LONG, LONG, stack.pair.channels)
        yield lambda block=block, msa=msa, pair=pair: block.msa_row_attention_with_pair_bias(msa, pair, None)
    for channels, block in pair_blocks:
        pair = zeros(LONG, LONG, channels)
        yield lambda block=block, pair=pair: block.triangle_attention_starting_node(pair, None)
    # templates mask the rows of the MSA that they add to
    masks: list[torch.Tensor | None] = [None] if config.template is None else [None, torch.ones(DEEP, ALIGNED)]
    for stack, block in stacks:
        msa, pair = zeros(DEEP, ALIGNED, stack.msa.channels), zeros(ALIGNED, ALIGNED, stack.pair.channels)
        for mask in masks if block is trunk.evoformer_iteration[0] else [None]:
            yield lambda block=block, msa=msa, pair=pair, mask=mask: block.outer_product_mean(pair, msa, mask)
    yield from _multiplications(pair_blocks, ALIGNED, dtype)
    for templates in [0] if config.template is None else [0, 1]:
        features = _features(UNALIGNED, templates)
        yield lambda features=features: network(features)
    yield from _multiplications(pair_blocks, WHOLE_TILE, dtype)


def _multiplications(
    blocks: Sequence[tuple[int, EvoformerBlock | TemplatePairBlock]], residues: int, dtype: torch.dtype
) -> Iterator[Launch]:
    """Yield a triangle multiplication of each block, given with its pair channels."""
    for channels, block in blocks:
        pair = torch.zeros(residues, residues, channels, dtype=dtype)
        yield lambda block=block, pair=pair: block.triangle_multiplication_outgoing(pair, None)


def _small_network(config: ModelConfig, dtype: torch.dtype, kernels: str | Kernels) -> AlphaFold:
    """Return a network with one block in each stack, whose parameters are zero."""
    template = None if config.template is None else replace(config.template, blocks=1)
    structure = replace(config.structure, iterations=1)
    network = AlphaFold(
        replace(config.with_blocks(1, 1), template=template, structure=structure),
        select_kernels(kernels, "cpu") if isinstance(kernels, str) else kernels,
    )
    network.evoformer.to(dtype)
    for parameter in network.parameters():
        parameter.zero_()
    return network.eval()


def _features(residues: int, templates: int) -> Features:
    """Return features of zeros, as `AlphaFold.forward` takes them."""

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    features = {
        "aatype": zeros(residues, dtype=torch.int64),
        "residue_index": zeros(residues, dtype=torch.int64),
        "target_feat": zeros(residues, 22),
        "msa_feat": zeros(SHALLOW, residues, 49),
        "extra_msa": zeros(SHALLOW, residues, dtype=torch.int64),
        "extra_has_deletion": zeros(SHALLOW, residues),
        "extra_deletion_value": zeros(SHALLOW, residues),
    }
    if templates:
        features |= {
            "template_aatype": zeros(templates, residues, dtype=torch.int64),
            "template_all_atom_positions": zeros(templates, residues, 37, 3),
            "template_all_atom_masks": zeros(templates, residues, 37),
            "template_mask": torch.ones(templates),
        }
    return features
