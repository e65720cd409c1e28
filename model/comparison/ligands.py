"""Ligands of a model against those of its reference, with the definitions of OpenStructure."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from model.comparison.atoms import PairedAtoms, count_preserved, pair_atoms
from model.comparison.chains import ChainPair, Ligand, Molecules
from model.comparison.ligand_atoms import MAX_ORDERS, equivalent_orders
from model.comparison.scores import THRESHOLDS, distances
from model.comparison.superposition import superpose

_BINDING_SITE = 4.0  # Å, from an atom of the ligand
_CONTACT = 6.0  # Å
_SHORTEST = {"CA": 6, "C3'": 4}  # residues of a chain that can bind ligands
_BACKBONE = {"N", "CA", "C", "O", "P", "OP1", "OP2", "O5'", "C5'", "C4'", "C3'", "O3'"}
_MAX_LISTED = 8


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


def compare_ligands(model: Molecules, reference: Molecules, mappings: list[list[ChainPair]]) -> LigandScores:
    """Return the scores of ligands, of the best of the mappings of chains.

    The RMSD is that of BiSyRMSD: after superposition of the CA and C3' atoms of the binding site, of the best
    order of equivalent atoms. lDDT-PLI (Robin et al. 2023) is the fraction of preserved distances between
    ligand and polymer, of those within 6 Å in the reference or the model. For each score, the best pair of
    ligands is assigned first.
    """
    receptor = [chain for chain in reference.chains if len(chain) >= _SHORTEST[chain.trace]]
    complete = [mapping for mapping in mappings if len(mapping) == len(mappings[0])]
    paired = [pair_atoms(mapping, receptor) for mapping in complete] if receptor else []
    values: dict[str, dict[tuple[str, str], float]] = {"rmsd": {}, "lddt_pli": {}}
    remarks = []
    for expected in reference.ligands:
        for ligand in model.ligands:
            orders = equivalent_orders(ligand, expected)
            if len(orders) == MAX_ORDERS:
                remarks.append(f"{expected.name}: only {MAX_ORDERS:,} of the orders of its atoms are tried")
            if len(orders) and paired:
                key = expected.name, ligand.name
                values["rmsd"][key] = min(_rmsd(atoms, expected, ligand, orders) for atoms in paired)
                values["lddt_pli"][key] = max(_lddt_pli(atoms, expected, ligand, orders) for atoms in paired)
    rows: dict[str, dict[str, float | str]] = {ligand.name: {} for ligand in reference.ligands}
    for score, sign in (("rmsd", 1), ("lddt_pli", -1)):
        for (name, partner), value in _assign(values[score], sign):
            rows[name] |= {score: value, f"{score}_model": partner}
    return LigandScores(rows, [*remarks, *_remarks(model.ligands, rows)])


def _assign(values: dict[tuple[str, str], float], sign: int) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield pairs of ligands, each ligand once, the best pairs first."""
    used: set[tuple[int, str]] = set()
    for key, value in sorted(values.items(), key=lambda item: sign * item[1]):
        if np.isfinite(value) and not used & set(enumerate(key)):
            used |= set(enumerate(key))
            yield key, value


def _rmsd(atoms: PairedAtoms, reference: Ligand, model: Ligand, orders: np.ndarray) -> float:
    """Return the least RMSD of a ligand after superposition of its binding site; infinite without one."""
    near = (distances(reference.positions, atoms.reference) < _BINDING_SITE).any(0)
    site = np.isin(atoms.residues, atoms.residues[near]) & ~np.isnan(atoms.model[:, 0])
    chosen = site & atoms.is_trace
    if chosen.sum() < 3:
        chosen = site & np.array([name in _BACKBONE for name in atoms.names])
    if chosen.sum() < 3:
        return float("inf")
    rotation, shift = superpose(atoms.model[chosen], atoms.reference[chosen])
    moved = (model.positions @ rotation + shift)[orders]
    return float(np.sqrt(((moved - reference.positions) ** 2).sum(-1).mean(-1).min()))


def _lddt_pli(atoms: PairedAtoms, reference: Ligand, model: Ligand, orders: np.ndarray) -> float:
    """Return the best lDDT-PLI of the orders of a ligand's atoms; minus infinity without contacts."""
    expected = distances(reference.positions, atoms.reference)
    found = distances(model.positions, atoms.model)
    local: np.ndarray = np.logical_or((expected < _CONTACT).any(0), (found < _CONTACT).any(0))
    swaps = [swap for swap in atoms.swaps if local[swap[0]].any()]
    for one, _ in swaps:
        local[one] = True
    place = np.cumsum(local) - 1
    expected, found = expected[:, local], found[:, local]
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


def _remarks(model: list[Ligand], rows: dict[str, dict[str, float | str]]) -> Iterator[str]:
    """Yield lines about ligands that have no score."""
    partners = {row[key] for row in rows.values() for key in ("rmsd_model", "lddt_pli_model") if key in row}
    lacking = [name for name, row in rows.items() if not row]
    further = [ligand.name for ligand in model if ligand.name not in partners]
    for names, one, other in ((lacking, "reference", "model"), (further, "model", "reference")):
        if names:
            listed = ", ".join([*names[:_MAX_LISTED], *(["…"] if len(names) > _MAX_LISTED else [])])
            yield f"{len(names)} ligands of the {one} that the {other} lacks do not count: {listed}"
