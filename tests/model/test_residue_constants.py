"""Tests of residue tables and of the atom positions built from them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model import residue_constants as rc
from model.alphafold2.modules.structure_module import (
    atom14_to_atom37_positions,
    frames_to_atom14_positions,
    torsion_angles_to_frames,
)
from model.alphafold2.modules.templates import torsion_angles
from model.layers.rigid import Rigid, rotation_from_quaternion
from msa.base.residues import ATOM14_NAMES, ATOM37, ATOM_ORDER, ELEMENTS, RESTYPE_NAMES, RESTYPES

# number of heavy atoms of each residue within a chain, from its chemical formula
COUNTS = (5, 11, 8, 8, 6, 9, 9, 4, 10, 8, 8, 9, 8, 11, 7, 6, 7, 14, 12, 7)
HEAVY_ATOMS = dict(zip("ARNDCQEGHILKMFPSTWYV", COUNTS, strict=True))

# side-chain bonds by residue
BONDS = {
    "ARG": "CB-CG CG-CD CD-NE NE-CZ CZ-NH1 CZ-NH2",
    "ASN": "CB-CG CG-OD1 CG-ND2",
    "ASP": "CB-CG CG-OD1 CG-OD2",
    "CYS": "CB-SG",
    "GLN": "CB-CG CG-CD CD-OE1 CD-NE2",
    "GLU": "CB-CG CG-CD CD-OE1 CD-OE2",
    "HIS": "CB-CG CG-ND1 CG-CD2 ND1-CE1 CD2-NE2 CE1-NE2",
    "ILE": "CB-CG1 CB-CG2 CG1-CD1",
    "LEU": "CB-CG CG-CD1 CG-CD2",
    "LYS": "CB-CG CG-CD CD-CE CE-NZ",
    "MET": "CB-CG CG-SD SD-CE",
    "PHE": "CB-CG CG-CD1 CG-CD2 CD1-CE1 CD2-CE2 CE1-CZ CE2-CZ",
    "PRO": "CB-CG CG-CD",
    "SER": "CB-OG",
    "THR": "CB-OG1 CB-CG2",
    "TRP": "CB-CG CG-CD1 CG-CD2 CD1-NE1 NE1-CE2 CD2-CE2 CD2-CE3 CE2-CZ2 CE3-CZ3 CZ2-CH2 CZ3-CH2",
    "TYR": "CB-CG CG-CD1 CG-CD2 CD1-CE1 CD2-CE2 CE1-CZ CE2-CZ CZ-OH",
    "VAL": "CB-CG1 CB-CG2",
}
# shortest (double, aromatic) and longest (single) bond length in Å, by the elements bonded
LENGTHS = {"CC": (1.33, 1.56), "CN": (1.28, 1.50), "CO": (1.20, 1.45), "CS": (1.76, 1.84)}


def build_residues(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Build all 20 residues with random backbones and torsion angles.

    Returns:
        Positions [20, 37, 3], atom mask [20, 37], and sine and cosine of the torsion angles [20, 7, 2].
    """
    generator = torch.Generator().manual_seed(seed)
    aatype = torch.arange(20)
    quaternion = torch.randn(20, 4, generator=generator)
    rotation = rotation_from_quaternion(quaternion / quaternion.norm(dim=-1, keepdim=True))
    backbone = Rigid(rotation, 10 * torch.randn(20, 3, generator=generator))
    angles = 2 * np.pi * torch.rand(20, 7, generator=generator)
    sin_cos = torch.stack([angles.sin(), angles.cos()], dim=-1)
    frames = torsion_angles_to_frames(aatype, backbone, sin_cos)
    positions, mask = atom14_to_atom37_positions(aatype, frames_to_atom14_positions(aatype, frames))
    return positions, mask, sin_cos


def test_residues_have_the_right_number_of_atoms() -> None:
    assert len(ATOM37) == 37 and len(set(ATOM37)) == 37
    assert all(ELEMENTS[atom] == atom[0] in "NCOS" for atom in ATOM37)
    assert [*RESTYPE_NAMES[:20]] == sorted(RESTYPE_NAMES[:20])
    for code, letter in enumerate(RESTYPES):
        assert rc.atom37_mask()[code].sum() == rc.atom14_mask()[code].sum() == HEAVY_ATOMS[letter]
    assert rc.atom37_mask()[rc.UNKNOWN].sum() == rc.atom14_mask()[rc.UNKNOWN].sum() == 0


def test_absent_atoms_are_at_the_origin() -> None:
    positions, mask, _ = build_residues(seed=0)
    assert not positions[mask == 0].any()


def test_atom_index_tables_are_inverses() -> None:
    for code in range(21):
        for atom in np.flatnonzero(rc.atom37_mask()[code]):
            names = ATOM14_NAMES[RESTYPE_NAMES[code]]
            assert ATOM_ORDER[names[rc.atom37_to_atom14()[code, atom]]] == atom


def test_tables_equal_deepminds_features(parity_data: object) -> None:
    with np.load(parity_data.DATA / "model_1_features.npz") as features:  # type: ignore[attr-defined]
        aatype = features["aatype"][0]
        assert len(set(aatype)) > 15
        for name, table in [
            ("atom14_atom_exists", rc.atom14_mask()),
            ("atom37_atom_exists", rc.atom37_mask()),
            ("residx_atom37_to_atom14", rc.atom37_to_atom14()),
        ]:
            assert np.array_equal(table[aatype], features[name][0]), name


@given(st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_bonds_have_chemical_lengths(seed: int) -> None:
    positions, _, _ = build_residues(seed)
    for code, name in enumerate(RESTYPE_NAMES[:20]):
        atoms = {atom: positions[code, ATOM_ORDER[atom]] for atom in ATOM14_NAMES[name]}
        assert (atoms["N"] - atoms["CA"]).norm().item() == pytest.approx(1.46, abs=0.02)
        assert (atoms["C"] - atoms["CA"]).norm().item() == pytest.approx(1.525, abs=0.02)
        assert (atoms["C"] - atoms["O"]).norm().item() == pytest.approx(1.23, abs=0.01)
        bonds = BONDS.get(name, "").split() + (["CA-CB"] if name != "GLY" else [])
        # the CD-N bond of proline is left out: its ring only closes for certain torsion angles
        assert {atom for bond in bonds for atom in bond.split("-")} >= atoms.keys() - {"N", "CA", "C", "O"}
        for bond in bonds:
            first, second = bond.split("-")
            low, high = LENGTHS["".join(sorted((first[0], second[0])))]
            assert low < (atoms[first] - atoms[second]).norm().item() < high, (name, bond)


@given(st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_torsion_angles_are_recovered_from_atoms(seed: int) -> None:
    positions, mask, sin_cos = build_residues(seed)
    torsions = torsion_angles(torch.arange(20)[None], positions[None], mask[None])
    exists = torsions.mask[0].bool()  # [20, 7]
    assert torch.equal(exists[:, 3:], torch.from_numpy(rc.chi_mask())[:20].bool())
    assert exists[:, 2].all() and not exists[0, :2].any()
    # omega and phi depend on the random positions of the backbones
    compared = exists.clone()
    compared[:, :2] = False
    assert torch.allclose(torsions.sin_cos[0][compared], sin_cos[compared], atol=2e-3)
    periodic = torch.from_numpy(rc.chi_pi_periodic())[:20].bool()
    assert periodic.sum() == 4
    alternative = torsions.alternative_sin_cos[0]
    assert torch.equal(alternative[:, 3:][periodic], -torsions.sin_cos[0][:, 3:][periodic])
    assert torch.equal(alternative[:, 3:][~periodic], torsions.sin_cos[0][:, 3:][~periodic])


def test_omega_and_phi_use_the_previous_residue() -> None:
    # N, CA, C of two residues: a trans peptide bond and phi = 90°
    positions, mask = torch.zeros(1, 2, 37, 3), torch.zeros(1, 2, 37)
    mask[..., :3] = 1
    positions[0, 0, :3] = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    positions[0, 1, :3] = torch.tensor([[1.0, -1.0, 0.0], [2.0, -1.0, 0.0], [2.0, -1.0, 1.0]])
    torsions = torsion_angles(torch.zeros(1, 2, dtype=torch.long), positions, mask)
    assert torsions.mask[0, 1, :3].tolist() == [1, 1, 0]
    omega, phi = torsions.sin_cos[0, 1, :2]
    assert torch.allclose(omega, torch.tensor([0.0, -1.0]), atol=1e-5)
    # seen from N, C is a quarter turn clockwise of the previous residue's C
    assert torch.allclose(phi, torch.tensor([1.0, 0.0]), atol=1e-5)


def test_unknown_residues_have_no_atoms() -> None:
    aatype = torch.tensor([rc.UNKNOWN, 0])
    zero_angles = torch.tensor([0.0, 1.0]).expand(2, 7, 2)
    frames = torsion_angles_to_frames(
        aatype, Rigid(torch.eye(3).expand(2, 3, 3), torch.ones(2, 3)), zero_angles
    )
    positions, mask = atom14_to_atom37_positions(aatype, frames_to_atom14_positions(aatype, frames))
    assert not mask[0].any() and not positions[0].any()
    assert mask[1].sum() == 5 and positions[1, rc.CA].tolist() == [1, 1, 1]
