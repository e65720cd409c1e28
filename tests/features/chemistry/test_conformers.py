import dataclasses

import numpy as np
import pytest
from rdkit import Chem

from features.assembly.atoms import build_atoms
from features.assembly.job import Bond, BondedAtom, Ligand, MoleculeJob, Polymer
from features.chemistry.components import Component, read_component
from features.chemistry.conformers import ConformerGenerator, stored_conformer
from features.chemistry.molecules import InvalidMolecule, build_molecule, parse_smiles
from features.chemistry.residue_classes import MoleculeKind


def smiles(component: Component) -> str:
    return str(Chem.MolToSmiles(build_molecule(component)))


def canonical(text: str) -> str:
    return str(Chem.CanonSmiles(text))


def test_components_become_the_molecules_they_are() -> None:
    assert smiles(read_component("ALA")) == canonical("C[C@H](N)C(=O)O")
    assert smiles(read_component("DAL")) == canonical("C[C@@H](N)C(=O)O")
    assert smiles(read_component("GOL")) == canonical("OCC(O)CO")
    assert smiles(read_component("NAG")) == canonical("CC(=O)N[C@@H]1[C@@H](O)[C@H](O)[C@@H](CO)O[C@H]1O")


def test_atoms_of_smiles_are_named_by_element_and_number() -> None:
    component = parse_smiles("C[C@H](N)C(=O)[O-].[H]Cl", "LIG0")
    assert component.names == ("C1", "C2", "N1", "C3", "O1", "O2", "CL1")
    assert component.charges.tolist() == [0, 0, 0, 0, 0, -1, 0]
    assert component.code == "LIG0"


@pytest.mark.parametrize("text", ["C(", "CX", "C1CC", "F(C)(C)C", "[H][H]"])
def test_invalid_smiles_is_a_typed_error(text: str) -> None:
    with pytest.raises(InvalidMolecule, match="SMILES"):
        parse_smiles(text)


def test_glycan_of_one_chain_is_one_molecule_with_its_handedness() -> None:
    # the core of N-glycans: GlcNAc-β1,4-GlcNAc and a β-mannose, bonded to asparagine
    bonds = [
        (("A", 2, "ND2"), ("B", 1, "C1")),
        (("B", 1, "O4"), ("B", 2, "C1")),
        (("B", 2, "O4"), ("B", 3, "C1")),
    ]
    job = MoleculeJob(
        "glycan",
        (Polymer(MoleculeKind.PROTEIN, "GN", ("A",)), Ligand(("B",), ("NAG", "NAG", "BMA"))),
        tuple(Bond(BondedAtom(*first), BondedAtom(*second)) for first, second in bonds),
    )
    atoms = build_atoms(job)
    molecule = atoms.molecules[-1]
    assert len(atoms.molecules) == 3
    assert smiles(molecule.component) == canonical(
        "CC(=O)N[C@H]1[C@H](O)O[C@H](CO)[C@@H](O[C@@H]2O[C@H](CO)[C@@H](O[C@@H]3O[C@H](CO)[C@@H](O)[C@H](O)"
        "[C@@H]3O)[C@H](O)[C@H]2NC(C)=O)[C@@H]1O"
    )
    # the oxygen that asparagine replaces is in the conformer, and is not predicted
    assert [name for name, kept in zip(molecule.component.names, molecule.kept, strict=True) if not kept] == [
        "O1"
    ]


def test_same_seed_gives_the_same_conformers() -> None:
    ligand = parse_smiles("CC(C)Cc1ccc(cc1)[C@@H](C)C(=O)O")
    first, again, other = (ConformerGenerator(seed).generate_all([(ligand, False)])[0] for seed in (5, 5, 6))
    assert first.source == "rdkit"
    np.testing.assert_array_equal(first.positions, again.positions)
    assert np.abs(first.positions - other.positions).max() > 0.1


def test_conformers_made_together_are_those_made_one_after_the_other() -> None:
    alanine, serine = read_component("ALA"), read_component("SER")
    # with elements that RDKit refuses, every attempt takes a number of the stream
    broken = dataclasses.replace(alanine, elements=("N", "F", *alanine.elements[2:]))
    components = [(alanine, True), (serine, True), (broken, True), (alanine, True), (serine, False)]
    one_by_one = ConformerGenerator(4)
    expected = [one_by_one.generate_all([x])[0] for x in components]
    found = ConformerGenerator(4).generate_all(components)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x.positions, y.positions)
    assert [x.source for x in found] == ["rdkit", "rdkit", "ideal", "rdkit", "rdkit"]
    assert np.abs(found[0].positions - found[3].positions).max() > 0.1


def test_fallback_is_the_dictionary_then_nothing() -> None:
    alanine = read_component("ALA")
    absent = np.full((6, 3), np.nan)
    without_ideal = dataclasses.replace(alanine, ideal=absent)
    partial = dataclasses.replace(
        without_ideal, model=np.where(np.arange(6)[:, None] < 2, np.nan, alanine.model)
    )
    nothing = dataclasses.replace(without_ideal, model=absent)
    assert [stored_conformer(item).source for item in (alanine, without_ideal, partial, nothing)] == [
        "ideal", "model", "model", "none",
    ]  # fmt: skip
    assert stored_conformer(partial).mask.tolist() == [False, False, True, True, True, True]
    assert not stored_conformer(partial).positions[:2].any()
    assert not stored_conformer(nothing).mask.any()


def test_molecule_that_rdkit_refuses_gets_the_stored_conformer() -> None:
    alanine = read_component("ALA")
    elements = ("N", "F", *alanine.elements[2:])  # fluorine with three bonds
    broken = dataclasses.replace(alanine, elements=elements)
    conformer = ConformerGenerator(1).generate_all([(broken, False)])[0]
    assert conformer.source == "ideal"
    np.testing.assert_array_equal(conformer.positions, alanine.ideal.astype(np.float32))
