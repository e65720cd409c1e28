"""Surprising facts about the molecules of a job."""

import pytest

from features.assembly.atoms import build_atoms
from features.assembly.job import Bond, BondedAtom, Ligand, Modification, MoleculeJob, Polymer
from features.assembly.notes import molecule_notes
from features.assembly.tokens import build_tokens
from features.chemistry.residue_classes import MoleculeKind

PROTEIN = MoleculeKind.PROTEIN
TYPES = ", because of their types in the dictionary"
SUGARS = Ligand(("B",), ("NAG", "NAG", "BMA"))


def polymer(sequence: str, *modifications: Modification, kind: MoleculeKind = PROTEIN) -> Polymer:
    return Polymer(kind, sequence, ("A",), modifications)


def bond(first: tuple[str, int, str], second: tuple[str, int, str]) -> Bond:
    return Bond(BondedAtom(*first), BondedAtom(*second))


def notes(*entities: Polymer | Ligand, bonds: tuple[Bond, ...] = ()) -> list[str]:
    atoms = build_atoms(MoleculeJob("x", entities, bonds))
    return molecule_notes(atoms, build_tokens(atoms))


JOINED = (bond(("B", 1, "O4"), ("B", 2, "C1")), bond(("B", 2, "O4"), ("B", 3, "C1")))


def test_usual_molecules_have_no_surprises() -> None:
    usual = polymer("MKSC", Modification(3, "SEP")), Ligand(("L",), ("ATP",))
    assert not notes(*usual, bonds=(bond(("A", 4, "SG"), ("L", 1, "C2")),))
    assert not notes(SUGARS, bonds=JOINED)
    assert not notes(polymer("ACGUN", Modification(4, "PSU"), kind=MoleculeKind.RNA))
    assert not notes(polymer("ACTN", Modification(2, "5CM"), kind=MoleculeKind.DNA))
    assert not notes(Polymer(PROTEIN, "GAGA", ("A",), is_cyclic=True))


@pytest.mark.parametrize(
    ("sequence", "modifications", "expected"),
    [
        ("MUXK", (), "predicted as unknown amino acids (UNK): U2, X3"),
        ("MKSC", (Modification(2, "SEP"),), "modifications of other residues: SEP (S) instead of K2"),
        ("MKSC", (Modification(2, "ATP"),), f"no bond between MET 1 and ATP 2, ATP 2 and SER 3{TYPES}"),
        ("XKSC", (Modification(1, "ACE"),), f"no bond between ACE 1 and LYS 2{TYPES}"),
    ],
)
def test_residues_that_differ_from_their_letters_and_open_links_are_named(
    sequence: str, modifications: tuple[Modification, ...], expected: str
) -> None:
    assert notes(polymer(sequence, *modifications)) == [f"chain A: {expected}"]


def test_names_of_bonded_atoms_of_drawn_ligands_are_explained() -> None:
    drawn = Ligand(("L",), smiles="ClCCO")
    assert notes(polymer("MKC"), drawn, bonds=(bond(("A", 3, "SG"), ("L", 1, "C1")),)) == [
        "atoms of SMILES strings are counted by element in the order of the string: A:3:SG–L:1:C1"
    ]


def test_rings_that_do_not_close_are_named() -> None:
    ring = Polymer(PROTEIN, "GAX", ("A",), (Modification(3, "NH2"),), is_cyclic=True)
    assert notes(ring) == [f"chain A: no bond between ALA 2 and NH2 3, NH2 3 and GLY 1{TYPES}"]


def test_parts_of_a_ligand_without_bonds_are_named() -> None:
    assert notes(SUGARS, bonds=JOINED[:1]) == [
        "chain B: NAG-NAG-BMA: the job has no bonds that join these components"
    ]


def test_bonds_that_the_network_does_not_see_are_named() -> None:
    acetyl = Ligand(("B",), ("ACE",))
    (note,) = notes(polymer("MKSC"), acetyl, bonds=(bond(("A", 1, "N"), ("B", 1, "C")),))
    assert note.startswith("bonds that the network does not see") and note.endswith(": A:1:N–B:1:C")
    (note,) = notes(polymer("MKSC"), bonds=(bond(("A", 1, "N"), ("A", 4, "C")),))
    assert note.endswith(": A:1:N–A:4:C")
