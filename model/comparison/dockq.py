"""DockQ of the interface of two chains."""

import numpy as np

from model.comparison.chains import ChainPair
from model.comparison.scores import rmsd, superpose, superposed_rmsd

_BACKBONE = ("N", "CA", "C", "O")
_CONTACT = 5.0  # Å, between heavy atoms
_INTERFACE = 10.0


def dockq(first: ChainPair, second: ChainPair) -> dict[str, float] | None:
    """Return DockQ, fnat, irms and lrms (Basu & Wallner 2016); None if the reference has no interface.

    The receptor is the longer chain. Residues that the model lacks lose their contacts.
    """
    if len(first.residues) < len(second.residues):
        first, second = second, first
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
    wide = _near(first.reference.residues, second.reference.residues, _INTERFACE)
    parts = []
    for side, pair in enumerate((first, second)):
        rows = np.isin(pair.residues[:, 1], [key[side] for key in wide])
        parts.append(ChainPair(pair.model, pair.reference, pair.residues[rows]).atoms(_BACKBONE))
    irms = superposed_rmsd(*(np.concatenate(xyz) for xyz in zip(*parts, strict=True)))
    rotation, shift = superpose(*first.atoms(_BACKBONE))
    moved, fixed = second.atoms(_BACKBONE)
    lrms = rmsd(moved @ rotation + shift, fixed)
    score = (fnat + 1 / (1 + (irms / 1.5) ** 2) + 1 / (1 + (lrms / 8.5) ** 2)) / 3
    return {"dockq": score, "fnat": fnat, "irms": irms, "lrms": lrms}


def _near(
    first: list[dict[str, np.ndarray]], second: list[dict[str, np.ndarray]], cutoff: float
) -> set[tuple[int, int]]:
    """Return pairs of residues with atoms closer than a cutoff."""
    other = np.array([xyz for residue in second for xyz in residue.values()]).reshape(-1, 3)
    owner = np.repeat(np.arange(len(second)), [len(residue) for residue in second])
    pairs = set()
    for i, residue in enumerate(first):
        xyz = np.array(list(residue.values())).reshape(-1, 1, 3)
        near = (np.linalg.norm(xyz - other, axis=-1) < cutoff).any(0)
        pairs |= {(i, int(j)) for j in owner[near]}
    return pairs
