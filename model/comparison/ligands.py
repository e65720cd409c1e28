"""Ligands of a model against those of its reference, with the definitions of OpenStructure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from model.comparison.atoms import PairedAtoms, count_preserved, pair_atoms
from model.comparison.chains import ChainPair, ComparedLigand, ComparedMolecules
from model.comparison.scores import THRESHOLDS, distances
from model.comparison.superposition import superpose

_BINDING_SITE = 4.0  # Å, from an atom of the ligand
_CONTACT = 6.0  # Å
_SHORTEST = {"CA": 6, "C3'": 4}  # residues of a chain that can bind ligands
_BACKBONE = {"N", "CA", "C", "O", "P", "OP1", "OP2", "O5'", "C5'", "C4'", "C3'", "O3'"}
_MAX_LISTED = 8
_MAX_MAPPINGS = 12  # equivalent placements of the chains
MAX_ORDERS = 10_000
_BOND_TOLERANCE = 0.4  # Å, beyond the sum of covalent radii


@dataclass(frozen=True)
class LigandScores:
    """The scores of the ligands of a reference.

    Args:
        ligands: for each ligand, rmsd and lddt_pli, and the ligand of the model that each is of; empty if the
            model has no such ligand.
        remarks: lines about ligands without a partner.
    """

    ligands: dict[str, dict[str, float | str]]
    remarks: list[str]

    def mean(self, score: str) -> float:
        """Return the mean of a score over the ligands that have it."""
        return float(
            np.mean([float(row[score]) for row in self.ligands.values() if score in row] or [np.nan])
        )


def compare_ligands(
    model: ComparedMolecules, reference: ComparedMolecules, mappings: list[list[ChainPair]]
) -> LigandScores:
    """Return the scores of ligands, of the best of the mappings of chains.

    The RMSD is that of BiSyRMSD: after superposition of the CA and C3' atoms of the binding site, of the best
    order of equivalent atoms. lDDT-PLI (Robin et al. 2023) is the fraction of preserved distances between
    ligand and polymer, of those within 6 Å in the reference or the model. For each score, the best pair of
    ligands is assigned first.
    """
    receptor = [chain for chain in reference.chains if len(chain) >= _SHORTEST[chain.trace]]
    complete = [mapping for mapping in mappings if len(mapping) == len(mappings[0])][:_MAX_MAPPINGS]
    paired = [pair_atoms(mapping, receptor) for mapping in complete] if receptor else []
    near = [[_near(ligand, atoms.model, _CONTACT) for ligand in model.ligands] for atoms in paired]
    values: dict[str, dict[tuple[str, str], float]] = {"rmsd": {}, "lddt_pli": {}}
    remarks = []
    for expected in reference.ligands if paired else []:
        site, contacts = (_near(expected, paired[0].reference, x) for x in (_BINDING_SITE, _CONTACT))
        for index, ligand in enumerate(model.ligands):
            orders = equivalent_orders(ligand, expected)
            if len(orders) == MAX_ORDERS:
                remarks.append(f"{expected.name}: only {MAX_ORDERS:,} of the orders of its atoms are tried")
            if len(orders):
                key = expected.name, ligand.name
                values["rmsd"][key] = min(_rmsd(atoms, site, expected, ligand, orders) for atoms in paired)
                values["lddt_pli"][key] = max(
                    _lddt_pli(atoms, contacts | masks[index], expected, ligand, orders)
                    for atoms, masks in zip(paired, near, strict=True)
                )
    rows: dict[str, dict[str, float | str]] = {ligand.name: {} for ligand in reference.ligands}
    for score, sign in (("rmsd", 1), ("lddt_pli", -1)):
        for (name, partner), value in _assign(values[score], sign):
            rows[name] |= {score: value, f"{score}_model": partner}
    return LigandScores(rows, [*remarks, *_remarks(model.ligands, rows, values["rmsd"])])


def _assign(values: dict[tuple[str, str], float], sign: int) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield pairs of ligands, each ligand once, the best pairs first."""
    used: set[tuple[int, str]] = set()
    for key, value in sorted(values.items(), key=lambda item: sign * item[1]):
        if np.isfinite(value) and not used & set(enumerate(key)):
            used |= set(enumerate(key))
            yield key, value


def _near(ligand: ComparedLigand, positions: np.ndarray, cutoff: float) -> np.ndarray:
    """Return bool [N]: whether positions (N, 3) are nearer to an atom of a ligand than the cutoff."""
    return np.any(distances(ligand.positions, positions) < cutoff, axis=0)


def _rmsd(
    atoms: PairedAtoms, near: np.ndarray, reference: ComparedLigand, model: ComparedLigand, orders: np.ndarray
) -> float:
    """Return the least RMSD of a ligand after superposition of its binding site; infinite without one.

    `near` marks the receptor's atoms, bool [N], at the ligand of the reference, whose residues are the
    binding site; for `orders` see `equivalent_orders`.
    """
    site = np.isin(atoms.residues, atoms.residues[near]) & ~np.isnan(atoms.model[:, 0])
    chosen = site & atoms.is_trace
    if chosen.sum() < 3:
        chosen = site & np.array([name in _BACKBONE for name in atoms.names])
    if chosen.sum() < 3:
        return float("inf")
    rotation, shift = superpose(atoms.model[chosen], atoms.reference[chosen])
    moved = (model.positions @ rotation + shift)[orders]
    return float(np.sqrt(((moved - reference.positions) ** 2).sum(-1).mean(-1).min()))


def _lddt_pli(
    atoms: PairedAtoms,
    local: np.ndarray,
    reference: ComparedLigand,
    model: ComparedLigand,
    orders: np.ndarray,
) -> float:
    """Return the best lDDT-PLI of the orders of a ligand's atoms; minus infinity without contacts.

    `local` marks the receptor's atoms, bool [N], in contact with the ligand of the reference or of the model;
    for `orders` see `equivalent_orders`.
    """
    residues = set(atoms.residues[local].tolist())
    swaps = [(one, other) for one, other in atoms.swaps if int(atoms.residues[one[0]]) in residues]
    local = local.copy()
    for one, _ in swaps:
        local[one] = True
    expected = distances(reference.positions, atoms.reference[local])
    found = distances(model.positions, atoms.model[local])
    place = np.cumsum(local) - 1
    best = float("-inf")
    for order in orders:
        ours = found[order]
        counted = (expected < _CONTACT) | (ours < _CONTACT)
        if not counted.any():
            continue
        renamed = ours.copy()
        for one, other in swaps:
            a, b = place[one], place[other]
            kept = [count_preserved(ours[:, names], expected[:, a], counted[:, a]) for names in (a, b)]
            if kept[1] > kept[0]:
                renamed[:, a] = ours[:, b]
        total = len(THRESHOLDS) * int(counted.sum())
        best = max(best, count_preserved(renamed, expected, counted) / total)
    return best


def _remarks(
    model: list[ComparedLigand], rows: dict[str, dict[str, float | str]], rmsds: dict[tuple[str, str], float]
) -> Iterator[str]:
    """Yield lines about ligands that have no score."""
    partners = {row[key] for row in rows.values() for key in ("rmsd_model", "lddt_pli_model") if key in row}
    matched: dict[str, list[float]] = {key[0]: [] for key in rmsds}
    for key, rmsd in rmsds.items():
        matched[key[0]].append(rmsd)
    unscored = [name for name, row in rows.items() if not row]
    alone = [name for name in unscored if name in matched and not np.isfinite(matched[name]).any()]
    lacking = [name for name in unscored if name not in alone]
    further = [ligand.name for ligand in model if ligand.name not in partners]
    for names, reason in (
        (lacking, "of the reference without a partner in the model"),
        (further, "of the model without a partner in the reference"),
        (alone, f"of the reference without a binding site, {_BINDING_SITE:g} Å around them,"),
    ):
        if names:
            listed = ", ".join([*names[:_MAX_LISTED], *(["…"] if len(names) > _MAX_LISTED else [])])
            yield f"{len(names)} ligands {reason} do not count: {listed}"


def equivalent_orders(model: ComparedLigand, reference: ComparedLigand) -> np.ndarray:
    """Return the orders (K, N) of a model's atoms in which elements and bonds are those of a reference.

    Atoms are bonded if they are no further apart than their covalent radii allow. If both ligands have the
    same names of atoms, the model has the bonds of the reference. At most `MAX_ORDERS` are returned, none if
    the ligands differ.
    """
    if Counter(model.elements) != Counter(reference.elements):
        return np.zeros((0, len(reference.names)), int)
    bonds = _bonds(reference)
    if sorted(model.names) == sorted(reference.names) and len(set(model.names)) == len(model.names):
        place = [model.names.index(name) for name in reference.names]
        found = np.array(list(islice(_isomorphisms(reference, bonds, reference, bonds), MAX_ORDERS)))
        return np.array(place)[found]
    found = np.array(list(islice(_isomorphisms(model, _bonds(model), reference, bonds), MAX_ORDERS)), int)
    return found.reshape(-1, len(reference.names))


def _bonds(ligand: ComparedLigand) -> list[set[int]]:
    """Return the atoms to which each atom is bonded."""
    longest = ligand.radii[:, None] + ligand.radii + _BOND_TOLERANCE
    near = (distances(ligand.positions, ligand.positions) < longest) & ~np.eye(len(ligand.names), dtype=bool)
    return [set(np.nonzero(row)[0].tolist()) for row in near]


def _isomorphisms(
    model: ComparedLigand, model_bonds: list[set[int]], reference: ComparedLigand, bonds: list[set[int]]
) -> Iterator[list[int]]:
    """Yield, for each order, the atom of the model for each of the reference."""
    route = _route(bonds)
    mapping: dict[int, int] = {}
    used: set[int] = set()

    def extend(step: int) -> Iterator[list[int]]:
        if step == len(route):
            yield [mapping[atom] for atom in range(len(route))]
            return
        atom = route[step]
        placed = [mapping[other] for other in bonds[atom] if other in mapping]
        candidates = model_bonds[placed[0]] if placed else range(len(route))
        for candidate in sorted(candidates):
            if (
                candidate not in used
                and model.elements[candidate] == reference.elements[atom]
                and len(model_bonds[candidate]) == len(bonds[atom])
                and all(candidate in model_bonds[other] for other in placed)
            ):
                mapping[atom] = candidate
                used.add(candidate)
                yield from extend(step + 1)
                used.remove(mapping.pop(atom))

    yield from extend(0)


def _route(bonds: list[set[int]]) -> list[int]:
    """Return all atoms in an order in which each follows a bonded one, where there is one."""
    route: list[int] = []
    for start in range(len(bonds)):
        front = [] if start in route else [start]
        while front:
            atom = front.pop()
            if atom not in route:
                route.append(atom)
                front += sorted(bonds[atom])
    return route
