"""The input embedding of AlphaFold-Multimer, which encodes chains and copies of sequences."""

import torch
from torch import nn

from cuda.fused.chunking import residue_slices
from model.alphafold2.modules.config import ModelConfig
from model.alphafold2.modules.embedders import (
    ALL,
    MAX_RELATIVE_POSITION,
    MSA_FEATURES,
    Features,
    position_differences,
)
from model.alphafold2.multimer.inputs import TARGET_CODES
from model.layers.common import Linear

# largest difference between the numbers of two copies of a sequence; larger ones are clipped
MAX_RELATIVE_COPY = 2
_POSITION_BINS = 2 * MAX_RELATIVE_POSITION + 2
_COPY_BINS = 2 * MAX_RELATIVE_COPY + 2
RELATIVE_FEATURES = _POSITION_BINS + 1 + _COPY_BINS


class RelativeEncoding(nn.Module):
    """The encoding of the relation between two residues.

    Its one-hot inputs are the clipped difference of their positions, or "other chain"; whether their chains
    have the same sequence; and if so, the clipped difference of the copies' numbers, or "other sequence".
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.position_activations = Linear(RELATIVE_FEATURES, channels)

    def forward(self, features: Features, rows: slice = slice(None)) -> torch.Tensor:
        """Return the encoding [n, N, Z] of n rows of residue pairs."""
        weights, bias = self.position_activations.weights, self.position_activations.bias
        same_chain = _equal(features["asym_id"], rows)  # [n, N]
        same_sequence = _equal(features["entity_id"], rows)
        position = _clip(position_differences(features, rows), MAX_RELATIVE_POSITION)
        position = torch.where(same_chain, position, _POSITION_BINS - 1)
        copy = _clip(features["sym_id"][rows, None] - features["sym_id"][None], MAX_RELATIVE_COPY)
        copy = torch.where(same_sequence, copy, _COPY_BINS - 1)
        by_position, by_sequence, by_copy = weights.split([_POSITION_BINS, 1, _COPY_BINS])
        # rows of the matrix instead of products with one-hot inputs
        result = (by_position + bias)[position]
        result += torch.cat([torch.zeros_like(by_sequence), by_sequence])[same_sequence.long()]
        return result.add_(by_copy[copy])


def _equal(ids: torch.Tensor, rows: slice) -> torch.Tensor:
    """Return which residues have equal ids, bool [n, N]."""
    return ids[rows, None] == ids[None]


def _clip(differences: torch.Tensor, limit: int) -> torch.Tensor:
    """Return clipped differences, shifted to start at 0."""
    return differences.clip(-limit, limit) + limit


class MultimerInputEmbedding(nn.Module):
    """The embedding of sequence, clustered MSA and relative positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        msa, pair = config.evoformer.msa.channels, config.evoformer.pair.channels
        self.preprocess_1d = Linear(TARGET_CODES, msa)
        self.preprocess_msa = Linear(MSA_FEATURES, msa)
        self.left_single = Linear(TARGET_CODES, pair)
        self.right_single = Linear(TARGET_CODES, pair)
        self.relative_encoding = RelativeEncoding(pair)

    def forward(
        self, features: Features, rows: slice = ALL, sequences: slice = ALL
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the initial representations: sequences of msa [s, N, C] and rows of pair [n, N, Z]."""
        target = features["target_feat"].to(self.preprocess_1d.bias.dtype)  # [N, 21]
        msa = self.preprocess_msa(features["msa_feat"][sequences].to(target.dtype))  # [s, N, C]
        msa += self.preprocess_1d(target)
        left, right = self.left_single(target), self.right_single(target)  # [N, Z]
        length, channels = left.shape
        left = left[rows]
        pair = left.new_empty(len(left), length, channels)
        for chunk, residues in residue_slices(left, 4 * length * channels, rows):
            pair[chunk] = self.relative_encoding(features, residues)
            pair[chunk] += left[chunk, None]
            pair[chunk] += right[None]
        return msa, pair
