"""Violations of a structure as DeepMind's code counts them: peptide bonds, their angles, and clashes."""

from dataclasses import dataclass

import gemmi
import numpy as np

from model.residue_constants import (
    BOND_DEVIATION,
    BOND_LENGTH,
    C_N_CA,
    C_N_CA_DEVIATION,
    CA_C_N,
    CA_C_N_DEVIATION,
    OVERLAP_TOLERANCE,
    TOLERANCE_FACTOR,
    VDW_RADIUS,
)

_ATOMS_AT_ONCE = 512


@dataclass(frozen=True)
class StructureViolations:
    """The violations of one structure.

    Args:
        bonds: peptide bonds more than 12 standard deviations too long or too short.
        angles: angles at peptide bonds more than 12 standard deviations off.
        clashes: pairs of atoms of different residues that overlap by more than 1.5 Å.
        residues: indices of residues with a violation, in the order of the structure.
    """

    bonds: int
    angles: int
    clashes: int
    residues: frozenset[int]

    @property
    def total(self) -> int:
        """The number of violations."""
        return self.bonds + self.angles + self.clashes

    def counts(self) -> dict[str, int]:
        """Return the counts by kind."""
        return {"clashes": self.clashes, "bonds": self.bonds, "angles": self.angles}

    def describe(self) -> str:
        """Return the counts in words."""
        return f"{self.clashes} clashes, {self.bonds} bond lengths, {self.angles} angles"


def find_violations(chains: list[list[gemmi.Residue]]) -> StructureViolations:
    """Find the violations of heavy atoms; consecutive residues of a chain are bonded."""
    # values of the atoms of all residues
    positions, radii, residue_indices, names = [], [], [], []
    bonds = angles = 0
    violating: set[int] = set()
    bonded: set[tuple[int, int]] = set()
    index = 0
    for chain in chains:
        previous: gemmi.Residue | None = None
        for residue in chain:
            for atom in residue:
                radius = VDW_RADIUS.get(atom.element.name.upper())
                if radius is not None:
                    positions.append(atom.pos.tolist())
                    radii.append(radius)
                    residue_indices.append(index)
                    names.append(atom.name)
            if previous is not None:
                bonded.add((index - 1, index))
                bad_bond, bad_angles = _peptide_violations(previous, residue)
                bonds += bad_bond
                angles += bad_angles
                if bad_bond or bad_angles:
                    violating |= {index - 1, index}
            previous = residue
            index += 1
    pairs = _clashes(np.array(positions), np.array(radii), np.array(residue_indices), names, bonded)
    violating |= {index for pair in pairs for index in pair}
    return StructureViolations(bonds, angles, len(pairs), frozenset(violating))


def _peptide_violations(residue: gemmi.Residue, next_residue: gemmi.Residue) -> tuple[int, int]:
    """Return the number of wrong bond lengths (0 or 1) and angles (0 to 2) between two residues."""
    alpha, c = _position(residue, "CA"), _position(residue, "C")
    n, next_alpha = _position(next_residue, "N"), _position(next_residue, "CA")
    if c is None or n is None:
        return 0, 0
    is_proline = next_residue.name == "PRO"
    length = np.linalg.norm(n - c)
    bonds = abs(length - BOND_LENGTH[is_proline]) > TOLERANCE_FACTOR * BOND_DEVIATION[is_proline]
    angles = 0
    if alpha is not None:
        angles += abs(_cosine(alpha - c, n - c) - CA_C_N) > TOLERANCE_FACTOR * CA_C_N_DEVIATION
    if next_alpha is not None:
        angles += abs(_cosine(c - n, next_alpha - n) - C_N_CA) > TOLERANCE_FACTOR * C_N_CA_DEVIATION
    return int(bonds), int(angles)


def _position(residue: gemmi.Residue, name: str) -> np.ndarray | None:
    """Return the position of an atom, [3], or None if the residue does not have it."""
    atom = residue.find_atom(name, "*")
    return None if atom is None else np.array(atom.pos.tolist())


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def _clashes(
    positions: np.ndarray,
    radii: np.ndarray,
    residue_indices: np.ndarray,
    names: list[str],
    bonded: set[tuple[int, int]],
) -> list[tuple[int, int]]:
    """Return the residues of each clashing pair of atoms."""
    pairs = []
    for start in range(0, len(positions), _ATOMS_AT_ONCE):
        block = slice(start, start + _ATOMS_AT_ONCE)
        distance = np.linalg.norm(positions[block, None] - positions[None], axis=-1)
        limit = radii[block, None] + radii[None] - OVERLAP_TOLERANCE
        close = (distance < limit) & (residue_indices[block, None] < residue_indices[None])
        for i, j in np.argwhere(close).tolist():
            i += start
            residues = int(residue_indices[i]), int(residue_indices[j])
            is_peptide_bond = residues in bonded and (names[i], names[j]) == ("C", "N")
            may_be_disulfide = names[i] == names[j] == "SG"
            if not is_peptide_bond and not may_be_disulfide:
                pairs.append(residues)
    return pairs
