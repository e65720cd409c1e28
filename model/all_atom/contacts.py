"""Interfaces between chains of any molecules, and the atoms around ligands."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from model.all_atom.neighbours import close_pairs
from model.prediction import Prediction

# Å between heavy atoms: contacts that are listed, and close ones
CONTACT_DISTANCE, CLOSE_DISTANCE = 5.0, 4.0
CONTACT_COLUMNS = (
    "chain_1", "residue_1", "name_1", "atom_1", "plddt_1", "chain_2", "residue_2", "name_2", "atom_2",
    "plddt_2", "distance", "pae_1_2", "pae_2_1",
)  # fmt: skip


@dataclass(frozen=True)
class Interface:
    """Two chains.

    Args:
        chains: their names, in the order of the structure.
        kinds: their kinds, such as "protein" and "ligand".
        iptm: ipTM of the pair.
        pae_min: smallest PAE when aligned on the first and on the second, Å.
        contacts: number of pairs of residues with atoms within CONTACT_DISTANCE.
        close_contacts: number of those within CLOSE_DISTANCE.
    """

    chains: tuple[str, str]
    kinds: tuple[str, str]
    iptm: float
    pae_min: tuple[float, float]
    contacts: int
    close_contacts: int


@dataclass(frozen=True)
class LigandContact:
    """An atom of a ligand or ion with an atom of another chain.

    Args:
        ligand: residue of the ligand, such as "B:HEM".
        ligand_atom: name of its atom.
        residue: residue of the other atom, such as "A:HIS 93".
        atom: name of the other atom.
        distance: Å.
    """

    ligand: str
    ligand_atom: str
    residue: str
    atom: str
    distance: float


@dataclass(frozen=True, eq=False)
class _AtomPairs:
    """Pairs of atoms of different chains: int [P, 2], and their distances [P], Å."""

    atoms: np.ndarray
    distances: np.ndarray


def interfaces(prediction: Prediction) -> list[Interface]:
    """Return all pairs of chains, those with the most close contacts first."""
    structure = prediction.structure
    pairs = _residue_pairs(prediction)
    chains = np.sort(structure.atom_chain[pairs.atoms], axis=1)
    pae_min = prediction.chain_pair_pae_min
    assert prediction.all_atom is not None
    result = []
    for a in range(len(structure.chains)):
        for b in range(a + 1, len(structure.chains)):
            distances = pairs.distances[(chains == (a, b)).all(axis=1)]
            result.append(
                Interface(
                    (structure.chain_names[a], structure.chain_names[b]),
                    (str(structure.kind(a)), str(structure.kind(b))),
                    float(prediction.all_atom.chain_pair_iptm[a, b]),
                    (float(pae_min[a, b]), float(pae_min[b, a])),
                    len(distances),
                    int((distances <= CLOSE_DISTANCE).sum()),
                )
            )
    return sorted(result, key=lambda item: (-item.close_contacts, -item.contacts, -item.iptm))


def ligand_contacts(prediction: Prediction) -> list[LigandContact]:
    """Return the atoms of other chains within CLOSE_DISTANCE of ligands, ions included, nearest first."""
    structure = prediction.structure
    pairs = _pairs_between_chains(prediction)
    near = pairs.distances <= CLOSE_DISTANCE
    rows = []
    for (first, second), length in zip(
        pairs.atoms[near].tolist(), pairs.distances[near].tolist(), strict=True
    ):
        for own, other in ((first, second), (second, first)):
            if not structure.chain_is_polymer[structure.atom_chain[own]]:
                rows.append((int(structure.atom_residue[own]), length, own, other))
    return [
        LigandContact(
            structure.residue_label(residue),
            str(structure.atom_name[own]),
            structure.residue_label(int(structure.atom_residue[other])),
            str(structure.atom_name[other]),
            length,
        )
        for residue, length, own, other in sorted(rows)
    ]


def format_all_atom_contacts(prediction: Prediction) -> str:
    """Format the contacts between chains as a table with the columns CONTACT_COLUMNS.

    A row is a pair of residues with atoms within CONTACT_DISTANCE: their closest atoms, the pLDDT of these,
    and the PAE of their tokens.
    """
    structure, plddt, pae = prediction.structure, prediction.b_factors, prediction.pae
    assert pae is not None

    def cells(atom: int) -> list[str]:
        residue = int(structure.atom_residue[atom])
        chain = structure.chain_names[structure.residue_chain[residue]]
        name, code = str(structure.atom_name[atom]), str(structure.residue_code[residue])
        return [chain, str(structure.residue_number[residue]), code, name, f"{plddt[atom]:.2f}"]

    pairs = _residue_pairs(prediction)
    tokens = structure.atom_token[pairs.atoms]
    forward, backward = pae[tokens[:, 0], tokens[:, 1]], pae[tokens[:, 1], tokens[:, 0]]
    lines = ["\t".join(CONTACT_COLUMNS)]
    for (first, second), *numbers in zip(
        pairs.atoms.tolist(), pairs.distances, forward, backward, strict=True
    ):
        lines.append("\t".join([*cells(first), *cells(second), *(f"{value:.2f}" for value in numbers)]))
    return "\n".join(lines) + "\n"


def contacts_as_dict(prediction: Prediction) -> dict[str, Any]:
    """Return the interfaces and the contacts of ligands as JSON holds them."""
    return {
        "interfaces": [
            {
                "chains": list(item.chains),
                "kinds": list(item.kinds),
                "iptm": round(item.iptm, 3),
                "pae_min": [round(value, 2) for value in item.pae_min],
                "contacts": item.contacts,
                "close_contacts": item.close_contacts,
            }
            for item in interfaces(prediction)
        ],
        "ligand_contacts": [
            [item.ligand, item.ligand_atom, item.residue, item.atom, round(item.distance, 2)]
            for item in ligand_contacts(prediction)
        ],
    }


# several tables of a prediction need them
@lru_cache(maxsize=1)
def _pairs_between_chains(prediction: Prediction) -> _AtomPairs:
    """Return the pairs of atoms of different chains within CONTACT_DISTANCE."""
    positions = prediction.positions.astype(np.float64)
    pairs = close_pairs(positions, CONTACT_DISTANCE, prediction.structure.atom_chain)
    return _AtomPairs(pairs, np.linalg.norm(positions[pairs[:, 0]] - positions[pairs[:, 1]], axis=1))


def _residue_pairs(prediction: Prediction) -> _AtomPairs:
    """Return the closest atoms of each two residues in contact."""
    pairs = _pairs_between_chains(prediction)
    residues = prediction.structure.atom_residue[pairs.atoms]
    order = np.lexsort((pairs.distances, residues[:, 1], residues[:, 0]))
    residues = residues[order]
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(residues, axis=0) != 0).any(axis=1)
    return _AtomPairs(pairs.atoms[order[first]], pairs.distances[order[first]])
