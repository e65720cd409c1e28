"""Output heads, and the confidence scores computed from their logits (supplement section 1.9)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from cuda.fused.chunking import row_slices
from model.alphafold2.modules.config import ModelConfig
from model.layers.common import LayerNorm, Linear
from model.layers.kernels import Kernels
from msa.base.residues import NUM_CODES, NUM_MASKED_CODES

PLDDT_BINS = 50
PLDDT_CHANNELS = 128
PAE_BINS = 64
PAE_LAST_EDGE = 31.0  # Å
DISTOGRAM_BINS = 64
DISTOGRAM_EDGES = (2.3125, 21.6875)  # first and last inner edge, Å
ATOM_TYPES = 37


class LinearHead(nn.Module):
    """A head with a single linear layer."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.logits = Linear(channels, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute logits [..., outputs] from x [..., C]."""
        return self.logits(x)


class PlddtHead(nn.Module):
    """The pLDDT head: per-residue confidence (Algorithm 29)."""

    def __init__(self, channels: int, kernels: Kernels) -> None:
        super().__init__()
        self.input_layer_norm = LayerNorm(channels, kernels)
        self.hidden_0 = Linear(channels, PLDDT_CHANNELS)
        self.hidden_1 = Linear(PLDDT_CHANNELS, PLDDT_CHANNELS)
        self.logits = Linear(PLDDT_CHANNELS, PLDDT_BINS)

    def forward(self, single: torch.Tensor) -> torch.Tensor:
        """Compute logits [N, 50] from the structure module's single representation [N, C]."""
        act = torch.relu(self.hidden_0(self.input_layer_norm(single)))
        return self.logits(torch.relu(self.hidden_1(act)))


class DistogramHead(nn.Module):
    """The distogram head: binned CB distances, symmetric in the two residues (section 1.9.8)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.half_logits = Linear(channels, DISTOGRAM_BINS)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        """Compute logits [N, N, 64] from the pair representation [N, N, Z]."""
        half = self.half_logits(pair)
        return half + half.transpose(0, 1)

    def rows(self, pair: torch.Tensor, rows: slice) -> torch.Tensor:
        """Compute the logits [n, N, 64] of n rows of the pair representation [N, N, Z], to save memory.

        The pair representation may have any floating-point type.
        """
        columns = self.half_logits(pair[:, rows].float())
        return self.half_logits(pair[rows].float()) + columns.transpose(0, 1)


def distogram_edges(device: torch.device | None = None) -> torch.Tensor:
    """Return the 63 inner edges of the distogram's bins, Å."""
    return torch.linspace(*DISTOGRAM_EDGES, DISTOGRAM_BINS - 1, device=device)


def aligned_error_edges(device: torch.device | None = None) -> torch.Tensor:
    """Return the 63 inner edges of the aligned error's bins, Å."""
    return torch.linspace(0.0, PAE_LAST_EDGE, PAE_BINS - 1, device=device)


def make_heads(config: ModelConfig, kernels: Kernels) -> nn.ModuleDict:
    """Create the network's heads by name."""
    msa, pair = config.evoformer.msa.channels, config.evoformer.pair.channels
    single = config.structure.channels
    heads: dict[str, nn.Module] = {
        "predicted_lddt_head": PlddtHead(single, kernels),
        "distogram_head": DistogramHead(pair),
        "masked_msa_head": LinearHead(msa, NUM_MASKED_CODES if config.multimer is None else NUM_CODES),
        "experimentally_resolved_head": LinearHead(single, ATOM_TYPES),
    }
    if config.predicted_aligned_error:
        heads["predicted_aligned_error_head"] = LinearHead(pair, PAE_BINS)
    return nn.ModuleDict(heads)


@dataclass(frozen=True)
class AlignedError:
    """The predicted aligned error (PAE) and the pTM derived from it.

    Args:
        pae: [N, N] float32, Å; entry (i, j) is the expected error of residue j when aligned on residue i.
        max_pae: largest possible PAE, Å.
        ptm: predicted TM-score, 0 to 1.
    """

    pae: np.ndarray
    max_pae: float
    ptm: float

    @classmethod
    def from_expected(cls, pae: np.ndarray, tm_score: np.ndarray) -> "AlignedError":
        """Return the error, given the arrays of `ExpectedErrors` of all residues."""
        return cls(pae, float(bin_centers(aligned_error_edges())[-1]), float(tm_score.max()))

    @classmethod
    def from_tensor(cls, pae: torch.Tensor, ptm: float) -> "AlignedError":
        """Return the error, given the PAE on any device."""
        return cls(pae.cpu().numpy(), float(bin_centers(aligned_error_edges())[-1]), ptm)


def expected_plddt(logits: torch.Tensor) -> torch.Tensor:
    """Compute the expected lDDT-CA of each residue, [N] float64, 0 to 100.

    The bins of the logits [N, bins] divide the range 0 to 1 evenly.
    """
    bins = logits.shape[-1]
    centers = (torch.arange(bins, dtype=torch.float64, device=logits.device) + 0.5) / bins
    return torch.softmax(logits.double(), dim=-1) @ centers * 100.0


def shift_log_odds(probability: torch.Tensor, shift: float) -> torch.Tensor:
    """Return probabilities, of any shape, after a number was added to their log odds."""
    return torch.sigmoid(torch.logit(probability) + shift)


class ExpectedErrors(NamedTuple):
    """Expectations over the bins of the aligned error.

    Args:
        pae: [n, N] float32, Å.
        tm_score: [n] float64, expected TM-score when aligned on each residue.
    """

    pae: torch.Tensor
    tm_score: torch.Tensor


def expected_errors(pair: torch.Tensor, head: Callable[[torch.Tensor], torch.Tensor]) -> ExpectedErrors:
    """Compute the PAE, and for each residue the expected TM-score when aligned on it; pTM is their maximum.

    A TM-score is the mean over j of the expectation of 1 / (1 + (error / d0)²), with d0 of Zhang and Skolnick
    (2004) for max(N, 19) residues. The head computes logits [m, N, 64] for m of the rows of pair [n, N, Z];
    it is called for a few rows at a time to save memory.
    """
    num_rows, length, _ = pair.shape
    centers = bin_centers(aligned_error_edges(pair.device))
    d0 = 1.24 * (max(length, 19) - 15) ** (1.0 / 3.0) - 1.8
    values = torch.stack([centers, 1.0 / (1.0 + (centers / d0).square())], dim=1)  # [64, 2]
    pae = torch.empty(num_rows, length, device=pair.device)
    tm_scores = values.new_empty(num_rows)
    # factor 16: intermediates are float64, while the budget counts elements of the trunk's dtype
    for rows in row_slices(pair, 16 * length * PAE_BINS):
        logits = head(pair[rows].float())  # [n, N, 64]
        expected = torch.softmax(logits.double(), dim=-1) @ values  # [n, N, 2]
        pae[rows] = expected[..., 0].float()
        tm_scores[rows] = expected[..., 1].mean(dim=-1)
    return ExpectedErrors(pae, tm_scores)


def bin_centers(edges: torch.Tensor) -> torch.Tensor:
    """Return the centres of the aligned error's bins, Å, float64 [bins]; the last bin has no upper edge.

    Inner edges [bins - 1], Å, are evenly spaced.
    """
    edges = edges.double()
    step = edges[1] - edges[0]
    return torch.cat([edges + step / 2, edges[-1:] + 1.5 * step])
