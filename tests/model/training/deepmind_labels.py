"""The features that the losses of DeepMind's code compare with, made from a structure.

It needs `alphafold-colabfold`; record_losses.py and record_gradients.py import it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from alphafold.common import residue_constants
from alphafold.model import all_atom, quat_affine


@dataclass(frozen=True)
class Labels:
    """A structure in the forms of DeepMind's code.

    Args:
        features: those of the losses, by DeepMind's names.
        backbone: QuatAffine of the backbone frames.
        torsions: result of `all_atom.atom37_to_torsion_angles`.
        atom37: [N, 37, 3], Å.
        mask37: [N, 37].
    """

    features: dict[str, Any]
    backbone: Any
    torsions: Any
    atom37: np.ndarray
    mask37: np.ndarray


def make_labels(aatype: np.ndarray, atom14: np.ndarray, mask: np.ndarray, clamped: np.float32) -> Labels:
    """Make the features of the losses.

    Args:
        aatype: [N] int32.
        atom14: [N, 14, 3] float32, Å.
        mask: [N, 14] float32, 1 for atoms with known positions.
        clamped: 1 if the FAPE of the backbone is clamped.
    """
    length = len(aatype)
    names = residue_constants.restype_name_to_atom14_names
    atom37, mask37 = np.zeros((length, 37, 3), np.float32), np.zeros((length, 37), np.float32)
    for row, code in enumerate(aatype):
        name = residue_constants.restype_1to3[residue_constants.restypes[code]]
        for slot, atom in enumerate(names[name]):
            if atom and mask[row, slot]:
                atom37[row, residue_constants.atom_order[atom]] = atom14[row, slot]
                mask37[row, residue_constants.atom_order[atom]] = 1.0
    clean = atom14 * mask[..., None]
    renaming = np.array(all_atom.RENAMING_MATRICES)[aatype]  # [N, 14, 14]
    frames = all_atom.atom37_to_frames(aatype, atom37, mask37)
    torsions = all_atom.atom37_to_torsion_angles(aatype[None], atom37[None], mask37[None])
    sin_cos = np.array(torsions["torsion_angles_sin_cos"])[0]
    rotation, translation = quat_affine.make_transform_from_reference(
        n_xyz=atom37[:, 0], ca_xyz=atom37[:, 1], c_xyz=atom37[:, 2]
    )
    backbone = quat_affine.QuatAffine(
        quaternion=quat_affine.rot_to_quat(rotation, unstack_inputs=True),
        translation=translation,
        rotation=rotation,
        unstack_inputs=True,
    )
    glycine = aatype == residue_constants.restype_order["G"]
    features = {
        "aatype": aatype,
        "seq_mask": np.ones(length, np.float32),
        "residue_index": np.arange(length),
        "atom14_atom_exists": residue_constants.restype_atom14_mask[aatype].astype(np.float32),
        "atom37_atom_exists": residue_constants.restype_atom37_mask[aatype].astype(np.float32),
        "residx_atom14_to_atom37": all_atom_indices(aatype),
        "atom14_gt_positions": clean,
        "atom14_gt_exists": mask,
        "atom14_alt_gt_positions": np.einsum("nij,nic->njc", renaming, clean),
        "atom14_alt_gt_exists": np.einsum("nij,ni->nj", renaming, mask),
        "atom14_atom_is_ambiguous": ambiguous(aatype),
        "backbone_affine_tensor": backbone.to_tensor(),
        "backbone_affine_mask": mask37[:, 0] * mask37[:, 1] * mask37[:, 2],
        "use_clamped_fape": clamped,
        "rigidgroups_gt_frames": frames["rigidgroups_gt_frames"],
        "rigidgroups_gt_exists": frames["rigidgroups_gt_exists"],
        "rigidgroups_alt_gt_frames": frames["rigidgroups_alt_gt_frames"],
        "chi_mask": np.array(torsions["torsion_angles_mask"])[0, :, 3:],
        "chi_angles": np.arctan2(sin_cos[:, 3:, 0], sin_cos[:, 3:, 1]),
        "all_atom_positions": atom37,
        "all_atom_mask": mask37,
        "pseudo_beta": np.where(glycine[:, None], clean[:, 1], clean[:, 4]),
        "pseudo_beta_mask": np.where(glycine, mask[:, 1], mask[:, 4]),
    }
    return Labels(features, backbone, torsions, atom37, mask37)


def all_atom_indices(aatype: np.ndarray) -> np.ndarray:
    """Return the atom37 index of each atom14 slot, [N, 14]."""
    table = np.zeros((21, 14), np.int64)
    for code, letter in enumerate(residue_constants.restypes):
        names = residue_constants.restype_name_to_atom14_names[residue_constants.restype_1to3[letter]]
        table[code] = [residue_constants.atom_order[name] if name else 0 for name in names]
    return table[aatype]


def ambiguous(aatype: np.ndarray) -> np.ndarray:
    """Return 1 for atoms with a symmetric partner, [N, 14]."""
    table = np.zeros((21, 14), np.float32)
    for name, swaps in residue_constants.residue_atom_renaming_swaps.items():
        code = residue_constants.restype_order[residue_constants.restype_3to1[name]]
        names = residue_constants.restype_name_to_atom14_names[name]
        for pair in swaps.items():
            table[code, [names.index(atom) for atom in pair]] = 1.0
    return table[aatype]
