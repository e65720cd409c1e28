"""Tests of interfaces and contacts of ligands, against all distances."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from model.all_atom.contacts import (
    CONTACT_COLUMNS,
    format_all_atom_contacts,
    interfaces,
    ligand_contacts,
)
from model.prediction import Prediction
from tests.molecules import GLYCAN, MIXTURE, random_prediction


@pytest.fixture(scope="module")
def crowded() -> Prediction:
    """Return molecules that overlap."""
    prediction = random_prediction(MIXTURE)
    return replace(prediction, positions=prediction.positions * np.float32([0.15, 1, 1]))


def distances_between(prediction: Prediction, first: int, second: int) -> np.ndarray:
    chain, positions = prediction.structure.atom_chain, prediction.positions.astype(np.float64)
    return np.linalg.norm(positions[chain == first][:, None] - positions[chain == second], axis=-1)


def test_interfaces_count_pairs_of_residues_of_all_kinds(crowded: Prediction) -> None:
    found = interfaces(crowded)
    assert len(found) == 15
    assert {kind for item in found for kind in item.kinds} == {"protein", "ligand", "DNA", "RNA", "ion"}
    residue = crowded.structure.atom_residue
    for item in found:
        a, b = (crowded.structure.chain_names.index(name) for name in item.chains)
        close = np.argwhere(distances_between(crowded, a, b) <= 4.0)
        rows, columns = (residue[crowded.structure.atom_chain == chain] for chain in (a, b))
        assert item.close_contacts == len({(rows[i], columns[j]) for i, j in close})
        assert item.iptm == crowded.all_atom.chain_pair_iptm[a, b]
        tokens = [crowded.structure.token_chain == chain for chain in (a, b)]
        assert item.pae_min[1] == pytest.approx(crowded.pae[np.ix_(tokens[1], tokens[0])].min())
    assert found[0].close_contacts > 0
    counts = [item.close_contacts for item in found]
    assert counts == sorted(counts, reverse=True)


def test_atoms_around_ligands_are_within_four_angstrom(crowded: Prediction) -> None:
    rows = ligand_contacts(crowded)
    ligands = [chain for chain in range(6) if not crowded.structure.chain_is_polymer[chain]]
    expected = sum(
        int((distances_between(crowded, chain, other) <= 4.0).sum())
        for chain in ligands
        for other in range(6)
        if other != chain
    )
    assert len(rows) == expected > 0
    assert {row.ligand for row in rows} <= {"B:GOL", "C:LIG0", "F:ZN"}
    assert max(row.distance for row in rows) <= 4.0
    of_glycerol = [row.distance for row in rows if row.ligand == "B:GOL"]
    assert of_glycerol == sorted(of_glycerol)


def test_the_table_has_the_closest_atoms_of_each_pair(crowded: Prediction) -> None:
    header, *lines = format_all_atom_contacts(crowded).splitlines()
    assert tuple(header.split("\t")) == CONTACT_COLUMNS
    assert len(lines) == sum(item.contacts for item in interfaces(crowded))
    names, tables = crowded.structure.atom_name.tolist(), crowded.structure
    for line in lines[:20]:
        cells = dict(zip(CONTACT_COLUMNS, line.split("\t"), strict=True))
        ends = []
        for side in ("1", "2"):
            chain = tables.chain_names.index(cells[f"chain_{side}"])
            rows = np.flatnonzero(
                (tables.atom_chain == chain)
                & (tables.residue_number[tables.atom_residue] == int(cells[f"residue_{side}"]))
            )
            ends.append(rows)
        block = np.linalg.norm(
            crowded.positions[ends[0]][:, None].astype(float) - crowded.positions[ends[1]], axis=-1
        )
        assert float(cells["distance"]) == pytest.approx(block.min(), abs=6e-3)
        i, j = np.unravel_index(block.argmin(), block.shape)
        assert (cells["atom_1"], cells["atom_2"]) == (names[ends[0][i]], names[ends[1][j]])
        first, second = tables.atom_token[ends[0][i]], tables.atom_token[ends[1][j]]
        assert float(cells["pae_1_2"]) == pytest.approx(crowded.pae[first, second], abs=6e-3)


def test_residues_of_one_chain_have_no_interface() -> None:
    sugars = random_prediction(GLYCAN)
    together = replace(sugars, positions=sugars.positions * np.float32([0, 1, 1]))
    rows = ligand_contacts(together)
    assert rows and all(row.ligand.startswith("B:NAG ") and row.residue.startswith("A:") for row in rows)
