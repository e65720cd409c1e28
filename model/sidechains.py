"""From torsion angles to atoms: frames of the rigid groups and idealised atom positions (Algorithm 24)."""

import torch

from model import residue_constants
from model.rigid import Rigid


def _table(values: object, aatype: torch.Tensor) -> torch.Tensor:
    """Rows of a table by residue type."""
    return torch.as_tensor(values, device=aatype.device)[aatype]


def group_frames(aatype: torch.Tensor, backbone: Rigid, sin_cos: torch.Tensor) -> Rigid:
    """The eight rigid groups' frames of each residue.

    Args:
        aatype: [N], residue codes.
        backbone: of shape [N], Å.
        sin_cos: [N, 7, 2], unit vectors: sine and cosine of pre-omega, phi, psi, chi1 to chi4.

    Returns:
        Frames of shape [N, 8], local to global: backbone, pre-omega, phi, psi, chi1 to chi4.
    """
    rotations, translations = residue_constants.default_frames()
    default = Rigid(_table(rotations, aatype), _table(translations, aatype))  # [N, 8]
    # the backbone group has no torsion: angle 0
    unturned = sin_cos.new_tensor([0.0, 1.0]).expand(sin_cos.shape[0], 1, 2)
    sine, cosine = torch.cat([unturned, sin_cos], dim=1).unbind(dim=-1)  # each [N, 8]
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
    groups = _table(residue_constants.atom14_rigid_group(), aatype)  # [N, 14]
    residues = torch.arange(aatype.shape[0], device=aatype.device)[:, None]
    positions = frames[residues, groups].apply(_table(residue_constants.atom14_positions(), aatype))
    return positions * _table(residue_constants.atom14_mask(), aatype)[..., None]


def atom37_positions(aatype: torch.Tensor, atom14: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Atoms numbered by name.

    Args:
        aatype: [N], residue codes.
        atom14: [N, 14, 3], Å.

    Returns:
        positions [N, 37, 3], zero for absent atoms, and mask [N, 37].
    """
    slots = _table(residue_constants.atom37_to_atom14(), aatype)  # [N, 37]
    mask = _table(residue_constants.atom37_mask(), aatype)  # [N, 37]
    positions = torch.gather(atom14, 1, slots[..., None].expand(-1, -1, 3))
    return positions * mask[..., None], mask
