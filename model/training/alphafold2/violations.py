"""Bonds, angles and clashes of predicted structures (supplement section 1.9.11).

Formulas and constants are those of DeepMind's published code, except for the bounds on distances within a
residue: bond lengths and angles inside a residue are fixed by the idealised geometry that the structure
module uses, so only overlaps of atoms that are not bonded, and the ring of proline, are bounded.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from model import residue_constants
from model.residue_constants import (
    BOND_DEVIATION,
    BOND_LENGTH,
    C_N_CA,
    C_N_CA_DEVIATION,
    CA_C_N,
    CA_C_N_DEVIATION,
    OVERLAP_TOLERANCE,
    TOLERANCE_FACTOR,
)
from model.residue_tables import residue_rows
from msa.base.residues import ATOM14_NAMES, RESTYPE_NAMES, RESTYPES

PROLINE = RESTYPES.index("P")
N_SLOT, CA_SLOT, C_SLOT, SULPHUR_SLOT = 0, 1, 2, 5
BONDED = 1.95  # Å, longer than any bond between heavy atoms of a residue
NO_BOUND = 1e10


def structural_violations(
    atom14: torch.Tensor,
    aatype: torch.Tensor,
    seq_mask: torch.Tensor,
    bonded: torch.Tensor,
    clash_function: Callable[..., tuple[torch.Tensor, torch.Tensor]] | None = None,
) -> torch.Tensor:
    """Return the sum of all terms [B] of structures atom14 [B, N, 14, 3], Å, with aatype and seq_mask [B, N].

    `bonded` [B, N] is 1 where a residue is bonded to the previous one. `clash_function` is a compiled form of
    `between_residue_clashes`.
    """
    exists = residue_rows(residue_constants.atom14_mask, aatype) * seq_mask[..., None]  # [B, N, 14]
    bond_loss, _ = peptide_bond_violations(atom14, aatype, exists, bonded)
    clash_loss, _ = (clash_function or between_residue_clashes)(
        atom14, exists, residue_rows(residue_constants.vdw_radii, aatype), bonded
    )
    lower, upper = residue_rows(within_residue_bounds, aatype).unbind(dim=2)  # each [B, N, 14, 14]
    within_loss = within_residue_loss(atom14, exists, lower, upper)
    return bond_loss + (clash_loss + within_loss) / (1e-6 + exists.sum(dim=(1, 2)))


def peptide_bond_violations(
    atom14: torch.Tensor, aatype: torch.Tensor, exists: torch.Tensor, bonded: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss [B] and violations [B, N-1] of bonds and angles between neighbours."""
    this, following = atom14[:, :-1], atom14[:, 1:]
    to_ca = this[:, :, CA_SLOT] - this[:, :, C_SLOT]
    to_n = following[:, :, N_SLOT] - this[:, :, C_SLOT]
    n_to_ca = following[:, :, CA_SLOT] - following[:, :, N_SLOT]
    lengths = [torch.sqrt(1e-6 + x.square().sum(dim=-1)) for x in (to_ca, to_n, n_to_ca)]  # each [B, N-1]
    proline = (aatype[:, 1:] == PROLINE).float()
    ideal = (1.0 - proline) * BOND_LENGTH[0] + proline * BOND_LENGTH[1]
    deviation = (1.0 - proline) * BOND_DEVIATION[0] + proline * BOND_DEVIATION[1]
    ca_c_n = (to_ca * to_n).sum(dim=-1) / (lengths[0] * lengths[1])
    c_n_ca = -(to_n * n_to_ca).sum(dim=-1) / (lengths[1] * lengths[2])
    c_n = exists[:, :-1, C_SLOT] * exists[:, 1:, N_SLOT] * bonded[:, 1:]
    ca_mask, next_ca_mask = c_n * exists[:, :-1, CA_SLOT], c_n * exists[:, 1:, CA_SLOT]
    checks: tuple[tuple[torch.Tensor, torch.Tensor | float, torch.Tensor | float, torch.Tensor], ...] = (
        (lengths[1], ideal, deviation, c_n),
        (ca_c_n, CA_C_N, CA_C_N_DEVIATION, ca_mask),
        (c_n_ca, C_N_CA, C_N_CA_DEVIATION, next_ca_mask),
    )
    loss, violated = torch.zeros_like(ideal[:, 0]), torch.zeros_like(ideal)
    for value, expected, sigma, mask in checks:
        error = torch.sqrt(1e-6 + (value - expected).square())
        excess = torch.relu(error - TOLERANCE_FACTOR * sigma)
        loss = loss + (mask * excess).sum(dim=1) / (mask.sum(dim=1) + 1e-6)
        violated = torch.maximum(violated, mask * (error > TOLERANCE_FACTOR * sigma).float())
    return loss, violated


def between_residue_clashes(
    atom14: torch.Tensor, exists: torch.Tensor, radii: torch.Tensor, bonded: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the overlap of different residues' atoms, counted for both, and the number of clashes, [B].

    Atoms are [B, N, 14, 3], which of them exist and their radii in Å [B, N, 14]; `bonded` as above.
    """
    length = atom14.shape[1]
    distance = torch.sqrt(
        1e-10 + (atom14[:, :, None, :, None] - atom14[:, None, :, None]).square().sum(dim=-1)
    )
    index = torch.arange(length, device=atom14.device)
    later = (index[:, None] < index[None]).float()[None, :, :, None, None]
    mask = exists[:, :, None, :, None] * exists[:, None, :, None] * later  # [B, N, N, 14, 14]
    atom = torch.arange(14, device=atom14.device)
    next_residue = (index[:, None] + 1 == index[None]).float() * bonded[:, None]  # [B, N, N]
    peptide = ((atom[:, None] == C_SLOT) & (atom[None] == N_SLOT)).float()
    # sulphurs of cysteines may be bonded; the published code leaves out the same slot of all residues
    sulphurs = ((atom[:, None] == SULPHUR_SLOT) & (atom[None] == SULPHUR_SLOT)).float()
    mask = mask * (1.0 - next_residue[..., None, None] * peptide) * (1.0 - sulphurs)
    lower = radii[:, :, None, :, None] + radii[:, None, :, None] - OVERLAP_TOLERANCE
    overlap = mask * torch.relu(lower - distance)
    clashes = mask * (distance < lower).float()
    return 2.0 * overlap.sum(dim=(1, 2, 3, 4)), clashes.sum(dim=(1, 2, 3, 4))


def within_residue_loss(
    atom14: torch.Tensor, exists: torch.Tensor, lower: torch.Tensor, upper: torch.Tensor
) -> torch.Tensor:
    """Return the sum of the distances by which atom pairs within residues are out of bounds, [B].

    Each pair counts for both of its atoms. Atoms are [B, N, 14, 3], which of them exist [B, N, 14], bounds
    [B, N, 14, 14], Å.
    """
    distance = torch.sqrt(1e-10 + (atom14[..., :, None, :] - atom14[..., None, :, :]).square().sum(dim=-1))
    mask = exists[..., :, None] * exists[..., None, :] * (1.0 - torch.eye(14, device=atom14.device))
    excess = torch.relu(lower - distance) + torch.relu(distance - upper)
    return 2.0 * (mask * excess).sum(dim=(1, 2, 3))


@cache
def within_residue_bounds() -> np.ndarray:
    """Return lower and upper bounds of the distances within a residue, Å, [21, 2, 14, 14] float32.

    Atoms up to two bonds apart have no bounds, except for the bond that closes the ring of proline.
    """
    radii = residue_constants.vdw_radii()
    bounds = np.zeros((21, 2, 14, 14), np.float32)
    bounds[:, 1] = NO_BOUND
    for code, name in enumerate(RESTYPE_NAMES[: residue_constants.UNKNOWN]):
        count = len(ATOM14_NAMES[name])
        bonds = _bonds(code)[:count, :count]
        is_near = (bonds | np.eye(count, dtype=bool)).astype(int)
        is_far = is_near @ is_near == 0
        lower = radii[code, :count, None] + radii[code, None, :count] - OVERLAP_TOLERANCE
        bounds[code, 0, :count, :count] = np.where(is_far, lower, 0.0)
        if code == PROLINE:
            delta = ATOM14_NAMES[name].index("CD")
            for first, second in ((N_SLOT, delta), (delta, N_SLOT)):
                bounds[code, :, first, second] = 1.474 - 15 * 0.014, 1.474 + 15 * 0.014
    return bounds


def _bonds(code: int) -> np.ndarray:
    """Return which atoms of a residue type are bonded, from its ideal geometry, [14, 14] bool."""
    frames = residue_constants.default_frames()[code].astype(np.float64)  # [8, 3, 4]
    group_frames = [frames[group] for group in range(8)]
    for chi in (5, 6, 7):
        parent = group_frames[chi - 1]
        rotation = parent[:, :3] @ frames[chi][:, :3]
        group_frames[chi] = np.column_stack([rotation, parent[:, :3] @ frames[chi][:, 3] + parent[:, 3]])
    groups = residue_constants.atom14_rigid_group()[code]
    local = residue_constants.atom14_positions()[code]
    points = np.stack(
        [group_frames[g][:, :3] @ p + group_frames[g][:, 3] for g, p in zip(groups, local, strict=True)]
    )
    exists = residue_constants.atom14_mask()[code] > 0
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    bonds = (distance < BONDED) & exists[:, None] & exists[None] & ~np.eye(14, dtype=bool)
    if code == PROLINE:
        delta = ATOM14_NAMES["PRO"].index("CD")
        bonds[N_SLOT, delta] = bonds[delta, N_SLOT] = True
    return bonds
