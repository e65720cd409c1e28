"""DockQ of the interface of two chains."""

import numpy as np

from model.comparison.chains import Chain, ChainPair, Residue
from model.comparison.scores import distances
from model.comparison.superposition import rmsd, superpose, superposed_rmsd

# of proteins and nucleic acids, as in DockQ 2
_BACKBONE = (
    "N", "CA", "C", "O", "P", "OP1", "OP2", "O2'", "O3'", "O4'", "O5'", "C1'", "C2'", "C3'", "C4'", "C5'",
)  # fmt: skip
_CONTACT = 5.0  # Å, between heavy atoms
_INTERFACE = 10.0


def has_interface(first: Chain, second: Chain) -> bool:
    """Return True if two chains have atoms in contact."""
    return bool(_near(first.residues, second.residues, _CONTACT))


def dockq(first: ChainPair, second: ChainPair) -> dict[str, float] | None:
    """Return DockQ, fnat, F1 of contacts, irms and lrms (Basu & Wallner 2016; Mirabello & Wallner 2024).

    None if the reference has no interface. The receptor is the longer chain of the reference. Residues that
    the model lacks lose their contacts.
    """
    expected = _near(first.reference.residues, second.reference.residues, _CONTACT)
    if not expected:
        return None
    a, b = dict(first.residues.tolist()), dict(second.residues.tolist())
    found = {
        (a[i], b[j])
        for i, j in _near(first.model.residues, second.model.residues, _CONTACT)
        if i in a and j in b
    }
    fnat = len(expected & found) / len(expected)
    paired = [set(pair.residues[:, 1].tolist()) for pair in (first, second)]
    wide = [
        (i, j)
        for i, j in _near(first.reference.residues, second.reference.residues, _INTERFACE)
        if i in paired[0] and j in paired[1]
    ]
    parts = []
    for side, pair in enumerate((first, second)):
        rows = np.isin(pair.residues[:, 1], [key[side] for key in wide])
        parts.append(ChainPair(pair.model, pair.reference, pair.residues[rows]).atoms(_BACKBONE))
    irms = superposed_rmsd(*(np.concatenate(xyz) for xyz in zip(*parts, strict=True)))
    if len(first.reference) <= len(second.reference):
        first, second = second, first
    rotation, shift = superpose(*first.atoms(_BACKBONE))
    moved, fixed = second.atoms(_BACKBONE)
    lrms = rmsd(moved @ rotation + shift, fixed)
    score = (fnat + _closeness(irms, 1.5) + _closeness(lrms, 8.5)) / 3
    f1 = 2 * len(expected & found) / (len(expected) + len(found))
    return {"dockq": score, "fnat": fnat, "f1": f1, "irms": irms, "lrms": lrms}


def _closeness(value: float, scale: float) -> float:
    """Return the term of an RMSD; 0 if there is none, without atoms to superpose."""
    return 0.0 if np.isnan(value) else 1 / (1 + (value / scale) ** 2)


def _near(first: list[Residue], second: list[Residue], cutoff: float) -> set[tuple[int, int]]:
    """Return pairs of residues with atoms closer than a cutoff."""
    sides = [
        np.array([xyz for residue in side for xyz in residue.values()]).reshape(-1, 3)
        for side in (first, second)
    ]
    owners = [np.repeat(np.arange(len(side)), [len(residue) for residue in side]) for side in (first, second)]
    for k in (0, 1):  # only atoms near the box around the other chain
        other = sides[1 - k]
        if not len(other):
            return set()
        inside = ((sides[k] > other.min(0) - cutoff) & (sides[k] < other.max(0) + cutoff)).all(1)
        sides[k], owners[k] = sides[k][inside], owners[k][inside]
    pairs: set[tuple[int, int]] = set()
    for i in np.unique(owners[0]).tolist():
        near = (distances(sides[0][owners[0] == i], sides[1]) < cutoff).any(0)
        pairs |= {(i, j) for j in np.unique(owners[1][near]).tolist()}
    return pairs
