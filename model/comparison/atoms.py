"""Atoms of a reference with those of a model, and the names that residues may exchange."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from model.comparison.chains import ChainPair, ComparedChain
from model.comparison.scores import RADIUS, THRESHOLDS, distances

# pairs of atoms whose names may be exchanged, by residue name
_AMBIGUOUS = {
    "ASP": [("OD1", "OD2")], "GLU": [("OE1", "OE2")], "PHE": [("CD1", "CD2"), ("CE1", "CE2")],
    "LEU": [("CD1", "CD2")], "ARG": [("NH1", "NH2")], "VAL": [("CG1", "CG2")],
    "TYR": [("CD1", "CD2"), ("CE1", "CE2")],
    **{name: [("OP1", "OP2")] for name in ("A", "C", "G", "U", "DA", "DC", "DG", "DT")},
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class PairedAtoms:
    """All atoms of the chains of a reference, with those of a model.

    Args:
        model: (N, 3), Å; NaN for atoms that the model lacks.
        reference: (N, 3), Å.
        residues: (N,), index of each atom's residue, over all chains.
        names: the name of each atom.
        is_trace: (N,), whether an atom is its residue's CA or C3'.
        swaps: for each residue with ambiguous names, the indices of its ambiguous atoms (K,), and of the same
            atoms with exchanged names.
    """

    model: np.ndarray
    reference: np.ndarray
    residues: np.ndarray
    names: list[str]
    is_trace: np.ndarray
    swaps: list[tuple[list[int], list[int]]]


def pair_atoms(pairs: list[ChainPair], reference: Iterable[ComparedChain]) -> PairedAtoms:
    """Return the atoms of the chains of a reference with those of a model."""
    partners = {(p.reference.name, int(j)): p.model.residues[i] for p in pairs for i, j in p.residues}
    missing = np.full(3, np.nan)
    names: list[str] = []
    model: list[np.ndarray] = []
    expected: list[np.ndarray] = []
    owners, is_trace, swaps = [], [], []
    number = 0
    for chain in reference:
        for index, (kind, residue) in enumerate(zip(chain.names, chain.residues, strict=True)):
            partner = partners.get((chain.name, index), {})
            place = {name: len(names) + k for k, name in enumerate(residue)}
            both = [pair for pair in _AMBIGUOUS.get(kind, ()) if place.keys() >= set(pair)]
            if both and partner:
                one = [place[name] for pair in both for name in pair]
                swaps.append((one, [place[name] for pair in both for name in pair[::-1]]))
            names += residue
            model += [partner.get(name, missing) for name in residue]
            expected += residue.values()
            owners += [number] * len(residue)
            is_trace += [name == chain.trace for name in residue]
            number += 1
    return PairedAtoms(
        np.array(model).reshape(-1, 3), np.array(expected).reshape(-1, 3), np.array(owners, int), names,
        np.array(is_trace, bool), swaps,
    )  # fmt: skip


def with_best_names(atoms: PairedAtoms) -> np.ndarray:
    """Return `atoms.model` with names exchanged where this preserves more distances to unambiguous atoms."""
    model = atoms.model.copy()
    certain = np.ones(len(model), bool)
    certain[[k for one, _ in atoms.swaps for k in one]] = False
    for one, other in atoms.swaps:
        center = atoms.reference[one[0]]
        near = certain & (np.abs(atoms.reference - center) < RADIUS + 5).all(1)
        near &= atoms.residues != atoms.residues[one[0]]
        expected = distances(atoms.reference[one], atoms.reference[near])
        counted = expected < RADIUS
        kept = [
            count_preserved(distances(atoms.model[order], atoms.model[near]), expected, counted)
            for order in (one, other)
        ]
        if kept[1] > kept[0]:
            model[one] = atoms.model[other]
    return model


def count_preserved(found: np.ndarray, expected: np.ndarray, counted: np.ndarray) -> int:
    """Return the number of distances of a mask that are preserved, summed over the thresholds of lDDT."""
    deviation = np.abs(found - expected)[counted]
    return sum(int((deviation < threshold).sum()) for threshold in THRESHOLDS)
