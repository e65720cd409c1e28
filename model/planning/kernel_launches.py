"""Calls that launch every kernel of a network once, with sizes as small as possible.

A kernel is compiled once for the types of its arguments. A few exist in several forms, for residues that fill
whole tiles or do not, for rows shorter than a tile, or for large sizes, where another kernel is faster.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.modules.embedders import Features
from model.alphafold2.multimer.inputs import TARGET_CODES
from model.alphafold2.network import AlphaFold
from model.layers.kernels import Kernels
from msa.base.network_inputs import MONOMER

# numbers of residues: a multiple of the padding, one that is not, one that fills a tile of positions, and one
# that needs the attention kernel for long rows
ALIGNED, UNALIGNED, WHOLE_TILE, LONG = 16, 17, 128, 384
# numbers of MSA rows: few, and too many for the outer product mean's kernel for shallow MSAs
SHALLOW, DEEP = 4, 513


class NetworkLaunches:
    """Calls that together launch every kernel of a network.

    Args:
        config: the network's architecture.
        dtype: dtype of the trunk.
        kernels: implementation of the heavy operations, which must accept tensors on the CPU.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, kernels: Kernels) -> None:
        self._config, self._dtype = config, dtype
        self._network = _small_network(config, dtype, kernels)
        trunk = self._network.evoformer
        self._main, self._extra = trunk.evoformer_iteration[0], trunk.extra_msa_stack[0]
        self._stacks = [(self._main, config.evoformer), (self._extra, config.extra_msa)]
        self._pair_blocks = [(block, stack.pair.channels) for block, stack in self._stacks]
        if config.template is not None:
            stack_name = "template_pair_stack" if config.multimer is None else "template_embedding_iteration"
            template_block = trunk.get_submodule(
                f"template_embedding.single_template_embedding.{stack_name}.0"
            )
            self._pair_blocks.append((template_block, config.template.pair.channels))

    def calls(self) -> Iterator[Callable[[], object]]:
        """Yield the calls."""
        config, main = self._config, self._main
        # a target with few sequences has an extra MSA of one masked row
        msa = self._zeros(1, UNALIGNED, config.extra_msa.msa.channels)
        pair = self._zeros(UNALIGNED, UNALIGNED, config.extra_msa.pair.channels)
        yield partial(self._extra, msa, pair, torch.ones(1, UNALIGNED), None)
        yield partial(self._call, main, "msa_transition", (1, UNALIGNED, config.evoformer.msa.channels))
        yield from self._multiplications(ALIGNED)
        for block, stack in self._stacks:
            rows, small_pair = (DEEP, ALIGNED, stack.msa.channels), (ALIGNED, ALIGNED, stack.pair.channels)
            yield partial(self._call, block, "outer_product_mean", small_pair, rows, None)
            # template rows need a mask, and then all rows have one
            if config.template is not None and block is main:
                mask = torch.ones(DEEP, ALIGNED)
                yield partial(self._call, block, "outer_product_mean", small_pair, rows, mask)
        for templates in [0] if config.template is None else [0, 1]:
            yield partial(self._network, _features(config, UNALIGNED, templates))
        yield from self._multiplications(WHOLE_TILE)
        for block, stack in self._stacks:
            row, long_pair = (1, LONG, stack.msa.channels), (LONG, LONG, stack.pair.channels)
            yield partial(self._call, block, "msa_row_attention_with_pair_bias", row, long_pair, None)
        for block, channels in self._pair_blocks:
            long_pair = LONG, LONG, channels
            yield partial(self._call, block, "triangle_attention_starting_node", long_pair, None)

    def _multiplications(self, residues: int) -> Iterator[Callable[[], object]]:
        for block, channels in self._pair_blocks:
            pair = residues, residues, channels
            yield partial(self._call, block, "triangle_multiplication_outgoing", pair, None)

    def _call(
        self, block: nn.Module, operation: str, *arguments: tuple[int, ...] | torch.Tensor | None
    ) -> object:
        tensors = (self._zeros(*value) if isinstance(value, tuple) else value for value in arguments)
        return block.get_submodule(operation)(*tensors)

    def _zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=self._dtype)


def _small_network(config: ModelConfig, dtype: torch.dtype, kernels: Kernels) -> AlphaFold:
    """Return a network with one block in each stack, whose parameters are uninitialised."""
    template = None if config.template is None else replace(config.template, blocks=1)
    structure = replace(config.structure, iterations=1)
    small_config = replace(config.with_blocks(1, 1), template=template, structure=structure)
    network = AlphaFold(small_config, kernels).eval()
    network.evoformer.to(dtype)
    return network


def _features(config: ModelConfig, residues: int, templates: int) -> Features:
    """Return all-zero features for `AlphaFold.forward`; those of multimer networks have at least one slot."""
    slots = templates if config.multimer is None else max(1, templates)
    sizes = {"N": residues, "S": SHALLOW, "E": SHALLOW, "T": slots}
    features = {
        name: torch.zeros(array.shape(sizes), dtype=torch.int64 if array.kind == "index" else torch.float32)
        for name, array in MONOMER.items()
        if array.kind in ("index", "number") and (slots or not name.startswith("template_"))
    }
    if slots:
        features["template_mask"] += templates > 0
    if config.multimer is not None:
        features["target_feat"] = torch.zeros(residues, TARGET_CODES)
        features |= dict.fromkeys(("asym_id", "entity_id", "sym_id"), features["aatype"])
        features["template_chains"] = features["template_aatype"]
        features["template_weights"] = torch.ones(slots)
    return features
