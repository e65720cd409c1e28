"""The total loss (equation 15 of the supplement of Abramson et al., Nature 630, 493, 2024) and its terms."""

from dataclasses import dataclass

import torch

from model.alphafold3.heads import ConfidenceLogits
from model.alphafold3.inputs import AlphaFold3Inputs
from model.training.alphafold3.denoising_losses import (
    bond_loss,
    noise_weights,
    position_loss,
    smooth_lddt_loss,
)
from model.training.alphafold3.head_losses import (
    distogram_loss,
    pae_loss,
    pde_loss,
    plddt_loss,
    resolved_loss,
)
from model.training.alphafold3.targets import AtomTargets


@dataclass(frozen=True)
class AllAtomLossWeights:
    """Weights of the losses, by default OpenFold3's; a loss with weight 0 is not computed.

    Args:
        position: squared error of denoised positions.
        bond: bonds of ligands with polymers; OpenFold3 and AlphaFold 3 use it in fine-tuning.
        smooth_lddt: smooth lDDT of denoised positions.
        distogram: distances of representative atoms.
        plddt, pae, pde, resolved: the confidence head of this name.
    """

    position: float = 4.0
    bond: float = 0.0
    smooth_lddt: float = 4.0
    distogram: float = 3e-2
    plddt: float = 1e-4
    pae: float = 1e-4
    pde: float = 1e-4
    resolved: float = 1e-4


@dataclass(frozen=True)
class TrainingOutput:
    """The outputs of a training pass that losses read. S is the number of noised copies.

    Args:
        denoised: [S, A, 3], Å, denoised copies of the experimental structure.
        sigmas: [S], their noise levels, Å.
        distogram: [N, N, 64], logits.
        positions: [A, 3], Å, the predicted structure that the confidence heads see.
        confidence: logits of the confidence heads.
    """

    denoised: torch.Tensor
    sigmas: torch.Tensor
    distogram: torch.Tensor
    positions: torch.Tensor
    confidence: ConfidenceLogits


def total_loss(
    output: TrainingOutput,
    inputs: AlphaFold3Inputs,
    targets: AtomTargets,
    weights: AllAtomLossWeights,
    sigma_data: float,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the weighted sum of the losses and the terms, not weighted, by name; all are scalars.

    `sigma_data` is the standard deviation of atom positions, Å.
    """
    total = output.denoised.new_zeros(())
    terms = {}
    by_noise = noise_weights(output.sigmas, sigma_data)
    for name, of_copies, factor in (
        ("position", position_loss, by_noise),
        ("bond", bond_loss, by_noise),
        ("smooth_lddt", smooth_lddt_loss, 1.0),
    ):
        if weight := getattr(weights, name):
            losses = of_copies(output.denoised, inputs, targets)  # [S]
            total = total + weight * (factor * losses).mean()
            terms[name] = losses.mean()
    for name, value in _head_losses(output, inputs, targets, weights).items():
        total = total + getattr(weights, name) * value
        terms[name] = value
    return total, {name: value.detach() for name, value in terms.items()}


def _head_losses(
    output: TrainingOutput, inputs: AlphaFold3Inputs, targets: AtomTargets, weights: AllAtomLossWeights
) -> dict[str, torch.Tensor]:
    """Return the losses of the heads whose weight is not 0."""
    logits, positions = output.confidence, output.positions
    losses = {
        "distogram": lambda: distogram_loss(output.distogram, inputs, targets),
        "plddt": lambda: plddt_loss(logits.plddt, positions, inputs, targets),
        "pae": lambda: pae_loss(logits.pae, positions, inputs, targets),
        "pde": lambda: pde_loss(logits.pde, positions, inputs, targets),
        "resolved": lambda: resolved_loss(logits.resolved, inputs, targets),
    }
    return {name: loss() for name, loss in losses.items() if getattr(weights, name)}
