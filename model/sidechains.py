"""Atom positions from backbone frames and torsion angles (Algorithm 24)."""

import torch
import torch.nn.functional as F

from model import residue_constants
from model.residue_tables import residue_rows
from model.rigid import Rigid


def torsion_angles_to_frames(aatype: torch.Tensor, backbone: Rigid, sin_cos: torch.Tensor) -> Rigid:
    """Compute the frames of the eight rigid groups of each residue.

    Args:
        aatype: [N], residue codes.
        backbone: backbone frames, shape [N], Å.
        sin_cos: [N, 7, 2], unit vectors of sine and cosine of pre-omega, phi, psi, chi1 to chi4.

    Returns:
        Frames of shape [N, 8], local to global: backbone, pre-omega, phi, psi, chi1 to chi4.
    """
    default_frames = residue_rows(residue_constants.default_frames, aatype)  # [N, 8, 3, 4]
    default = Rigid(default_frames[..., :3], default_frames[..., 3])  # [N, 8]
    # the backbone group has no torsion: angle 0
    sine, cosine = (F.pad(x, (1, 0), value=v) for x, v in zip(sin_cos.unbind(-1), (0.0, 1.0), strict=True))
    rotation = sin_cos.new_zeros(*sine.shape, 3, 3)  # rotation about x
    rotation[..., 0, 0] = 1.0
    rotation[..., 1, 1] = rotation[..., 2, 2] = cosine
    rotation[..., 1, 2] = -sine
    rotation[..., 2, 1] = sine
    in_parent = default.compose(Rigid(rotation, torch.zeros_like(default.translation)))  # [N, 8]
    frames = [in_parent[:, group] for group in range(8)]
    for group in (5, 6, 7):  # the parent of chi2 to chi4 is the previous chi group
        frames[group] = frames[group - 1].compose(frames[group])
    local = Rigid(
        torch.stack([frame.rotation for frame in frames], dim=1),
        torch.stack([frame.translation for frame in frames], dim=1),
    )
    return backbone.unsqueeze(1).compose(local)


def frames_to_atom14_positions(aatype: torch.Tensor, frames: Rigid) -> torch.Tensor:
    """Compute atom positions from the frames of the rigid groups.

    Args:
        aatype: [N], residue codes.
        frames: shape [N, 8], local to global, Å.

    Returns:
        [N, 14, 3], Å; zero in empty slots.
    """
    groups = residue_rows(residue_constants.atom14_rigid_group, aatype)  # [N, 14]
    residues = torch.arange(aatype.shape[0], device=aatype.device)[:, None]
    positions = frames[residues, groups].apply(residue_rows(residue_constants.atom14_positions, aatype))
    return positions * residue_rows(residue_constants.atom14_mask, aatype)[..., None]


def atom14_to_atom37_positions(
    aatype: torch.Tensor, atom14: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reorder atom positions from atom14 to atom37.

    Args:
        aatype: [N], residue codes.
        atom14: [N, 14, 3], Å.

    Returns:
        Positions [N, 37, 3] in Å, zero for absent atoms, and their mask [N, 37].
    """
    slots = residue_rows(residue_constants.atom37_to_atom14, aatype)  # [N, 37]
    mask = residue_rows(residue_constants.atom37_mask, aatype)  # [N, 37]
    positions = torch.gather(atom14, 1, slots[..., None].expand(-1, -1, 3))
    return positions * mask[..., None], mask
