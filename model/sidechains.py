"""From torsion angles to atoms: frames of the rigid groups and idealised atom positions (Algorithm 24)."""

import torch
import torch.nn.functional as F

from model import residue_constants
from model.rigid import Rigid
from model.tables import by_residue


def group_frames(aatype: torch.Tensor, backbone: Rigid, sin_cos: torch.Tensor) -> Rigid:
    """The eight rigid groups' frames of each residue.

    Args:
        aatype: [N], residue codes.
        backbone: of shape [N], Å.
        sin_cos: [N, 7, 2], unit vectors: sine and cosine of pre-omega, phi, psi, chi1 to chi4.

    Returns:
        Frames of shape [N, 8], local to global: backbone, pre-omega, phi, psi, chi1 to chi4.
    """
    default_frames = by_residue(residue_constants.default_frames, aatype)  # [N, 8, 3, 4]
    default = Rigid(default_frames[..., :3], default_frames[..., 3])  # [N, 8]
    # the backbone group has no torsion: angle 0
    sine, cosine = (F.pad(x, (1, 0), value=v) for x, v in zip(sin_cos.unbind(-1), (0.0, 1.0), strict=True))
    turn = sin_cos.new_zeros(*sine.shape, 3, 3)  # rotation about x
    turn[..., 0, 0] = 1.0
    turn[..., 1, 1] = turn[..., 2, 2] = cosine
    turn[..., 1, 2] = -sine
    turn[..., 2, 1] = sine
    turned = default.compose(Rigid(turn, torch.zeros_like(default.translation)))  # [N, 8]
    frames = [turned[:, group] for group in range(8)]
    for chi in (5, 6, 7):  # chi2 to chi4 hang on the chi before
        frames[chi] = frames[chi - 1].compose(frames[chi])
    local = Rigid(
        torch.stack([frame.rotation for frame in frames], dim=1),
        torch.stack([frame.translation for frame in frames], dim=1),
    )
    return backbone.unsqueeze(1).compose(local)


def atom14_positions(aatype: torch.Tensor, frames: Rigid) -> torch.Tensor:
    """Atoms of each residue.

    Args:
        aatype: [N], residue codes.
        frames: of shape [N, 8].

    Returns:
        [N, 14, 3], Å; zero in empty slots.
    """
    groups = by_residue(residue_constants.atom14_rigid_group, aatype)  # [N, 14]
    residues = torch.arange(aatype.shape[0], device=aatype.device)[:, None]
    positions = frames[residues, groups].apply(by_residue(residue_constants.atom14_positions, aatype))
    return positions * by_residue(residue_constants.atom14_mask, aatype)[..., None]


def atom37_positions(aatype: torch.Tensor, atom14: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Atoms numbered by name.

    Args:
        aatype: [N], residue codes.
        atom14: [N, 14, 3], Å.

    Returns:
        positions [N, 37, 3], zero for absent atoms, and mask [N, 37].
    """
    slots = by_residue(residue_constants.atom37_to_atom14, aatype)  # [N, 37]
    mask = by_residue(residue_constants.atom37_mask, aatype)  # [N, 37]
    positions = torch.gather(atom14, 1, slots[..., None].expand(-1, -1, 3))
    return positions * mask[..., None], mask
