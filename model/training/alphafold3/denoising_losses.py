"""The losses of denoised structures: aligned positions, bonds of ligands, and smooth lDDT.

Algorithm and equation numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024); where
OpenFold3's code differs, the formula is OpenFold3's. Each function takes denoised copies [S, A, 3], Å, of a
target, the target's inputs and its experimental structure, and returns [S].
"""

from dataclasses import dataclass

import torch

from cuda.fused.smooth_lddt import smooth_lddt
from model.alphafold3.inputs import AlphaFold3Inputs
from model.training.alphafold3.alignment import align
from model.training.alphafold3.targets import AtomTargets, of_atoms

DNA_WEIGHT, RNA_WEIGHT, LIGAND_WEIGHT = 5.0, 5.0, 10.0
# distances up to which pairs of atoms count in lDDT, Å, by the kind of the first atom
RADIUS, NUCLEOTIDE_RADIUS = 15.0, 30.0
EPSILON = 1e-8


def noise_weights(sigmas: torch.Tensor, sigma_data: float) -> torch.Tensor:
    """Return the weight of a copy's losses by its noise level, Å.

    OpenFold3 divides by (σ σ_data)², as EDM does, and not by (σ + σ_data)² as the supplement.
    """
    return (sigmas**2 + sigma_data**2) / (sigmas * sigma_data) ** 2


def position_loss(denoised: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets) -> torch.Tensor:
    """Return the mean squared error after alignment, weighted by the kind of molecule (equation 3).

    The experimental structure is aligned to the denoised one.
    """
    kinds = (
        DNA_WEIGHT * inputs.is_dna.to(denoised)
        + RNA_WEIGHT * inputs.is_rna.to(denoised)
        + LIGAND_WEIGHT * inputs.is_ligand.to(denoised)
    )
    weights = of_atoms(inputs, 1 + kinds) * targets.resolved
    aligned = align(targets.positions, denoised.detach(), weights)
    squared = (denoised - aligned).square().sum(dim=-1)
    return (squared * weights).sum(dim=-1) / 3 / (targets.resolved.sum() + EPSILON)


def bond_loss(denoised: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets) -> torch.Tensor:
    """Return the mean squared error of distances in bonds of polymers with ligands (equation 5).

    As in OpenFold3, a ligand's atom has a bond with each atom of a residue that it is bonded to.
    """
    polymer = inputs.is_protein | inputs.is_rna | inputs.is_dna
    tokens = inputs.token_bonds.bool() & inputs.is_ligand[:, None] & polymer
    resolved = targets.resolved.bool()
    token = inputs.atom_to_token_index
    bonds = tokens[token][:, token] & resolved[:, None] & resolved
    pairs = AtomPairs.of(bonds, targets.positions)
    error = (pairs.lengths(denoised) - pairs.distances).square()
    return error.sum(dim=-1) / (len(pairs.distances) + EPSILON)


def smooth_lddt_loss(denoised: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets) -> torch.Tensor:
    """Return 1 − the smooth lDDT of all atoms (Algorithm 27)."""
    nucleotide = of_atoms(inputs, inputs.is_rna | inputs.is_dna)
    radius = torch.where(nucleotide, NUCLEOTIDE_RADIUS, RADIUS) * targets.resolved
    implementation = "reference" if denoised.dtype == torch.float64 else "auto"
    return 1 - smooth_lddt(denoised, targets.positions, radius, implementation=implementation)


@dataclass(frozen=True)
class AtomPairs:
    """Pairs of atoms that a loss compares. P is their number.

    Args:
        first: int64 [P].
        second: int64 [P].
        distances: [P], Å, in the experimental structure.
    """

    first: torch.Tensor
    second: torch.Tensor
    distances: torch.Tensor

    @classmethod
    def of(cls, selected: torch.Tensor, positions: torch.Tensor) -> "AtomPairs":
        """Return the pairs that bool [A, A] selects, with their distances in positions [A, 3]."""
        first, second = selected.nonzero(as_tuple=True)
        return cls(first, second, _length(positions[first] - positions[second]))

    def lengths(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the distances [..., P] in positions [..., A, 3], with finite gradients at 0."""
        return _length(positions[..., self.first, :] - positions[..., self.second, :])


def _length(offsets: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(EPSILON + offsets.square().sum(dim=-1))
