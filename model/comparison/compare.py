"""Comparison of one model with its reference."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from model.comparison.chains import ChainPair, ProteinChain, map_chains
from model.comparison.dockq import dockq
from model.comparison.scores import gdt, lddt, superposed_rmsd, tm_score

# pairs of atoms whose names may be exchanged, by residue letter
_AMBIGUOUS = {
    "D": [("OD1", "OD2")], "E": [("OE1", "OE2")], "F": [("CD1", "CD2"), ("CE1", "CE2")],
    "L": [("CD1", "CD2")], "R": [("NH1", "NH2")], "V": [("CG1", "CG2")],
    "Y": [("CD1", "CD2"), ("CE1", "CE2")],
}  # fmt: skip
_THRESHOLDS = np.array([0.5, 1.0, 2.0, 4.0])
_RADIUS = 15.0


@dataclass(frozen=True)
class Comparison:
    """The scores of a model.

    Args:
        scores: by name; NaN where there is none.
        chains: chains of the reference → chains of the model.
        interfaces: DockQ of each interface of the reference, by its two chains.
        remarks: lines about what could not be compared.
    """

    scores: dict[str, float]
    chains: dict[str, str]
    interfaces: dict[str, dict[str, float]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def compare(model: list[ProteinChain], reference: list[ProteinChain]) -> Comparison | None:
    """Return the scores of a model; None if no chain of it is one of the reference by sequence."""
    pairs = map_chains(model, reference)
    if not pairs:
        return None
    length = sum(len(chain.residues) for chain in reference)
    atoms, ca = [pair.atoms() for pair in pairs], [pair.atoms(("CA",)) for pair in pairs]
    ca_model, ca_reference = (np.concatenate(xyz) for xyz in zip(*ca, strict=True))
    every = _all_atoms(pairs, reference)
    is_ca = np.array([name == "CA" for name in every.names])
    interfaces = {}
    for a, b in combinations(pairs, 2):
        scores = dockq(a, b)
        if scores:
            interfaces[f"{a.reference.name}-{b.reference.name}"] = scores
    values = [scores["dockq"] for scores in interfaces.values()]
    return Comparison(
        {
            "lddt": lddt(every.model, every.reference, every.residues),
            "lddt_ca": lddt(every.model[is_ca], every.reference[is_ca], every.residues[is_ca]),
            "tm_score": tm_score(ca_model, ca_reference, length),
            "gdt_ts": gdt(ca_model, ca_reference, length, (1, 2, 4, 8)),
            "gdt_ha": gdt(ca_model, ca_reference, length, (0.5, 1, 2, 4)),
            "rmsd_ca": superposed_rmsd(ca_model, ca_reference),
            "rmsd": superposed_rmsd(*(np.concatenate(xyz) for xyz in zip(*atoms, strict=True))),
            "dockq": float(np.mean(values)) if values else float("nan"),
            "aligned": float(sum(len(pair.residues) for pair in pairs)),
            "residues": float(length),
        },
        {pair.reference.name: pair.model.name for pair in pairs},
        interfaces,
        list(_remarks(pairs, model, reference)),
    )


@dataclass(frozen=True, eq=False)
class _Atoms:
    model: np.ndarray
    reference: np.ndarray
    residues: np.ndarray
    names: list[str]


def _all_atoms(pairs: list[ChainPair], reference: list[ProteinChain]) -> _Atoms:
    """Return all atoms of the reference; those that the model lacks are NaN in it."""
    partners = {(p.reference.name, int(j)): p.model.residues[i] for p in pairs for i, j in p.residues}
    names: list[str] = []
    model, expected, owners, swaps = [], [], [], []
    number = 0
    for chain in reference:
        for index, (letter, residue) in enumerate(zip(chain.sequence, chain.residues, strict=True)):
            partner = partners.get((chain.name, index), {})
            place = {name: len(names) + k for k, name in enumerate(residue)}
            for name, xyz in residue.items():
                model.append(partner.get(name, np.full(3, np.nan)))
                expected.append(xyz)
                owners.append(number)
                names.append(name)
            swap = [(place[a], place[b]) for a, b in _AMBIGUOUS.get(letter, ()) if a in place and b in place]
            swaps += [swap] if swap else []
            number += 1
    result = _Atoms(np.array(model), np.array(expected), np.array(owners), names)
    _rename(result, swaps)
    return result


def _rename(atoms: _Atoms, swaps: list[list[tuple[int, int]]]) -> None:
    """Exchange names of equivalent atoms where this preserves more distances to unambiguous atoms."""
    ambiguous = [k for swap in swaps for pair in swap for k in pair]
    certain = np.setdiff1d(np.arange(len(atoms.names)), ambiguous)
    for swap in swaps:
        one = [k for pair in swap for k in pair]
        other = [k for pair in swap for k in pair[::-1]]
        expected = np.linalg.norm(atoms.reference[one, None] - atoms.reference[certain], axis=-1)
        counted = (expected < _RADIUS) & (atoms.residues[certain] != atoms.residues[one[0]])
        kept = [
            ((np.abs(np.linalg.norm(atoms.model[order, None] - atoms.model[certain], axis=-1) - expected)
              [..., None] < _THRESHOLDS) & counted[..., None]).sum()
            for order in (one, other)
        ]  # fmt: skip
        if kept[1] > kept[0]:
            atoms.model[one] = atoms.model[other]


def _remarks(
    pairs: list[ChainPair], model: list[ProteinChain], reference: list[ProteinChain]
) -> Iterator[str]:
    """Yield lines about chains and residues without a partner."""
    for side, chains in (("model", model), ("reference", reference)):
        used = {getattr(pair, side).name for pair in pairs}
        if missing := [chain.name for chain in chains if chain.name not in used]:
            yield f"chains of the {side} without a partner: {', '.join(missing)}"
    for pair in pairs:
        if lacking := len(pair.reference.residues) - len(pair.residues):
            yield f"chain {pair.reference.name}: the model lacks {lacking} residues of the reference"
