"""Network features and targets of the losses, made on the device from a batch of compact arrays.

B is the batch, N the residues, S the clustered rows, E the extra rows, T the template slots.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F

from model import residue_constants, residue_tables
from model.alphafold2.modules.embedders import distance_bins, pseudo_beta
from model.alphafold2.modules.structure_module import atom14_to_atom37_positions
from model.alphafold2.modules.templates import PSI, TEMPLATE_BINS, torsion_angles
from model.layers import rigid
from model.layers.rigid import Rigid, frame_from_points, rotation_from_quaternion, update_quaternion
from model.residue_tables import residue_rows
from model.training.data.data import CENTI
from msa.base.residues import ATOM14_NAMES, GAP, NUM_CODES, NUM_MASKED_CODES, RESTYPE_NAMES, RESTYPES, UNKNOWN

Batch = Mapping[str, torch.Tensor]
# pairs of atoms of a residue that are equivalent, so that their names may be exchanged
SYMMETRIC_ATOMS = {
    "ASP": (("OD1", "OD2"),),
    "GLU": (("OE1", "OE2"),),
    "PHE": (("CD1", "CD2"), ("CE1", "CE2")),
    "TYR": (("CD1", "CD2"), ("CE1", "CE2")),
}


def network_features(batch: Batch, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Make the features of `model.training.alphafold2.network.run_network`, the largest of them of a dtype.

    The batch has the arrays of `model.training.data.sampling`, on the device.

    Returns:
        aatype and residue_index [B, N] int64; seq_mask [B, N], target_feat [B, N, 22], msa_feat
        [B, S, N, 49], msa_mask [B, S, N], extra_msa_feat [B, E, N, 25], extra_msa_mask [B, E, N], and with
        template slots template_mask [B, T], template_pair_feat [B, T, N, N, 88], template_torsions
        [B, T, N, 57], template_torsion_mask [B, T, N].
    """
    aatype, seq_mask = batch["aatype"].long(), batch["seq_mask"].float()
    length = aatype.shape[1]
    # the first of the 22 marks a domain boundary, which no training chain has
    target_feat = F.pad(F.one_hot(aatype, UNKNOWN + 1).float(), (1, 0))
    features = {
        "aatype": aatype,
        "seq_mask": seq_mask,
        "residue_index": torch.arange(length, device=aatype.device).expand_as(aatype),
        "target_feat": target_feat,
        "msa_mask": batch["row_mask"].float()[:, :, None] * seq_mask[:, None],
        "extra_msa_mask": batch["extra_row_mask"].float()[:, :, None] * seq_mask[:, None],
        "msa_feat": _msa_features(batch, seq_mask, dtype),
        # no deletions are known
        "extra_msa_feat": F.pad(F.one_hot(batch["extra_msa"].long(), NUM_MASKED_CODES).to(dtype), (0, 2)),
    }
    if batch["template_mask"].shape[1]:
        features |= template_features(batch, dtype)
    return features


def _msa_features(batch: Batch, seq_mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return [B, S, N, 49]: residue, two deletion features, cluster profile, mean deletions (all zero).

    Every extra row belongs to the cluster of the row that it agrees with in most residues; gaps and masked
    positions agree with nothing (supplement, section 1.2.7).
    """
    msa = F.one_hot(batch["masked_msa"].long(), NUM_MASKED_CODES).float() * seq_mask[:, None, :, None]
    extra = F.one_hot(batch["extra_msa"].long(), NUM_MASKED_CODES).float() * seq_mask[:, None, :, None]
    extra = extra * batch["extra_row_mask"].float()[..., None, None]
    rows = msa.shape[1]
    agreement = msa[..., :GAP].flatten(2) @ extra[..., :GAP].flatten(2).transpose(1, 2)  # [B, S, E]
    agreement = agreement - 1e9 * (1.0 - batch["row_mask"].float()[:, :, None])
    # among equally similar rows, the first wins
    agreement = agreement - torch.arange(rows, device=msa.device)[:, None] / (2 * rows)
    assigned = F.one_hot(agreement.argmax(dim=1), rows).float()  # [B, E, S]
    assigned = assigned * batch["extra_row_mask"].float()[..., None]
    counts = msa + (assigned.transpose(1, 2) @ extra.flatten(2)).view_as(msa)
    profile = counts / (1.0 + 1e-6 + assigned.sum(dim=1))[..., None, None]
    zeros = msa.new_zeros(*msa.shape[:-1], 2)
    return torch.cat([msa, zeros, profile, zeros[..., :1]], dim=-1).to(dtype)


def template_features(batch: Batch, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Make the features of `network_features` that begin with `template_`."""
    aatype = batch["template_aatype"].long()  # [B, T, N]
    present = unpack_atoms(batch["template_atom_bits"])  # [B, T, N, 14]
    atom14 = batch["template_atom14"].float() * CENTI
    shape = aatype.shape
    known = aatype.clip(max=residue_constants.UNKNOWN).flatten(0, 1)  # [B*T, N]
    flat = known.flatten()
    atoms, _ = atom14_to_atom37_positions(flat, atom14.flatten(0, 2))  # [B*T*N, 37, 3]
    slots = residue_rows(residue_constants.atom37_to_atom14, flat)
    mask = torch.gather(present.flatten(0, 2), 1, slots) * residue_rows(residue_constants.atom37_mask, flat)
    atoms = atoms * mask[..., None]
    torsions = torsion_angles(known, atoms.view(*known.shape, 37, 3), mask.view(*known.shape, 37))
    types = F.one_hot(aatype, NUM_CODES).float()  # [B, T, N, 22]
    angles = (x.flatten(-2) for x in (torsions.sin_cos, torsions.alternative_sin_cos))
    torsion_mask = torsions.mask.unflatten(0, shape[:2])  # [B, T, N, 7]
    rows = [types, *(x.unflatten(0, shape[:2]) for x in angles), torsion_mask]
    atoms, mask = atoms.view(*shape, 37, 3), mask.view(*shape, 37)
    beta, beta_mask = pseudo_beta(aatype, atoms), pseudo_beta(aatype, mask[..., None])[..., 0]
    n, ca, c = residue_constants.N, residue_constants.CA, residue_constants.C
    backbone = mask[..., n] * mask[..., ca] * mask[..., c]  # [B, T, N]
    pairs = (*shape, shape[-1])
    backbone_pairs = (backbone[..., :, None] * backbone[..., None, :])[..., None].to(dtype)
    pair_features = torch.cat(
        [
            distance_bins(beta, *TEMPLATE_BINS).to(dtype),
            (beta_mask[..., :, None] * beta_mask[..., None, :])[..., None].to(dtype),
            types[..., None, :, :].to(dtype).expand(*pairs, -1),
            types[..., :, None, :].to(dtype).expand(*pairs, -1),
            # directions are not used, as in the published networks
            backbone_pairs.new_zeros(*pairs, 3),
            backbone_pairs,
        ],
        dim=-1,
    )
    return {
        "template_mask": batch["template_mask"].float(),
        "template_pair_feat": pair_features * backbone_pairs,
        "template_torsions": torch.cat(rows, dim=-1),
        "template_torsion_mask": torsion_mask[..., PSI],
    }


def unpack_atoms(bits: torch.Tensor) -> torch.Tensor:
    """Return masks [..., 14] float32 of atom bits [...] int16."""
    shifts = torch.arange(14, dtype=torch.int32, device=bits.device)
    return ((bits.int()[..., None] >> shifts) & 1).float()


@dataclass(frozen=True)
class Targets:
    """The experimental structure in the form that the losses need; float32 unless said otherwise.

    Args:
        aatype: [B, N] int64.
        seq_mask: [B, N], 1 for residues, 0 for padding.
        bonded: [B, N], 1 where the residue is bonded to the previous one.
        atom14: [B, N, 14, 3], Å.
        atom14_mask: [B, N, 14], 1 for atoms with known positions.
        alternative_atom14, alternative_mask: the same with the names of symmetric atoms exchanged.
        ambiguous: [B, N, 14], 1 for atoms that have a symmetric partner.
        frames: the eight rigid groups, of shape [B, N, 8].
        alternative_frames: the same after the exchange of names.
        frames_mask: [B, N, 8], 1 where all atoms that define a group are known.
        chi_sin_cos, alternative_chi_sin_cos: [B, N, 4, 2], before and after the exchange of names.
        chi_mask: [B, N, 4].
        beta, beta_mask: [B, N, 3] and [B, N], CB, or CA for glycine.
        clamped: [B], 1 for samples whose backbone FAPE is clamped.
        full_atom: [B], 0 for samples without side chains.
        true_msa: [B, S, N] int64.
        bert_mask: [B, S, N], 1 for positions to be restored.
    """

    aatype: torch.Tensor
    seq_mask: torch.Tensor
    bonded: torch.Tensor
    atom14: torch.Tensor
    atom14_mask: torch.Tensor
    alternative_atom14: torch.Tensor
    alternative_mask: torch.Tensor
    ambiguous: torch.Tensor
    frames: Rigid
    alternative_frames: Rigid
    frames_mask: torch.Tensor
    chi_sin_cos: torch.Tensor
    alternative_chi_sin_cos: torch.Tensor
    chi_mask: torch.Tensor
    beta: torch.Tensor
    beta_mask: torch.Tensor
    clamped: torch.Tensor
    full_atom: torch.Tensor
    true_msa: torch.Tensor
    bert_mask: torch.Tensor

    @property
    def backbone(self) -> Rigid:
        """Backbone frames, of shape [B, N]."""
        return self.frames[:, :, 0]

    @property
    def backbone_mask(self) -> torch.Tensor:
        """[B, N], 1 where N, CA and C are known."""
        return self.frames_mask[..., 0]


def make_targets(batch: Batch) -> Targets:
    """Make the targets of a batch of compact arrays on the device."""
    aatype, seq_mask = batch["aatype"].long(), batch["seq_mask"].float()
    atom14 = batch["atom14"].float() * CENTI
    mask = unpack_atoms(batch["atom_bits"]) * seq_mask[..., None]
    partners = residue_rows(symmetric_partners, aatype)  # [B, N, 14]
    alternative = torch.gather(atom14, 2, partners[..., None].expand(-1, -1, -1, 3))
    frames, frames_mask = rigid_groups(aatype, atom14, mask)
    signs = residue_rows(symmetry_signs, aatype)  # [B, N, 8, 3]
    alternative_frames = Rigid(frames.rotation * signs[..., None, :], frames.translation)
    chi_sin_cos, chi_mask = _chi_angles(aatype, atom14, mask)
    periodic = residue_rows(residue_constants.chi_pi_periodic, aatype)[..., None]
    is_glycine = aatype == RESTYPES.index("G")
    slot = torch.where(is_glycine, 1, 4)[..., None]  # CA or CB
    return Targets(
        aatype=aatype,
        seq_mask=seq_mask,
        bonded=(1.0 - batch["break_before"].float()) * seq_mask,
        atom14=atom14,
        atom14_mask=mask,
        alternative_atom14=alternative,
        alternative_mask=torch.gather(mask, 2, partners),
        ambiguous=(partners != torch.arange(14, device=aatype.device)).float(),
        frames=frames,
        alternative_frames=alternative_frames,
        frames_mask=frames_mask,
        chi_sin_cos=chi_sin_cos,
        alternative_chi_sin_cos=chi_sin_cos * (1.0 - 2.0 * periodic),
        chi_mask=chi_mask,
        beta=torch.gather(atom14, 2, slot[..., None].expand(-1, -1, -1, 3)).squeeze(2),
        beta_mask=torch.gather(mask, 2, slot).squeeze(2),
        clamped=batch["clamped"].float(),
        full_atom=batch["full_atom"].float(),
        true_msa=batch["true_msa"].long(),
        bert_mask=batch["bert_mask"].float(),
    )


def rigid_groups(
    aatype: torch.Tensor, atom14: torch.Tensor, mask: torch.Tensor
) -> tuple[Rigid, torch.Tensor]:
    """Return the frames of the eight rigid groups and their mask, of shape [B, N, 8].

    Inputs are aatype int64 [B, N], atom14 [B, N, 14, 3], Å, and mask [B, N, 14].
    """
    atoms = residue_rows(group_atoms, aatype)  # [B, N, 8, 3]
    points = torch.gather(atom14, 2, atoms.flatten(2)[..., None].expand(-1, -1, -1, 3))
    first, origin, second = points.unflatten(2, (8, 3)).unbind(dim=-2)  # each [B, N, 8, 3]
    frames = frame_from_points(first, origin, second)
    known = torch.gather(mask, 2, atoms.flatten(2)).unflatten(2, (8, 3)).amin(dim=-1)
    # The x axis of a backbone frame points to C, those of the other groups away from the previous atom. The
    # signs are computed on the device, because a captured CUDA graph may not copy them there.
    group, axis = torch.arange(8, device=atom14.device)[:, None], torch.arange(3, device=atom14.device)
    signs = torch.where((group == 0) & (axis != 1), -1.0, 1.0)  # [8, 3]
    return Rigid(frames.rotation * signs[:, None], origin), known * residue_rows(group_exists, aatype)


def _chi_angles(
    aatype: torch.Tensor, atom14: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sine and cosine [B, N, 4, 2] and mask [B, N, 4] of the chi angles."""
    flat = aatype.flatten()
    atoms, _ = atom14_to_atom37_positions(flat, atom14.flatten(0, 1))
    slots = residue_rows(residue_constants.atom37_to_atom14, flat)
    known = torch.gather(mask.flatten(0, 1), 1, slots) * residue_rows(residue_constants.atom37_mask, flat)
    shape = aatype.shape
    torsions = torsion_angles(aatype, atoms.view(*shape, 37, 3), known.view(*shape, 37))
    return torsions.sin_cos[..., 3:, :], torsions.mask[..., 3:]


@cache
def symmetric_partners() -> np.ndarray:
    """Return the slot of each atom's symmetric partner, or its own slot without one, [21, 14] int64."""
    table = np.tile(np.arange(14), (21, 1))
    for name, pairs in SYMMETRIC_ATOMS.items():
        atoms = ATOM14_NAMES[name]
        for pair in pairs:
            first, second = (atoms.index(atom) for atom in pair)
            code = RESTYPE_NAMES.index(name)
            table[code, first], table[code, second] = second, first
    return table


@cache
def symmetry_signs() -> np.ndarray:
    """Return the signs of each frame's axes after symmetric atoms swap their names, [21, 8, 3] float32."""
    table = np.ones((21, 8, 3), np.float32)
    for name, chi in residue_constants.PI_PERIODIC_CHI:
        table[RESTYPE_NAMES.index(name), 4 + chi, 1:] = -1.0
    return table


@cache
def group_atoms() -> np.ndarray:
    """Return the slots of the atoms that define each group, for `frame_from_points`, [21, 8, 3] int64."""
    table = np.zeros((21, 8, 3), np.int64)
    for code, name in enumerate(RESTYPE_NAMES[: residue_constants.UNKNOWN]):
        atoms = ATOM14_NAMES[name]
        table[code, 0] = [atoms.index(atom) for atom in ("C", "CA", "N")]
        table[code, 3] = [atoms.index(atom) for atom in ("CA", "C", "O")]
        for chi, chi_atoms in enumerate(residue_constants.CHI_ANGLES[name]):
            table[code, 4 + chi] = [atoms.index(atom) for atom in chi_atoms[1:]]
    return table


@cache
def group_exists() -> np.ndarray:
    """Return 1 for groups that heavy atoms define, otherwise 0, [21, 8] float32."""
    table = np.zeros((21, 8), np.float32)
    table[: residue_constants.UNKNOWN, [0, 3]] = 1.0
    table[:, 4:] = residue_constants.chi_mask()
    return table


def load_tables(device: torch.device) -> None:
    """Copy all tables to the device; autograd could not save tables copied in inference mode."""
    residue_tables.clear_device_tables()
    rigid.clear_device_tables()
    constants = residue_constants
    tables = (
        constants.atom14_mask,
        constants.atom37_mask,
        constants.atom37_to_atom14,
        constants.atom14_positions,
        constants.atom14_rigid_group,
        constants.default_frames,
        constants.chi_atoms,
        constants.chi_mask,
        constants.chi_pi_periodic,
        symmetric_partners,
        symmetry_signs,
        group_atoms,
        group_exists,
    )
    residue = torch.zeros(1, 1, dtype=torch.int64, device=device)
    for table in tables:
        residue_rows(table, residue)
    torsion_angles(residue, torch.zeros(1, 1, 37, 3, device=device), torch.zeros(1, 1, 37, device=device))
    quaternion = torch.zeros(1, 4, device=device)
    rotation_from_quaternion(quaternion)
    update_quaternion(quaternion, quaternion[:, 1:])
