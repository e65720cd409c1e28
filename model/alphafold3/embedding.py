"""The embeddings of the inputs: tokens, relative positions, alignment and templates.

Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from cuda.fused.chunking import residue_slices
from model.alphafold3.atoms import AtomEncoder
from model.alphafold3.blocks import PairBlock
from model.alphafold3.config import RESIDUE_TYPES, AlphaFold3Config
from model.alphafold3.inputs import AlphaFold3Inputs, without_unknown_dna
from model.alphafold3.layers import Mask, Norm, linear, run_block
from model.layers.graphs import GraphedModules
from model.layers.kernels import Kernels


@dataclass(frozen=True)
class RelativePositions:
    """Classes of the relative positions of tokens (Algorithm 3), int8 [N, N] each.

    Args:
        residue: clipped offset of the residues in one chain, or the last class.
        token: clipped offset of the tokens in one residue, or the last class.
        chain: clipped offset of the copies of one entity, or the last class.
        same_entity: bool [N, N].
        classes: number of classes of the first two.
        chain_classes: number of classes of the third.
    """

    residue: torch.Tensor
    token: torch.Tensor
    chain: torch.Tensor
    same_entity: torch.Tensor
    classes: int
    chain_classes: int

    @classmethod
    def of(cls, inputs: AlphaFold3Inputs, config: AlphaFold3Config) -> "RelativePositions":
        """Compute the classes of a target."""
        same_chain = _equal(inputs.asym_id)
        same_residue = same_chain & _equal(inputs.residue_index)
        same_entity = _equal(inputs.entity_id)
        cyclic = _cyclic_offsets(inputs)

        def classes(values: torch.Tensor, condition: torch.Tensor, largest: int) -> torch.Tensor:
            offsets = values[:, None] - values[None]
            if cyclic is not None:
                offsets = torch.where(cyclic[1], cyclic[0], offsets)
            clipped = (offsets + largest).clamp(0, 2 * largest).to(torch.int8)
            return torch.where(condition, clipped, 2 * largest + 1)

        largest, largest_chain = config.largest_offset, config.largest_chain_offset
        return cls(
            classes(inputs.residue_index, same_chain, largest),
            classes(inputs.token_index, same_residue, largest),
            classes(inputs.sym_id, same_entity, largest_chain),
            same_entity,
            2 * largest + 2,
            2 * largest_chain + 2,
        )

    def features(self, rows: slice, dtype: torch.dtype) -> torch.Tensor:
        """Return the one-hot features of some rows, [n, N, F]."""
        return torch.cat(
            [
                F.one_hot(self.residue[rows].long(), self.classes),
                F.one_hot(self.token[rows].long(), self.classes),
                self.same_entity[rows, :, None],
                F.one_hot(self.chain[rows].long(), self.chain_classes),
            ],
            dim=-1,
        ).to(dtype)


def _equal(values: torch.Tensor) -> torch.Tensor:
    return values[:, None] == values[None]


def _cyclic_offsets(inputs: AlphaFold3Inputs) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return offsets along cyclic chains the shorter way round, and where they hold, [N, N] each."""
    if not bool(inputs.cyclic_mask.any()):
        return None
    within = inputs.cyclic_mask[:, None] & inputs.cyclic_mask[None] & _equal(inputs.asym_id)
    length = within.sum(dim=1)[:, None]
    order = torch.tril(within).sum(dim=1)  # 1, 2, … along each chain
    ahead = torch.remainder(order[None] - order[:, None], length.clamp(min=1))
    half = torch.round(length / 2).to(torch.int64)
    return torch.where(ahead <= half, -ahead, length - ahead), within


class InputEmbedder(nn.Module):
    """The embedding of tokens and of their pairs (Algorithm 1, lines 1 to 5)."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        inputs, pair = config.input_channels, config.pair.channels
        self.unknown_dna = config.unknown_dna
        self.atom_attn_enc = AtomEncoder(config.input_atoms, config.single_channels)
        self.linear_s = linear(inputs, config.single_channels)
        self.linear_z_i = linear(inputs, pair)
        self.linear_z_j = linear(inputs, pair)
        self.linear_relpos = linear(config.relative_channels, pair)
        self.linear_token_bonds = linear(1, pair)

    def forward(
        self, inputs: AlphaFold3Inputs, relative: RelativePositions, rows: slice = slice(None)
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Embed a target, and some rows of its pairs.

        Returns:
            features: [N, I], the input representation.
            single: [N, S], the initial single representation.
            pair: [n, N, Z], rows of the initial pair representation.
        """
        tokens, _ = self.atom_attn_enc(inputs, self.atom_attn_enc.conditions(inputs))
        types = [inputs.restype, inputs.profile]
        if not self.unknown_dna:
            types = [without_unknown_dna(x) for x in types]
        features = torch.cat([tokens[0], *types, inputs.deletion_mean[:, None]], dim=-1)
        pair = self.linear_z_i(features)[rows, None] + self.linear_z_j(features)[None]
        for part, residues in residue_slices(pair, pair.shape[1] * 4 * self.linear_relpos.in_features, rows):
            pair[part] += run_block(self._relative_positions, relative, residues, pair.dtype)
            pair[part] += self.linear_token_bonds(inputs.token_bonds[residues, :, None])
        return features, self.linear_s(features), pair

    def _relative_positions(
        self, relative: RelativePositions, rows: slice, dtype: torch.dtype
    ) -> torch.Tensor:
        """Embed the relative positions of some rows, [n, N, Z]."""
        embedded: torch.Tensor = self.linear_relpos(relative.features(rows, dtype))
        return embedded


class MsaEmbedder(nn.Module):
    """The embedding of the alignment (Algorithm 8, lines 1 to 4)."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        self.linear_m = linear(RESIDUE_TYPES + 2, config.msa.channels)
        self.linear_s_input = linear(config.input_channels, config.msa.channels)

    def forward(
        self, inputs: AlphaFold3Inputs, features: torch.Tensor, rows: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """Embed rows of the alignment, int64 [r], with the input representation [N, I]: [r, N, M]."""
        deletions = torch.stack([inputs.has_deletion[rows], inputs.deletion_value[rows]], dim=-1)
        msa = self.linear_m(torch.cat([inputs.msa[rows].to(features.dtype), deletions], dim=-1))
        msa += self.linear_s_input(features)
        return msa.to(dtype)


def alignment_mask(inputs: AlphaFold3Inputs, rows: torch.Tensor, dtype: torch.dtype) -> Mask:
    """Return the mask [r, N] of some rows of the alignment."""
    mask = inputs.msa_mask[rows]
    return None if bool(mask.all()) else mask.to(dtype)


class TemplatePairEmbedder(nn.Module):
    """The embedding of one template with the pair representation (Algorithm 16, lines 1 to 8)."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        channels = config.template_pair.channels
        self.dgram_linear = linear(config.template_distance_bins, channels)
        self.aatype_linear_1 = linear(RESIDUE_TYPES, channels)
        self.aatype_linear_2 = linear(RESIDUE_TYPES, channels)
        self.pseudo_beta_mask_linear = linear(1, channels)
        self.x_linear = linear(1, channels)
        self.y_linear = linear(1, channels)
        self.z_linear = linear(1, channels)
        self.backbone_mask_linear = linear(1, channels)
        self.layer_norm_z = Norm(config.pair.channels)
        self.linear_z = linear(config.pair.channels, channels)

    def forward(self, inputs: AlphaFold3Inputs, template: int, rows: slice = slice(None)) -> torch.Tensor:
        """Embed some rows of one template, without the pair representation: [n, N, T]."""
        dtype = self.dgram_linear.weight.dtype
        same_chain = _equal(inputs.asym_id)[rows]
        restype = inputs.template_restype[template].to(dtype)
        backbone = inputs.template_backbone_frame_mask[template].to(dtype)
        pseudo_beta = inputs.template_pseudo_beta_mask[template].to(dtype)
        distances, direction = (
            x[template, rows].to(restype.device).to(dtype)
            for x in (inputs.template_distogram, inputs.template_unit_vector)
        )
        embedded = self.dgram_linear(distances)
        del distances
        embedded += self.pseudo_beta_mask_linear(
            (pseudo_beta[rows, None] * pseudo_beta[None] * same_chain)[..., None]
        )
        embedded += self.aatype_linear_1(restype)[rows, None]
        embedded += self.aatype_linear_2(restype)[None]
        for axis, layer in enumerate((self.x_linear, self.y_linear, self.z_linear)):
            embedded += layer(direction[..., axis : axis + 1])
        embedded += self.backbone_mask_linear((backbone[rows, None] * backbone[None] * same_chain)[..., None])
        return embedded


class TemplatePairStack(nn.Module):
    """The blocks that update the pair representation of one template."""

    def __init__(self, config: AlphaFold3Config, kernels: Kernels) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                PairBlock(config.template_pair, kernels, transposed_ending_bias=config.transposed_ending_bias)
                for _ in range(config.template_blocks)
            ]
        )
        self.graphed = GraphedModules(self.blocks)
        self.layer_norm = Norm(config.template_pair.channels)

    def forward(self, pair: torch.Tensor, mask: Mask) -> torch.Tensor:
        """Return the normalised update of pair [N, N, T], which is overwritten; mask is [N, N]."""
        (pair,) = self.graphed(len(pair), pair, mask)
        return self.layer_norm(pair)


class TemplateEmbedder(nn.Module):
    """The update of the pair representation by templates (Algorithm 16)."""

    def __init__(self, config: AlphaFold3Config, kernels: Kernels) -> None:
        super().__init__()
        self.template_pair_embedder = TemplatePairEmbedder(config)
        self.template_pair_stack = TemplatePairStack(config, kernels)
        self.linear_t = linear(config.template_pair.channels, config.pair.channels)

    def forward(
        self,
        inputs: AlphaFold3Inputs,
        pair: torch.Tensor,
        mask: Mask,
        copies: Mapping[int, int],
        rows: slice = slice(None),
    ) -> torch.Tensor:
        """Return the update of some rows of pair [n, N, Z], which is not zero without templates.

        The mask is [N, N]; for `copies` see `distinct_templates`.
        """
        embedder = self.template_pair_embedder
        projected = embedder.linear_z(embedder.layer_norm_z(pair))
        count = len(inputs.template_restype)
        total = torch.zeros_like(projected)
        for template, number in copies.items():
            total += number * self.template_pair_stack(projected + embedder(inputs, template, rows), mask)
        return self.linear_t(F.relu(total / count))


def distinct_templates(inputs: AlphaFold3Inputs) -> dict[int, int]:
    """Return the number of copies of each distinct template by its index; empty ones are all alike."""
    tensors = (
        inputs.template_pseudo_beta_mask,
        inputs.template_backbone_frame_mask,
        inputs.template_restype,
        inputs.template_distogram,
        inputs.template_unit_vector,
    )
    copies: dict[int, int] = {}
    for template in range(len(inputs.template_restype)):
        same = (first for first in copies if all(torch.equal(x[template], x[first]) for x in tensors))
        first = next(same, template)
        copies[first] = copies.get(first, 0) + 1
    return copies
