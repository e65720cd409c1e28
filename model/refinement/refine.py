"""Regular peptide bonds and no overlapping atoms, close to the predicted structure.

Small networks place residues about right, but leave bonds between them too long or too short, and atoms on
top of each other. `refine` moves the residues by the gradient of an energy with four terms:

- bonds: squared errors of the lengths and angles of peptide bonds, and of the CA–CA distance;
- restraints: errors of the distances of CA atoms that were within 15 Å, so that the fold is kept;
- clashes: overlaps of atoms of different residues, weighted more and more.

Residues keep their ideal bond lengths and angles: they move as rigid bodies, with psi and chi angles free.
The result depends on the structure alone. There is no force field and no solvent: `--num-relax` has these.
"""

from dataclasses import replace

import numpy as np

from model import residue_constants
from model.prediction import Prediction
from model.refinement.kernels import CA, OXYGEN, C, N, Terms, Weights, refine_atoms
from model.structure import Structure
from msa.base.residues import ATOM14_NAMES, RESTYPE_NAMES, RESTYPES

# chosen on structures of chains that are in no held-out set (docs/compact-network.md)
WEIGHTS = Weights(
    steps=600,
    step_size=0.1,
    bond=3.0,
    restraint=0.1,
    clash=30.0,
    linear_clash=1.0,
    overlap=1.2,
    pair_interval=20,
)
RADIUS = 15.0  # Å, of CA distances that are kept
MIN_SEPARATION = 3  # residues, of these distances
CIS_BELOW = 3.4  # Å: bonds before proline whose CA atoms are closer are cis
# CA–CA distances of cis and trans bonds, Å
CIS, TRANS = 2.95, 3.80
# bond lengths within residues, Å
CA_C, N_CA, C_O = 1.526, 1.459, 1.231
O_C_N = -0.5388  # cosine of the angle
PROLINE = RESTYPES.index("P")
CYSTEINE = RESTYPES.index("C")


def refine(prediction: Prediction, weights: Weights = WEIGHTS) -> Prediction:
    """Return a prediction with its structure refined; its confidence stays that of the network.

    It has any number of chains; the structures after its passes are refined as well.
    """
    passes = tuple(
        replace(each, positions=_refine(prediction.structure, each.positions, weights))
        for each in prediction.passes
    )
    positions = _refine(prediction.structure, prediction.positions, weights)
    return replace(prediction, positions=positions, passes=passes)


def _refine(structure: Structure, positions: np.ndarray, weights: Weights) -> np.ndarray:
    """Return refined positions [A, 3] of the atoms of proteins."""
    aatype, rows = structure.aatype, structure.atom_residue
    slots = residue_constants.atom37_to_atom14()[aatype[rows], structure.atom37]
    atoms = np.zeros((len(aatype), 14, 3))
    atoms[rows, slots] = positions
    refine_atoms(atoms, make_terms(atoms, aatype, bonded_residues(structure)), weights)
    refined: np.ndarray = atoms[rows, slots].astype(positions.dtype)
    return refined


def bonded_residues(structure: Structure) -> np.ndarray:
    """Return whether each residue is bonded to the previous one, [R] bool."""
    bonded: np.ndarray = np.diff(structure.residue_number, prepend=-1) == 1
    return bonded & (np.diff(structure.residue_chain, prepend=0) == 0)


def make_terms(atoms: np.ndarray, aatype: np.ndarray, bonded: np.ndarray) -> Terms:
    """Return the terms of the energy of a predicted structure, atoms [N, 14, 3] float64 in Å with aatype [N].

    `bonded` [N] is True where a residue is bonded to the previous one.
    """
    count = residue_constants.atom14_mask()[aatype].sum(axis=1).astype(np.int64)
    bonded = bonded & (count > 0) & np.concatenate([[False], count[:-1] > 0])
    axes, moved = turns()
    bonds, lengths = _peptide_bonds(atoms, aatype, bonded)
    near, distances = _near(atoms[:, CA], count > 0)
    return Terms(
        num_atoms=count,
        bonded=bonded,
        radius=residue_constants.vdw_radii()[aatype].astype(np.float64),
        axes=axes[aatype],
        moved=moved[aatype],
        bonds=bonds,
        bond_lengths=lengths,
        near=near,
        near_distances=distances,
        is_cysteine=aatype == CYSTEINE,
    )


def turns() -> tuple[np.ndarray, np.ndarray]:
    """Return the axes of psi and chi1 to chi4 by residue type, and the atoms that turn about them.

    Axes are the slots of two atoms [21, 5, 2] int64, equal if there is none; the atoms that turn are [21, 5,
    14] bool.
    """
    axes, moved = np.zeros((21, 5, 2), np.int64), np.zeros((21, 5, 14), bool)
    groups, exists = residue_constants.atom14_rigid_group(), residue_constants.atom14_mask() > 0
    axes[: residue_constants.UNKNOWN, 0] = CA, C
    moved[: residue_constants.UNKNOWN, 0, OXYGEN] = True
    for code, name in enumerate(RESTYPE_NAMES[: residue_constants.UNKNOWN]):
        if code == PROLINE:
            continue  # its chi angles would open the ring
        names = ATOM14_NAMES[name]
        for chi, (_, first, second, _) in enumerate(residue_constants.CHI_ANGLES[name]):
            axes[code, 1 + chi] = names.index(first), names.index(second)
            moved[code, 1 + chi] = exists[code] & (groups[code] >= 4 + chi)
    return axes, moved


def _peptide_bonds(
    atoms: np.ndarray, aatype: np.ndarray, bonded: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the atoms [B, 4] of distances over peptide bonds, and their lengths and deviations [B, 2]."""
    second = np.flatnonzero(bonded)
    first = second - 1
    before_proline = (aatype[second] == PROLINE).astype(np.int64)
    c_n = np.array(residue_constants.BOND_LENGTH)[before_proline]
    alpha = np.linalg.norm(atoms[second, CA] - atoms[first, CA], axis=-1)
    is_cis = (before_proline == 1) & (alpha < CIS_BELOW)
    distances = (
        (C, N, c_n, 0.05),
        (CA, N, _third_side(CA_C, c_n, residue_constants.CA_C_N), 0.1),
        (C, CA, _third_side(c_n, N_CA, residue_constants.C_N_CA), 0.1),
        (OXYGEN, N, _third_side(C_O, c_n, O_C_N), 0.1),
        (CA, CA, np.where(is_cis, CIS, TRANS), 0.15),
    )
    bonds, lengths = [], []
    for a, b, length, deviation in distances:
        bonds.append(np.stack([first, np.full_like(first, a), second, np.full_like(first, b)], axis=1))
        lengths.append(np.stack([length, np.full_like(c_n, deviation)], axis=1))
    return np.concatenate(bonds), np.concatenate(lengths)


def _third_side(first: float | np.ndarray, second: float | np.ndarray, cosine: float) -> np.ndarray:
    """Return the third side of a triangle from two sides and the cosine of the angle between them."""
    return np.sqrt(first**2 + second**2 - 2 * first * second * cosine)


def _near(alpha: np.ndarray, exists: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of residues [D, 2] with CA atoms [N, 3] within RADIUS, and their distances [D]."""
    pairs = []
    for residue in np.flatnonzero(exists):
        later = residue + MIN_SEPARATION
        distance = np.linalg.norm(alpha[later:] - alpha[residue], axis=-1)
        partners = later + np.flatnonzero((distance < RADIUS) & exists[later:])
        pairs.append(np.stack([np.full_like(partners, residue), partners], axis=1))
    near = np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64)
    return near, np.linalg.norm(alpha[near[:, 0]] - alpha[near[:, 1]], axis=-1)
