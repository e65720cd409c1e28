import numpy as np
import pytest

from features.assembly.atoms import UnknownAtom, build_atoms
from features.assembly.job import Bond, BondedAtom, Entity, Ligand, Modification, MoleculeJob, Polymer
from features.assembly.tokens import build_tokens
from features.chemistry.molecules import InvalidMolecule
from features.chemistry.residue_classes import MoleculeKind
from msa.base.errors import InputError

PROTEIN = Polymer(MoleculeKind.PROTEIN, "GCA", ("A",))
LIGAND = Ligand(("B",), ("GOL",))
End = tuple[str, int, str]


def job(*entities: Entity, bonds: list[tuple[End, End]] | None = None) -> MoleculeJob:
    items = tuple(Bond(BondedAtom(*first), BondedAtom(*second), line=9) for first, second in bonds or [])
    return MoleculeJob("x", entities, items, path="job.json", line=2)


def test_standard_residues_are_tokens_and_ligand_atoms_are() -> None:
    tokens = build_tokens(build_atoms(job(PROTEIN, LIGAND)))
    assert tokens.count.tolist() == [4, 6, 5] + [1] * 6
    assert tokens.is_atomized.tolist() == [False] * 3 + [True] * 6
    assert len(tokens.bonds) == 5


def test_bond_to_a_ligand_turns_the_residue_into_atoms() -> None:
    tokens = build_tokens(build_atoms(job(PROTEIN, LIGAND, bonds=[(("A", 2, "SG"), ("B", 1, "C1"))])))
    assert tokens.is_atomized.tolist() == [False] + [True] * 6 + [False] + [True] * 6
    assert len(tokens.bonds) == 5 + 5 + 1


def test_neighbours_that_are_both_modified_keep_their_peptide_bond() -> None:
    polymer = Polymer(MoleculeKind.PROTEIN, "GSS", ("A",), (Modification(2, "SEP"), Modification(3, "SEP")))
    atoms = build_atoms(job(polymer))
    tokens = build_tokens(atoms)
    pairs = {
        tuple(sorted((str(atoms.name[tokens.start[i]]), str(atoms.name[tokens.start[j]]))))
        for i, j in tokens.bonds
    }
    assert ("C", "N") in pairs
    assert "OXT" not in atoms.name


def test_entities_with_equal_text_are_told_apart_by_kind_and_modification() -> None:
    entities = (
        Polymer(MoleculeKind.PROTEIN, "GAC", ("P", "Q")),
        Polymer(MoleculeKind.RNA, "GAC", ("R",)),
        Polymer(MoleculeKind.PROTEIN, "GAC", ("S",), (Modification(3, "CSO"),)),
    )
    tokens = build_tokens(build_atoms(job(*entities)))
    first = [int(np.flatnonzero(tokens.chain == chain)[0]) for chain in (1, 2, 3, 4)]
    assert tokens.entity[first].tolist() == [1, 1, 3, 2]
    assert tokens.copy[first].tolist() == [1, 2, 1, 1]


def test_a_smiles_string_that_reads_like_a_code_is_another_entity() -> None:
    # methanol and cobalt
    tokens = build_tokens(build_atoms(job(Ligand(("A",), ("CO",)), Ligand(("B",), smiles="CO"))))
    assert tokens.entity.tolist() == [1, 2, 2] and tokens.copy.tolist() == [1, 1, 1]


def test_a_bonded_atom_loses_its_leaving_neighbour_only_once() -> None:
    # sialic acid's C2 loses O2, whatever else is bonded
    sugar = Ligand(("B",), ("SIA",))
    galactose = Ligand(("C",), ("GAL",))
    atoms = build_atoms(job(sugar, galactose, bonds=[(("B", 1, "C2"), ("C", 1, "O3"))]))
    names = atoms.name[atoms.chain == 0].tolist()
    assert "O2" not in names
    assert len(names) == 20


@pytest.mark.parametrize(
    ("bond", "reason"),
    [
        ((("A", 2, "XX"), ("B", 1, "C1")), "bond to A:2:XX: CYS has no atom 'XX'; its atoms: N, CA, "),
        ((("Z", 2, "SG"), ("B", 1, "C1")), "bond to Z:2:SG: no chain 'Z'"),
        ((("A", 4, "SG"), ("B", 1, "C1")), "bond to A:4:SG: the chain has 3 residues"),
        ((("A", 0, "SG"), ("B", 1, "C1")), "bond to A:0:SG: the chain has 3 residues"),
        ((("A", 2, "SG"), ("A", 2, "SG")), "bond of A:2:SG to itself"),
        ((("A", 2, "OXT"), ("B", 1, "C1")), "bond to A:2:OXT: OXT leaves when CYS is linked"),
    ],
)
def test_bonds_to_missing_atoms_are_refused(bond: tuple[End, End], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        build_atoms(job(PROTEIN, LIGAND, bonds=[bond]))
    assert str(caught.value).startswith(f"job.json:9: {reason}")
    assert isinstance(caught.value, UnknownAtom) or "itself" in reason


def test_two_bonds_between_the_same_atoms_are_refused() -> None:
    bond = (("A", 2, "SG"), ("B", 1, "C1"))
    with pytest.raises(InputError, match=r"job\.json:9: two bonds between B:1:C1 and A:2:SG"):
        build_atoms(job(PROTEIN, LIGAND, bonds=[bond, bond[::-1]]))


@pytest.mark.parametrize(
    ("modifications", "reason"),
    [
        ((Modification(4, "MSE"),), "modification MSE at position 4: the sequence has 3 residues"),
        (
            (Modification(1, "MSE"), Modification(1, "SEP")),
            "modification SEP at position 1: the position has another",
        ),
        (
            (Modification(2, "PSU"),),
            "modification PSU at position 2: its type is RNA LINKING, which cannot be in a protein",
        ),
    ],
)
def test_impossible_modifications_are_refused(modifications: tuple[Modification, ...], reason: str) -> None:
    with pytest.raises(InputError, match=f"job.json:2: {reason}"):
        build_atoms(job(Polymer(MoleculeKind.PROTEIN, "GCA", ("A",), modifications)))


def test_two_chains_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two chains are called 'A'"):
        build_atoms(job(PROTEIN, Ligand(("A",), ("GOL",))))


def test_wildcards_of_smiles_are_refused() -> None:
    with pytest.raises(InvalidMolecule, match=r"job.json:.*'C\*' has '\*', which is no atom"):
        build_atoms(job(PROTEIN, Ligand(("B",), smiles="C*")))


def test_ends_of_cyclic_chains_are_bonded_and_stay_tokens() -> None:
    ring = Polymer(MoleculeKind.PROTEIN, "GCA", ("A",), is_cyclic=True)
    atoms = build_atoms(job(ring))
    (closing,) = (bond for bond in atoms.bonds if abs(int(np.diff(atoms.residue[bond])[0])) == 2)
    assert sorted(atoms.name[closing]) == ["C", "N"]
    assert build_tokens(atoms).count.tolist() == [4, 6, 5]


def test_rings_of_two_residues_are_refused() -> None:
    with pytest.raises(InputError, match=r"job\.json:2: a cyclic chain needs 3 residues, and this one has 2"):
        build_atoms(job(Polymer(MoleculeKind.PROTEIN, "GC", ("A",), is_cyclic=True)))


def test_bonds_within_a_residue_of_a_polymer_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"job\.json:9: bond between A:2:SG and A:2:CA, which are atoms of one"
    ):
        build_atoms(job(PROTEIN, bonds=[(("A", 2, "SG"), ("A", 2, "CA"))]))


OWN = """data_{0}
_chem_comp.id {0}
_chem_comp.name 'my own'
_chem_comp.type non-polymer
loop_
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
SX S
CX C
loop_
_chem_comp_bond.atom_id_1
_chem_comp_bond.atom_id_2
_chem_comp_bond.value_order
SX CX SING
"""


@pytest.mark.parametrize(("defined", "named"), [("MYL", "myl"), ("myl", "MYL"), ("LIG", "LIG")])
def test_components_of_the_user_go_before_the_dictionary_in_any_case(defined: str, named: str) -> None:
    atoms = build_atoms(MoleculeJob("x", (Ligand(("B",), (named,)),), components=OWN.format(defined)))
    assert atoms.name.tolist() == ["SX", "CX"] and set(atoms.code) == {defined}


def test_drawn_ligands_are_not_called_like_components_of_the_user() -> None:
    entities = Ligand(("B",), ("LIG0",)), Ligand(("C",), smiles="CCO")
    atoms = build_atoms(MoleculeJob("x", entities, components=OWN.format("LIG0")))
    assert atoms.code.tolist() == ["LIG0"] * 2 + ["LIG1"] * 3
