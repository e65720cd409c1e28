"""Output heads, which compute logits from the final representations (supplement section 1.9)."""

import torch
from torch import nn

from model.config import ModelConfig
from model.kernels import Kernels
from model.layers import LayerNorm, Linear

PLDDT_BINS = 50
PLDDT_CHANNELS = 128
PAE_BINS = 64
PAE_LAST_EDGE = 31.0  # Å
DISTOGRAM_BINS = 64
DISTOGRAM_EDGES = (2.3125, 21.6875)  # first and last inner edge, Å
MSA_TYPES = 23
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
        self.act_0 = Linear(channels, PLDDT_CHANNELS)
        self.act_1 = Linear(PLDDT_CHANNELS, PLDDT_CHANNELS)
        self.logits = Linear(PLDDT_CHANNELS, PLDDT_BINS)

    def forward(self, single: torch.Tensor) -> torch.Tensor:
        """Compute logits [N, 50] from the structure module's single representation [N, C]."""
        act = torch.relu(self.act_0(self.input_layer_norm(single)))
        return self.logits(torch.relu(self.act_1(act)))


class DistogramHead(nn.Module):
    """The distogram head: binned CB distances, symmetric in the two residues (section 1.9.8)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.half_logits = Linear(channels, DISTOGRAM_BINS)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        """Compute logits [N, N, 64] from the pair representation [N, N, Z]."""
        half = self.half_logits(pair)
        return half + half.transpose(0, 1)


def distogram_edges(device: torch.device | None = None) -> torch.Tensor:
    """Return the 63 inner edges of the distogram's bins, Å."""
    return torch.linspace(*DISTOGRAM_EDGES, DISTOGRAM_BINS - 1, device=device)


def aligned_error_edges(device: torch.device | None = None) -> torch.Tensor:
    """Return the 63 inner edges of the aligned error's bins, Å."""
    return torch.linspace(0.0, PAE_LAST_EDGE, PAE_BINS - 1, device=device)


def make_heads(config: ModelConfig, kernels: Kernels) -> nn.ModuleDict:
    """Create the network's heads, keyed by their scope in the published parameters."""
    msa, pair = config.evoformer.msa.channels, config.evoformer.pair.channels
    single = config.structure.channels
    heads: dict[str, nn.Module] = {
        "predicted_lddt_head": PlddtHead(single, kernels),
        "distogram_head": DistogramHead(pair),
        "masked_msa_head": LinearHead(msa, MSA_TYPES),
        "experimentally_resolved_head": LinearHead(single, ATOM_TYPES),
    }
    if config.predicted_aligned_error:
        heads["predicted_aligned_error_head"] = LinearHead(pair, PAE_BINS)
    return nn.ModuleDict(heads)
