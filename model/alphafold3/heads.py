"""The confidence heads: logits of pLDDT, aligned and distance errors and resolved atoms, and the distogram.

Algorithm numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from cuda.fused.chunking import residue_slices, row_slices
from model.alphafold3.blocks import Pairformer
from model.alphafold3.config import AlphaFold3Config
from model.alphafold3.inputs import AlphaFold3Inputs
from model.alphafold3.layers import Mask, Norm, linear
from model.layers.kernels import Kernels
from msa.base.residues import RESTYPE_NAMES

# Standard residues and nucleotides have their atoms in a fixed order, without hydrogens: N, CA, C, O, CB, …
# and P, OP1, OP2, O5', C5', C4', O4', C3', O3', C2', [O2',] C1', then the base. Index of the atom that stands
# for each residue type: CB (CA of glycine), C4 of purines, C2 of pyrimidines; −1: none.
_AMINO_ACIDS = tuple(1 if name == "GLY" else 4 for name in RESTYPE_NAMES)
_REPRESENTATIVES = (*_AMINO_ACIDS, *(21, 22, 13, 13, -1), *(20, 21, 12, 12, -1), -1)


@dataclass(frozen=True)
class ConfidenceLogits:
    """The heads' logits for one sample.

    Args:
        plddt: [A, 50], bins of lDDT from 0 to 1.
        resolved: [A, 2], not resolved and resolved in an experiment.
        pae: [N, N, 64], bins of the aligned error from 0 to 32 Å.
        pde: [N, N, 64], bins of the distance error from 0 to 32 Å.
    """

    plddt: torch.Tensor
    resolved: torch.Tensor
    pae: torch.Tensor
    pde: torch.Tensor


# rows of tokens, and the logits of their aligned and distance errors, [n, N, B] each
ErrorRows = Iterator[tuple[slice, torch.Tensor, torch.Tensor]]


class PairformerEmbedding(nn.Module):
    """The representations of a sample that the heads see (Algorithm 31, lines 1 to 6)."""

    def __init__(self, config: AlphaFold3Config, kernels: Kernels) -> None:
        super().__init__()
        heads = config.confidence
        self.first_distance, self.last_distance = heads.first_distance, heads.last_distance
        self.linear_i = linear(config.input_channels, config.pair.channels)
        self.linear_j = linear(config.input_channels, config.pair.channels)
        self.linear_distance = linear(heads.distance_bins, config.pair.channels)
        self.pairformer_stack = Pairformer(config, heads.blocks, kernels)

    def forward(
        self,
        features: torch.Tensor,
        single: torch.Tensor,
        pair: torch.Tensor,
        positions: torch.Tensor,
        mask: Mask,
        rows: slice = slice(None),
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Embed a sample: return single [N, S] and rows of pair [n, N, Z].

        Inputs are the input representation [N, I], the trunk's single [N, S] and rows of its pair [n, N, Z],
        the positions of the tokens' representative atoms [N, 3], Å, and the mask [N].
        """
        dtype = self.pairformer_stack.dtype
        single, pair = single.to(dtype, copy=True), self.embed(features, pair, positions, dtype, rows)
        mask = None if mask is None else mask.to(dtype)
        pair_mask = None if mask is None else mask[:, None] * mask
        single, pair = self.pairformer_stack(single, pair, mask, pair_mask)
        return single.to(features), pair

    def embed(
        self,
        features: torch.Tensor,
        pair: torch.Tensor,
        positions: torch.Tensor,
        dtype: torch.dtype,
        rows: slice = slice(None),
    ) -> torch.Tensor:
        """Return rows of the pair representation [n, N, Z] of a sample before the blocks; see `forward`."""
        first, second = self.linear_i(features)[:, None], self.linear_j(features)[None]
        bins = self.linear_distance.in_features
        edges = torch.linspace(
            self.first_distance, self.last_distance, bins, dtype=features.dtype, device=features.device
        )
        result = torch.empty_like(pair, dtype=dtype)
        for part, tokens in residue_slices(pair, pair.shape[1] * (2 * bins + 3 * pair.shape[-1]), rows):
            distances = self.linear_distance(distance_bins(positions[tokens], positions, edges))
            result[part] = pair[part].to(features) + first[tokens] + second + distances
        return result


def distance_bins(first: torch.Tensor, second: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """Return one-hot bins of the distances of points [n, 3] and [N, 3], Å: [n, N, B].

    Edges [B], Å, are the lower ones, ascending. A distance on an edge, or below the first one, is in no bin.
    """
    lower = edges**2
    upper = F.pad(lower[1:], (0, 1), value=torch.inf)
    squared = (first[:, None] - second).square().sum(dim=-1, keepdim=True)
    return ((squared > lower) & (squared < upper)).to(edges.dtype)


class NormedLinear(nn.Module):
    """A linear layer after a LayerNorm."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.layer_norm = Norm(channels)
        self.linear = linear(channels, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Project normalised x [..., C] to [..., O]."""
        return self.linear(self.layer_norm(x))


def symmetric_rows(layer: nn.Module, pair: torch.Tensor, columns: torch.Tensor, part: slice) -> torch.Tensor:
    """Return the projection of pairs, of any dtype, plus its transpose: rows `part` of them, [m, N, B].

    `pair` [n, N, Z] are rows of the pair representation, `columns` [N, n, Z] the same columns of it; `part`
    is counted from the first row of pair.
    """
    dtype = next(layer.parameters()).dtype
    projected: torch.Tensor = layer(columns[:, part].to(dtype))
    return projected.transpose(0, 1) + layer(pair[part].to(dtype))


class AllAtomDistogramHead(nn.Module):
    """The distogram of representative atoms, symmetric after its projection."""

    def __init__(self, config: AlphaFold3Config) -> None:
        super().__init__()
        self.linear = linear(config.pair.channels, config.confidence.error_bins)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        """Project the trunk's pair [N, N, Z] to logits [N, N, B], bins from 2 to 22 Å."""
        return symmetric_rows(self.linear, pair, pair, slice(None))

    def rows(self, pair: torch.Tensor, columns: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield the logits of rows [n, N, Z] in blocks [m, N, B]; see `symmetric_rows`."""
        elements = pair.shape[1] * (2 * pair.shape[-1] + 3 * self.linear.out_features)
        # contacts of a rank without rows have a shape, too
        for part in list(row_slices(pair, elements)) or [slice(0)]:
            yield symmetric_rows(self.linear, pair, columns, part)


class ConfidenceHeads(nn.Module):
    """All heads (Algorithm 31)."""

    def __init__(self, config: AlphaFold3Config, kernels: Kernels) -> None:
        super().__init__()
        heads, single, pair = config.confidence, config.single_channels, config.pair.channels
        self.atoms_per_token, self.counts_op3 = heads.atoms_per_token, heads.counts_op3
        self.pairformer_embedding = PairformerEmbedding(config, kernels)
        self.plddt = NormedLinear(single, heads.atoms_per_token * heads.plddt_bins)
        self.experimentally_resolved = NormedLinear(single, heads.atoms_per_token * 2)
        self.pae = NormedLinear(pair, heads.error_bins)
        self.pde = NormedLinear(pair, heads.error_bins)
        self.distogram = AllAtomDistogramHead(config)

    def logits(self, inputs: AlphaFold3Inputs, single: torch.Tensor, pair: torch.Tensor) -> ConfidenceLogits:
        """Project the representations [N, S] and [N, N, Z] of a sample to the logits of all heads."""
        return ConfidenceLogits(
            self.of_atoms(self.plddt(single), inputs),
            self.of_atoms(self.experimentally_resolved(single), inputs),
            self.pae(pair.to(single)),
            symmetric_rows(self.pde, pair, pair, slice(None)),
        )

    def error_rows(self, pair: torch.Tensor, columns: torch.Tensor, rows: slice) -> ErrorRows:
        """Yield the logits of aligned and distance errors of rows [n, N, Z]; see `symmetric_rows`."""
        bins, dtype = self.pae.linear.out_features, self.pae.linear.weight.dtype
        for part, tokens in residue_slices(pair, pair.shape[1] * (4 * pair.shape[-1] + 6 * bins), rows):
            distances = symmetric_rows(self.pde, pair, columns, part)
            yield tokens, self.pae(pair[part].to(dtype)), distances

    def of_atoms(self, logits: torch.Tensor, inputs: AlphaFold3Inputs) -> torch.Tensor:
        """Select each atom's logits [A, B] from its token's [N, ranks · B], by its rank in the token."""
        token = inputs.atom_to_token_index
        rank = torch.arange(len(token), device=token.device) - inputs.start_atom_index[token]
        if self.counts_op3:
            nucleotide = (inputs.is_rna | inputs.is_dna) & ~inputs.is_atomized
            rank = rank + nucleotide[token]
        by_rank = logits.unflatten(-1, (self.atoms_per_token, -1))
        return by_rank[token, rank.clamp(0, self.atoms_per_token - 1)]


def representative_atoms(inputs: AlphaFold3Inputs) -> torch.Tensor:
    """Return the index of the atom that stands for each token, int64 [N].

    It is the only atom of an atomized token. A token whose residue type has none gets the first atom of all.
    """
    offset = by_residue_type(inputs, _REPRESENTATIVES)
    standard = torch.where(offset < 0, 0, inputs.start_atom_index + offset)
    return torch.where(inputs.is_atomized, inputs.start_atom_index, standard)


def has_representative(inputs: AlphaFold3Inputs) -> torch.Tensor:
    """Return the tokens that have a representative atom, bool [N]."""
    polymer = inputs.is_protein | inputs.is_rna | inputs.is_dna
    known = polymer & (by_residue_type(inputs, _REPRESENTATIVES) >= 0)
    return (inputs.is_atomized | known) & inputs.token_mask.bool()


def by_residue_type(inputs: AlphaFold3Inputs, table: tuple) -> torch.Tensor:
    """Look up a table of residue types for each token, [N, ...]."""
    return _on_device(table, inputs.restype.device)[inputs.restype.argmax(dim=-1)]


@cache
def _on_device(table: tuple, device: torch.device) -> torch.Tensor:
    return torch.tensor(table, device=device)
