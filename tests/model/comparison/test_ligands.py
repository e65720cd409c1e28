"""Tests of `model.comparison.ligands` and `model.comparison.ligands`."""

from pathlib import Path

import gemmi
import networkx
import numpy as np
import pytest

pytest.importorskip("biotite")

import biotite.structure as struc

from features.chemistry.components import read_component
from foldcli.comparison.read import read_molecules
from model.comparison.chains import ComparedLigand, map_chains
from model.comparison.ligands import LigandScores, compare_ligands, equivalent_orders
from tests.model.comparison.cases import SOURCES

LIGANDS = {"4cup": "ZYB", "1gbt": "GBS"}
EQUIVALENT = {
    "ASP": "OD", "GLU": "OE", "LEU": "CD", "VAL": "CG", "ARG": "NH", "PHE": "CD CE", "TYR": "CD CE",
}  # fmt: skip


def read(entry: str) -> gemmi.Structure:
    structure = gemmi.read_structure(str(SOURCES / f"{entry}.cif.gz"))
    structure.remove_alternative_conformations()
    structure.remove_hydrogens()
    structure.remove_waters()
    return structure


def compared(model: gemmi.Structure, reference: gemmi.Structure, folder: Path) -> LigandScores:
    sides = []
    for name, structure in (("model", model), ("reference", reference)):
        structure.make_mmcif_document().write_file(str(folder / f"{name}.cif"))
        sides.append(read_molecules(folder / f"{name}.cif"))
    return compare_ligands(*sides, map_chains(*(side.chains for side in sides)))


def moved(entry: str, seed: int) -> gemmi.Structure:
    """Return a structure with all atoms moved at random, and each ligand as a whole."""
    rng = np.random.default_rng(seed)
    structure = read(entry)
    for chain in structure[0]:
        for residue in chain:
            shift = rng.normal(0, 1.0, 3) if residue.entity_type == gemmi.EntityType.NonPolymer else 0
            for atom in residue:
                atom.pos = gemmi.Position(*(np.array(atom.pos.tolist()) + shift + rng.normal(0, 0.4, 3)))
    return structure


@pytest.mark.parametrize("code", ["ATP", "BEN", "FAD", "HEM", "IBP", "SO4"])
def test_orders_are_those_of_the_graph_of_bonds(code: str) -> None:
    component = read_component(code)
    elements = [element.capitalize() for element in component.elements]
    radii = np.array([gemmi.Element(element).covalent_r for element in elements])
    ligand = ComparedLigand(code, list(component.names), elements, radii, component.ideal)
    graph = networkx.Graph(list(map(tuple, component.bonds[:, :2].tolist())))
    networkx.set_node_attributes(graph, dict(enumerate(elements)), "element")
    matcher = networkx.isomorphism.GraphMatcher(
        graph, graph, node_match=lambda a, b: a["element"] == b["element"]
    )
    peer = [[order[k] for k in range(len(component))] for order in matcher.isomorphisms_iter()]
    assert sorted(equivalent_orders(ligand, ligand).tolist()) == sorted(peer)


def brute_force(model: gemmi.Structure, reference: gemmi.Structure, name: str) -> tuple[float, float]:
    """Return RMSD and lDDT-PLI of a ligand in structures with the same atoms in the same order."""
    keys, positions = [], []
    for structure in (model, reference):
        atoms = [(r, a) for chain in structure[0] for r in chain for a in r]
        keys = [(f"{r.name}{r.seqid}", a.name, r.entity_type == gemmi.EntityType.Polymer) for r, a in atoms]
        positions.append(np.array([a.pos.tolist() for _, a in atoms]))
    own = [key[0] == name.split(":")[1] for key in keys]
    polymer = [key[2] for key in keys]
    distances = [np.linalg.norm(xyz[own][:, None] - xyz[polymer], axis=2) for xyz in positions]
    residues = np.array([key[0] for key in keys])[polymer]
    columns = {key[:2]: column for column, key in enumerate(key for key in keys if key[2])}
    exchanges = []
    for residue in dict.fromkeys(residues):
        names = [name + n for name in EQUIVALENT.get(residue[:3], "").split() for n in "12"]
        if names and (residue, names[0]) in columns:
            one = [columns[residue, name] for name in names]
            exchanges.append((one, np.array(one).reshape(-1, 2)[:, ::-1].ravel()))
    site = [key[2] and key[1] == "CA" and key[0] in residues[distances[1].min(0) < 4] for key in keys]
    _, transform = struc.superimpose(positions[1][site], positions[0][site])
    moved_ligand, fixed = transform.apply(positions[0][own]), positions[1][own]
    values = []
    ligand = next(x for x in _ligands(reference) if x.name == name)
    for order in equivalent_orders(ligand, ligand):
        found, expected = distances[0][order], distances[1]
        counted = np.minimum(found, expected) < 6
        for one, other in exchanges:
            kept = [_preserved(found[:, names], expected[:, one], counted[:, one]) for names in (one, other)]
            if kept[1] > kept[0]:
                found[:, one] = found[:, other]
        pli = _preserved(found, expected, counted) / counted.sum() / 4
        values.append((np.sqrt(((moved_ligand[order] - fixed) ** 2).sum(1).mean()), -pli))
    return min(rmsd for rmsd, _ in values), -min(pli for _, pli in values)


def _preserved(found: np.ndarray, expected: np.ndarray, counted: np.ndarray) -> int:
    return sum(int((np.abs(found - expected)[counted] < limit).sum()) for limit in (0.5, 1, 2, 4))


def _ligands(structure: gemmi.Structure) -> list[ComparedLigand]:
    return [
        ComparedLigand(
            f"{chain.name}:{residue.name}{residue.seqid}", [atom.name for atom in residue],
            [atom.element.name for atom in residue], np.array([atom.element.covalent_r for atom in residue]),
            np.array([atom.pos.tolist() for atom in residue]),
        )
        for chain in structure[0] for residue in chain if residue.entity_type == gemmi.EntityType.NonPolymer
    ]  # fmt: skip


CASES = [(entry, seed) for entry in LIGANDS for seed in range(10)]


@pytest.mark.parametrize(
    ("entry", "seed"),
    [pytest.param(*case, marks=[] if case == ("4cup", 0) else pytest.mark.slow) for case in CASES],
)
def test_scores_equal_brute_force(entry: str, seed: int, tmp_path: Path) -> None:
    model, reference = moved(entry, seed), read(entry)
    result = compared(model, reference, tmp_path)
    assert len(result.ligands) == 4
    (name,) = (name for name in result.ligands if LIGANDS[entry] in name)
    rmsd, pli = brute_force(model, reference, name)
    assert result.ligands[name]["rmsd"] == pytest.approx(rmsd, abs=1e-3)
    assert result.ligands[name]["lddt_pli"] == pytest.approx(pli, abs=1e-3)


def test_atoms_with_other_names_and_order_are_matched(tmp_path: Path) -> None:
    model, reference = read("4cup"), read("4cup")
    (residue,) = (r for chain in model[0] for r in chain if r.name == "ZYB")
    atoms = [atom.clone() for atom in residue]
    while len(residue):
        del residue[0]
    for number, atom in enumerate(reversed(atoms)):
        atom.name = f"{atom.element.name}{number}"
        residue.add_atom(atom)
    residue.name = "LIG"
    result = compared(model, reference, tmp_path)
    (row,) = (row for name, row in result.ligands.items() if "ZYB" in name)
    assert row["rmsd"] == pytest.approx(0, abs=1e-3) and row["lddt_pli"] == 1
    assert str(row["rmsd_model"]).startswith("A:LIG")
    del residue[0]  # a ligand of other atoms has no partner
    result = compared(model, reference, tmp_path)
    assert any("of the reference without a partner" in remark for remark in result.remarks)
    assert any("in the reference do not count: A:LIG" in remark for remark in result.remarks)


def test_equivalent_sites_are_the_same(tmp_path: Path) -> None:
    structures = [read("4cup"), read("4cup")]
    for structure, removed in zip(structures, "AB", strict=True):
        copy = structure[0]["A"].clone()
        copy.name = "B"
        for residue in copy:
            residue.subchain = f"{residue.subchain}2"
            for atom in residue:
                atom.pos = gemmi.Position(-atom.pos.x - 30, -atom.pos.y - 30, atom.pos.z)
        structure[0].add_chain(copy)
        for entity in structure.entities:
            entity.subchains = [*entity.subchains, *(f"{name}2" for name in entity.subchains)]
        chain = structure[0][removed]
        for index in reversed([k for k, residue in enumerate(chain) if residue.name in ("ZYB", "MOH")]):
            del chain[index]
    result = compared(*structures, tmp_path)
    (row,) = (row for name, row in result.ligands.items() if "ZYB" in name)
    assert row["rmsd"] == pytest.approx(0, abs=1e-3) and str(row["rmsd_model"]).startswith("B:")
