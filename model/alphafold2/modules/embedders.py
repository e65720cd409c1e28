"""Input, recycling and extra MSA embeddings (Algorithms 3 to 5 and 32 of the supplement)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from cuda.fused.chunking import residue_slices, row_slices
from model import residue_constants
from model.alphafold2.modules.config import ModelConfig
from model.layers.common import LayerNorm, Linear, OneHotLinear
from model.layers.kernels import Kernels
from msa.base.network_inputs import MONOMER
from msa.base.residues import NUM_MASKED_CODES, RESTYPES

TARGET_FEATURES, MSA_FEATURES = MONOMER["target_feat"].channels, MONOMER["msa_feat"].channels
# largest sequence separation; larger ones are clipped
MAX_RELATIVE_POSITION = 32
# bins of the previous pass's CB distances: first and last lower edge in Å, and their number
RECYCLED_BINS = (3.25, 20.75, 15)

# a slice that selects a whole axis; other slices select the part of one rank (`model.parallel`)
ALL = slice(None)

# Tensors of one recycling iteration. The masks msa_mask, extra_msa_mask and seq_mask are absent if they are
# all ones. template_mask stays on the CPU, because it decides which templates are computed.
Features = Mapping[str, torch.Tensor]


@dataclass
class RecycledState:
    """The outputs of one pass that the next pass takes as inputs.

    Args:
        msa_first_row: [N, C], first row of the MSA representation.
        pair: [N, N, Z], pair representation; None once a pass has taken it.
        positions: [N, 37, 3], atom positions in Å.
    """

    msa_first_row: torch.Tensor
    pair: torch.Tensor | None
    positions: torch.Tensor

    def take_pair(self) -> torch.Tensor:
        """Return the pair representation without keeping it, so that a pass can free it early.

        Raises:
            ValueError: it was taken before.
        """
        pair, self.pair = self.pair, None
        if pair is None:
            raise ValueError("a recycled state is the input of one pass only")
        return pair

    @classmethod
    def zeros(
        cls, length: int, config: ModelConfig, like: torch.Tensor, rows: int | None = None
    ) -> "RecycledState":
        """Return the all-zero state of the first pass, with the dtype and device of `like`.

        The pair representation has `rows` rows, by default as many as residues.
        """
        stack = config.evoformer
        return cls(
            like.new_zeros(length, stack.msa.channels),
            like.new_zeros(length if rows is None else rows, length, stack.pair.channels),
            torch.zeros(length, 37, 3, device=like.device),
        )


def pseudo_beta(aatype: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return CB of each residue [...], or CA for glycine, [..., D].

    Positions [..., 37, D] are coordinates (D = 3) or a mask (D = 1) in atom37 order.
    """
    is_glycine = (aatype == RESTYPES.index("G"))[..., None]
    return torch.where(
        is_glycine, positions[..., residue_constants.CA, :], positions[..., residue_constants.CB, :]
    )


def distance_bins(
    points: torch.Tensor, first: float, last: float, bins: int, rows: slice = ALL
) -> torch.Tensor:
    """Encode the distances of points [..., N, 3], Å, as one-hot bins, [..., n, N, bins] float32.

    Lower edges are evenly spaced from the first bin's to the last one's, Å. The last bin has no upper edge;
    pairs closer than the first edge are in no bin. `rows` are the first points n; the second points are all
    N.
    """
    lower = torch.linspace(first, last, bins, device=points.device).square()
    upper = torch.cat([lower[1:], lower.new_full((1,), 1e8)])
    squared = (points[..., rows, None, :] - points[..., None, :, :]).square().sum(dim=-1, keepdim=True)
    return ((squared > lower) & (squared < upper)).to(points.dtype)


def recycling_elements(channels: int) -> int:
    """Return the elements of intermediates per residue pair of the embedding of the recycled state."""
    # one update; the bins in both dtypes, and comparisons with their edges
    return channels + 5 * RECYCLED_BINS[2]


def position_differences(features: Features, rows: slice = ALL) -> torch.Tensor:
    """Return the differences of the positions of residues, [n, N]; in a cyclic chain by the shorter way.

    The sign is that of the shorter way, too, as in AfCycDesign (Rettie et al., Nat. Commun. 16, 4730, 2025).
    """
    index, cycle = features["residue_index"], features.get("cycle_length")
    offset = index[rows, None] - index[None]
    if cycle is None:
        return offset
    length = cycle[rows, None].clamp_min(1)
    turns = torch.where(cycle[rows, None] > 0, torch.round(offset / length), 0.0)
    return offset - turns.to(offset.dtype) * length


class InputEmbedding(nn.Module):
    """The embedding of sequence, clustered MSA and relative positions (Algorithms 3 to 5)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        msa, pair = config.evoformer.msa.channels, config.evoformer.pair.channels
        self.preprocess_1d = Linear(TARGET_FEATURES, msa)
        self.preprocess_msa = Linear(MSA_FEATURES, msa)
        self.left_single = Linear(TARGET_FEATURES, pair)
        self.right_single = Linear(TARGET_FEATURES, pair)
        self.relative_position = OneHotLinear(2 * MAX_RELATIVE_POSITION + 1, pair)

    def forward(
        self, features: Features, rows: slice = ALL, sequences: slice = ALL
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the initial representations: sequences of msa [s, N, C] and rows of pair [n, N, Z]."""
        target = features["target_feat"].to(self.preprocess_1d.bias.dtype)  # [N, 22]
        msa = self.preprocess_msa(features["msa_feat"][sequences].to(target.dtype))  # [s, N, C]
        msa += self.preprocess_1d(target)
        offset = position_differences(features, rows)  # [n, N]
        offset = offset.clip(-MAX_RELATIVE_POSITION, MAX_RELATIVE_POSITION) + MAX_RELATIVE_POSITION
        pair = self.relative_position(offset.long())  # [n, N, Z]
        pair += self.left_single(target[rows])[:, None]
        pair += self.right_single(target)[None]
        return msa, pair


class RecyclingEmbedding(nn.Module):
    """The embedding of the recycled state (Algorithm 32)."""

    def __init__(self, config: ModelConfig, kernels: Kernels) -> None:
        super().__init__()
        msa, pair = config.evoformer.msa.channels, config.evoformer.pair.channels
        self.prev_pos_linear = Linear(RECYCLED_BINS[2], pair)
        self.prev_msa_first_row_norm = LayerNorm(msa, kernels)
        self.prev_pair_norm = LayerNorm(pair, kernels)

    def forward(
        self, msa: torch.Tensor, pair: torch.Tensor, aatype: torch.Tensor, previous: RecycledState
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the embedding to msa [S, N, C] and pair [N, N, Z] in place; return both."""
        self.embed_pair(pair, aatype, previous)
        msa[0] += self.prev_msa_first_row_norm(previous.msa_first_row)
        return msa, pair

    def embed_pair(
        self, pair: torch.Tensor, aatype: torch.Tensor, previous: RecycledState, rows: slice = ALL
    ) -> None:
        """Add the embedding of positions and pair representation to rows of pair [n, N, Z] in place.

        The pair representation of the recycled state, which has the same rows, is taken. `rows` are those of
        the whole pair representation that `pair` holds.
        """
        points, previous_pair = pseudo_beta(aatype, previous.positions), previous.take_pair()
        _, length, channels = pair.shape
        for chunk, residues in residue_slices(pair, length * recycling_elements(channels), rows):
            bins = distance_bins(points, *RECYCLED_BINS, rows=residues)  # [n, N, 15]
            pair[chunk] += self.prev_pos_linear(bins.to(pair.dtype))
            pair[chunk] += self.prev_pair_norm(previous_pair[chunk])


def extra_msa_elements(channels: int) -> int:
    """Return the elements of intermediates per position of the embedding of the extra MSA."""
    # one-hot types and both deletion features, and their copy
    return 2 * (NUM_MASKED_CODES + 2) + channels


class ExtraMsaEmbedding(nn.Module):
    """The embedding of the sequences that are not cluster centres (Algorithm 2, lines 14 and 15)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.extra_msa_activations = Linear(NUM_MASKED_CODES + 2, config.extra_msa.msa.channels)

    def forward(self, features: Features, sequences: slice = ALL) -> torch.Tensor:
        """Return the selected rows of the extra MSA representation, [e, N, C]."""
        extra = features["extra_msa"][sequences]
        all_deletions = [features[name][sequences] for name in ("extra_has_deletion", "extra_deletion_value")]
        bias = self.extra_msa_activations.bias
        codes = torch.arange(NUM_MASKED_CODES, device=bias.device)
        result = bias.new_empty(*extra.shape, bias.shape[0])
        for rows in row_slices(extra, extra.shape[1] * extra_msa_elements(len(bias))):
            types = extra[rows, :, None] == codes  # [e, N, 23]
            deletions = [values[rows, :, None] for values in all_deletions]
            inputs = torch.cat([x.to(bias.dtype) for x in (types, *deletions)], dim=-1)  # [e, N, 25]
            result[rows] = self.extra_msa_activations(inputs)
        return result
