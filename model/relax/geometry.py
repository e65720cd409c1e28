"""Geometry of a backbone that relaxation can make worse without violations, such as twisted peptides."""

import math
from dataclasses import dataclass
from itertools import pairwise

import gemmi
import numpy as np

from model.residue_constants import BOND_DEVIATION, BOND_LENGTH

_MAX_TWIST = 30.0  # degrees between omega and a planar peptide bond
_MAX_BOND_DEVIATIONS = 4  # 0.06 Å
# phi and psi, degrees, of almost all residues of crystal structures except glycine: extended, right-handed
# and left-handed; psi from -180 to -120 is also extended
_USUAL_REGIONS = (
    ((-180, -35), (45, 180)), ((-180, -35), (-180, -120)), ((-180, -30), (-120, 45)), ((25, 100), (-60, 100)),
)  # fmt: skip


@dataclass(frozen=True)
class BackboneGeometry:
    """Unusual geometry of one structure.

    Args:
        twisted: peptide bonds more than 30 degrees from planar.
        bonds: peptide bonds whose length is more than 4 standard deviations off.
        mirrored: residues of the wrong hand at CA.
        phi_psi: residues, except glycine, whose phi and psi are outside the usual regions.
        longest_bond: length of the longest peptide bond, Å.
    """

    twisted: int
    bonds: int
    mirrored: int
    phi_psi: int
    longest_bond: float

    def counts(self) -> dict[str, int | float]:
        """Return the values for JSON."""
        return {
            "twisted_peptides": self.twisted,
            "stretched_peptides": self.bonds,
            "mirrored_residues": self.mirrored,
            "phi_psi_outliers": self.phi_psi,
            "longest_peptide_bond": round(self.longest_bond, 3),
        }

    def describe(self) -> str:
        """Return the values in words."""
        return (
            f"{self.twisted} twisted peptides, {self.bonds} stretched "
            f"(longest C-N {self.longest_bond:.2f} Å), {self.mirrored} mirrored residues, "
            f" {self.phi_psi} unusual phi/psi"
        )

    def worse_than(self, before: "BackboneGeometry") -> list[str]:
        """Return what is worse than before, in words."""
        pairs = {
            "twisted peptides": (before.twisted, self.twisted),
            "stretched peptides": (before.bonds, self.bonds),
            "mirrored residues": (before.mirrored, self.mirrored),
            "unusual phi/psi": (before.phi_psi, self.phi_psi),
        }
        return [f"{name} {first} to {second}" for name, (first, second) in pairs.items() if second > first]


def backbone_geometry(chains: list[list[gemmi.Residue]]) -> BackboneGeometry:
    """Measure the backbone of a structure; consecutive residues of a chain are bonded."""
    twisted = bonds = mirrored = phi_psi = 0
    lengths = []
    for chain in chains:
        backbones = [_backbone(residue) for residue in chain]
        mirrored += sum(map(_is_mirrored, chain))
        for index, (first, second) in enumerate(pairwise(backbones)):
            omega = _dihedral(first[1], first[2], second[0], second[1])
            twisted += _MAX_TWIST < abs(omega) < 180 - _MAX_TWIST
            is_proline = chain[index + 1].name == "PRO"
            lengths.append(float(np.linalg.norm(second[0] - first[2])))
            limit = _MAX_BOND_DEVIATIONS * BOND_DEVIATION[is_proline]
            bonds += bool(abs(lengths[-1] - BOND_LENGTH[is_proline]) > limit)
            if index and chain[index].name != "GLY":
                phi = _dihedral(backbones[index - 1][2], *first)
                phi_psi += _is_unusual(phi, _dihedral(*first, second[0]))
    return BackboneGeometry(twisted, bonds, mirrored, phi_psi, max(lengths, default=0.0))


def _backbone(residue: gemmi.Residue) -> np.ndarray:
    """Return the positions of N, CA and C, which every residue of a segment has, [3, 3]."""
    return np.array([residue.find_atom(name, "*").pos.tolist() for name in ("N", "CA", "C")])


def _dihedral(*points: np.ndarray) -> float:
    """Return the dihedral angle of four points, degrees."""
    first, axis, last = np.diff(points, axis=0)
    before, after = np.cross(first, axis), np.cross(axis, last)
    sine = float(np.linalg.norm(axis) * (first @ after))
    return math.degrees(math.atan2(sine, float(before @ after)))


def _is_mirrored(residue: gemmi.Residue) -> bool:
    """Return whether the substituents of CA have the hand of a D-amino acid."""
    beta = residue.find_atom("CB", "*")
    if beta is None:
        return False
    nitrogen, alpha, carbon = _backbone(residue)
    sides = np.array([nitrogen, carbon, beta.pos.tolist()]) - alpha
    return bool(np.linalg.det(sides) < 0)


def _is_unusual(phi: float, psi: float) -> bool:
    """Return whether phi and psi, degrees, are outside the usual regions."""
    return not any(
        low <= phi <= high and first <= psi <= last for (low, high), (first, last) in _USUAL_REGIONS
    )
