"""The losses of the heads: cross-entropies of the bins that a structure's errors and distances fall into.

Equation numbers are those of the supplement of Abramson et al., Nature 630, 493 (2024); where OpenFold3's
code differs, the formula is OpenFold3's. No gradient passes to the structure. `positions` are predicted, [A,
3] in Å; `inputs` are the target, and `targets` its experimental structure.
"""

import torch

from cuda.fused.smooth_lddt.reference import LIMITS
from model.alphafold3.confidence import DISTOGRAM_RANGE, LARGEST_ERROR, token_frames
from model.alphafold3.heads import has_representative, representative_atoms
from model.alphafold3.inputs import AlphaFold3Inputs
from model.training.alphafold2.losses import cross_entropy
from model.training.alphafold3.denoising_losses import EPSILON, NUCLEOTIDE_RADIUS, RADIUS
from model.training.alphafold3.targets import AtomTargets, centre_atoms


def distogram_loss(logits: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets) -> torch.Tensor:
    """Return the cross-entropy of distances between representative atoms (section 4.4).

    Logits are [N, N, B], bins from 2 to 22 Å.
    """
    atoms, known = _representatives(inputs, targets.resolved)
    points = targets.positions[atoms]
    distances = (points[:, None] - points).square().sum(dim=-1).sqrt()
    return _mean_cross_entropy(logits, distances, DISTOGRAM_RANGE, known[:, None] & known)


@torch.no_grad()
def atom_lddt(positions: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets) -> torch.Tensor:
    """Return the lDDT of each atom with the CA atoms within 15 Å and C1' atoms within 30 Å, [A], 0 to 1."""
    atoms, exists = centre_atoms(inputs)
    counted = exists & ~inputs.is_atomized & targets.resolved.bool()[atoms]  # [N]
    atoms = atoms[counted]
    radius = torch.where(inputs.is_protein[counted], RADIUS, NUCLEOTIDE_RADIUS)
    true, distances = (_between(x, x[atoms]) for x in (targets.positions, positions))  # [A, n]
    near = (true < radius) & targets.resolved.bool()[:, None]
    near &= torch.arange(len(positions), device=atoms.device)[:, None] != atoms
    error = (true - distances).abs()
    kept = torch.stack([error < limit for limit in LIMITS]).sum(dim=0) / len(LIMITS)
    # float32 like OpenFold3's: scores are often on an edge between bins
    return (kept.float() * near).sum(dim=-1) / (near.sum(dim=-1) + EPSILON)


def plddt_loss(
    logits: torch.Tensor, positions: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets
) -> torch.Tensor:
    """Return the cross-entropy of each resolved atom's lDDT (equation 9); logits are [A, B], up to 1."""
    lddt = atom_lddt(positions, inputs, targets)
    return _mean_cross_entropy(logits, lddt, (0.0, 1.0), targets.resolved.bool())


@torch.no_grad()
def aligned_errors(
    positions: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return errors of the second token in the frame of the first, [N, N] Å, and where they are known."""
    local, known = [], []
    for structure, mask in ((positions, inputs.atom_mask), (targets.positions, targets.resolved)):
        frames = token_frames(inputs, structure, mask)
        atoms, exists = _representatives(inputs, mask)
        local.append(_in_frames(structure[atoms], structure[frames.atoms]))
        known.append(frames.valid[:, None] & exists)
    error = torch.sqrt(EPSILON + (local[0] - local[1]).square().sum(dim=-1))
    return error, known[0] & known[1]


def pae_loss(
    logits: torch.Tensor, positions: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets
) -> torch.Tensor:
    """Return the cross-entropy of the aligned errors (equation 10); logits are [N, N, B], up to 32 Å."""
    errors, known = aligned_errors(positions, inputs, targets)
    return _mean_cross_entropy(logits, errors, (0.0, LARGEST_ERROR), known)


def pde_loss(
    logits: torch.Tensor, positions: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets
) -> torch.Tensor:
    """Return the cross-entropy of the errors of distances between representative atoms (equation 12).

    Logits are [N, N, B], bins from 0 to 32 Å.
    """
    atoms, known = _representatives(inputs, targets.resolved)
    distances, true = (_between(x[atoms], x[atoms]) for x in (positions, targets.positions))
    errors = (distances - true).abs()
    return _mean_cross_entropy(logits, errors, (0.0, LARGEST_ERROR), known[:, None] & known)


def resolved_loss(logits: torch.Tensor, inputs: AlphaFold3Inputs, targets: AtomTargets) -> torch.Tensor:
    """Return the cross-entropy of the prediction whether atoms are resolved (equation 14).

    Logits are [A, 2], not resolved and resolved.
    """
    return _masked_mean(cross_entropy(logits, targets.resolved.long()), inputs.atom_mask.bool())


def _representatives(inputs: AlphaFold3Inputs, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return representative atoms, int64 [N], and the tokens that have one with a mask [A] of 1, bool [N]."""
    atoms = representative_atoms(inputs)
    return atoms, has_representative(inputs) & mask.bool()[atoms]


def _between(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the distances [m, n] of points [m, 3] and [n, 3]."""
    return torch.sqrt(EPSILON + (first[:, None] - second).square().sum(dim=-1))


def _in_frames(points: torch.Tensor, corners: torch.Tensor) -> torch.Tensor:
    """Express points [N, 3] in the frames of three atoms [M, 3, 3]: [M, N, 3] (Algorithm 29)."""
    first, origin, last = corners.unbind(dim=1)
    to_first, to_last = _unit(first - origin), _unit(last - origin)
    x, y = _unit(to_first + to_last), _unit(to_last - to_first)
    axes = torch.stack([x, y, torch.linalg.cross(x, y)], dim=-1)  # [M, 3, 3], an axis in each column
    return (points - origin[:, None]) @ axes


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / torch.sqrt(EPSILON + vectors.square().sum(dim=-1, keepdim=True))


def _mean_cross_entropy(
    logits: torch.Tensor, values: torch.Tensor, span: tuple[float, float], mask: torch.Tensor
) -> torch.Tensor:
    """Return the mean cross-entropy of the bins closest to values [...], where the mask is True.

    Logits [..., B] are of equal bins; `span` has the lower edge of the first bin and the upper edge of the
    last.
    """
    first, last = span
    width = (last - first) / logits.shape[-1]
    centres = first + width / 2 + torch.arange(logits.shape[-1], device=values.device) * width
    nearest = (values[..., None] - centres).abs().argmin(dim=-1)
    return _masked_mean(cross_entropy(logits, nearest), mask)


def _masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (values * mask).sum() / (mask.sum() + EPSILON)
