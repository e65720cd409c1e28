"""Comparison of one model with its reference, and DockQ of the interfaces of its chains."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from model.comparison.atoms import PairedAtoms, pair_atoms, with_best_names
from model.comparison.chains import ChainPair, ComparedChain, ComparedMolecules, Residue, map_chains
from model.comparison.ligands import compare_ligands
from model.comparison.scores import distances, gdt, lddt, tm_score
from model.comparison.superposition import rmsd, superpose, superposed_rmsd

# of proteins and nucleic acids, as in DockQ 2
_BACKBONE = (
    "N", "CA", "C", "O", "P", "OP1", "OP2", "O2'", "O3'", "O4'", "O5'", "C1'", "C2'", "C3'", "C4'", "C5'",
)  # fmt: skip
_CONTACT = 5.0  # Å, between heavy atoms
_INTERFACE = 10.0


@dataclass(frozen=True)
class Comparison:
    """The scores of a model.

    Args:
        scores: by name; NaN where there is none.
        chains: chains of the reference → chains of the model.
        interfaces: scores of each interface of the reference, by its two chains.
        ligands: scores of each ligand of the reference, and the ligands of the model that they are of.
        residues: lDDT of each residue of the reference, by chain.
        remarks: lines about what could not be compared.
    """

    scores: dict[str, float]
    chains: dict[str, str]
    interfaces: dict[str, dict[str, float]] = field(default_factory=dict)
    ligands: dict[str, dict[str, float | str]] = field(default_factory=dict)
    residues: dict[str, list[float]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def compare(model: ComparedMolecules, reference: ComparedMolecules) -> Comparison | None:
    """Return the scores of a model; None if no chain of it is one of the reference by sequence."""
    mappings = map_chains(model.chains, reference.chains)
    if not mappings:
        return None
    pairs = mappings[0]
    atoms = pair_atoms(pairs, reference.chains)
    total, per_residue = lddt(with_best_names(atoms), atoms.reference, atoms.residues)
    interfaces = _interfaces(pairs, reference.chains)
    ligands = compare_ligands(model, reference, mappings)
    ends = np.cumsum([len(chain) for chain in reference.chains])[:-1]
    per_chain = np.split(per_residue, ends)
    scores = {
        "lddt": total,
        **_trace_scores(atoms, reference.chains),
        "rmsd": _rmsd(atoms),
        "dockq": float(np.mean([scores["dockq"] for scores in interfaces.values()] or [np.nan])),
        "ligand_rmsd": ligands.mean("rmsd"),
        "lddt_pli": ligands.mean("lddt_pli"),
        "aligned": sum(len(pair.residues) for pair in pairs),
        "residues": len(per_residue),
    }
    return Comparison(
        scores,
        {pair.reference.name: pair.model.name for pair in pairs},
        interfaces,
        ligands.ligands,
        {chain.name: x.tolist() for chain, x in zip(reference.chains, per_chain, strict=True)},
        [*_remarks(pairs, model.chains, reference.chains), *ligands.remarks],
    )


def _trace_scores(atoms: PairedAtoms, reference: list[ComparedChain]) -> dict[str, float]:
    """Return the scores of CA and C3' atoms."""
    model, expected = atoms.model[atoms.is_trace], atoms.reference[atoms.is_trace]
    found = ~np.isnan(model[:, 0])
    length = len(model)
    both = model[found], expected[found]
    nucleotides = sum(len(chain) for chain in reference if chain.trace != "CA")
    is_nucleic = 2 * nucleotides > sum(len(chain) for chain in reference)
    gdt_ts, gdt_ha = gdt(*both, length)
    return {
        "lddt_ca": lddt(model, expected, atoms.residues[atoms.is_trace])[0],
        "tm_score": tm_score(*both, length, is_nucleic),
        "gdt_ts": gdt_ts,
        "gdt_ha": gdt_ha,
        "rmsd_ca": superposed_rmsd(*both),
    }


def _rmsd(atoms: PairedAtoms) -> float:
    found = ~np.isnan(atoms.model[:, 0])
    return superposed_rmsd(atoms.model[found], atoms.reference[found])


def _interfaces(pairs: list[ChainPair], reference: list[ComparedChain]) -> dict[str, dict[str, float]]:
    """Return the scores of each interface of the reference; DockQ is 0 if the model lacks a chain."""
    partners = {pair.reference.name: pair for pair in pairs}
    found = {}
    for a, b in combinations(reference, 2):
        scores = None
        if a.name in partners and b.name in partners:
            scores = dockq(partners[a.name], partners[b.name])
        elif has_interface(a, b):
            scores = {"dockq": 0.0}
        if scores:
            found[f"{a.name}-{b.name}"] = scores
    return found


def _remarks(
    pairs: list[ChainPair], model: list[ComparedChain], reference: list[ComparedChain]
) -> Iterator[str]:
    """Yield lines about chains, residues and atoms without a partner."""
    for side, chains, effect in (
        ("model", model, "do not count"), ("reference", reference, "count as wrong, their interfaces too")
    ):  # fmt: skip
        used = {getattr(pair, side).name for pair in pairs}
        if missing := [chain.name for chain in chains if chain.name not in used]:
            yield f"chains of the {side} without a partner, which {effect}: {', '.join(missing)}"
    counts: dict[str, dict[str, int]] = {}
    for pair in pairs:
        size, atoms = len(pair.residues), sum(len(pair.reference.residues[j]) for _, j in pair.residues)
        for what, count in (
            ("residues of the reference that the model lacks", len(pair.reference) - size),
            ("residues of the model that the reference lacks", len(pair.model) - size),
            ("further atoms that the model lacks", atoms - len(pair.atoms()[0])),
            ("residues with another name in the model",
             sum(pair.model.names[i] != pair.reference.names[j] for i, j in pair.residues)),
        ):  # fmt: skip
            if count:
                counts.setdefault(what, {})[pair.reference.name] = count
    for what, chains_with in counts.items():
        yield f"{what}: " + ", ".join(f"{count} in {name}" for name, count in chains_with.items())


def has_interface(first: ComparedChain, second: ComparedChain) -> bool:
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
