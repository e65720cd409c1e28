"""Tests of experimental complexes on real entries, to which assemblies and bonds are added."""

import gzip
from pathlib import Path

import gemmi
import numpy as np
import pytest

from features.assembly.atoms import UnknownAtom
from features.assembly.job import Bond, BondedAtom, Ligand, Modification, Polymer
from features.assembly.tokens import build_tokens
from features.chemistry.residue_classes import MoleculeKind
from features.templates.library.structure_files import read_chains
from features.training.experiment import ExperimentalComplex, read_complex
from msa.base.errors import InputError

ENTRIES = Path(__file__).parents[1] / "templates" / "data"


def entry(name: str) -> ExperimentalComplex:
    """Read an entry of the tests."""
    return read_complex(ENTRIES / f"{name}.cif.gz")


def changed(tmp_path: Path, name: str, addition: str) -> Path:
    """Write an entry with a text added to its block."""
    path = tmp_path / f"{name}.cif"
    path.write_text(gzip.decompress((ENTRIES / f"{name}.cif.gz").read_bytes()).decode() + addition)
    return path


def test_proteins_ligands_and_ions_become_entities() -> None:
    trypsin = entry("1gbt")
    protein, *ligands = trypsin.job.entities
    assert isinstance(protein, Polymer)
    assert len(protein.sequence) == 223
    assert ligands == [Ligand(("B",), ("CA",)), Ligand(("C", "D"), ("SO4",)), Ligand(("E",), ("GBS",))]
    # of the sulfates, only the sulfur is resolved
    sulfates = trypsin.atoms.code == "SO4"
    assert trypsin.atoms.name[sulfates & trypsin.resolved].tolist() == ["S", "S"]
    assert sulfates.sum() == 10


def test_coordinates_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    path = changed(tmp_path, "1as5", "")
    first = next(line for line in path.read_text().splitlines() if line.startswith("ATOM"))
    x = first.split()[10]
    path.write_text(path.read_text().replace(first, first.replace(f" {x} ", " abc ", 1), 1))
    broken, whole = read_complex(path), entry("1as5")
    assert broken.remarks == (*whole.remarks, "atoms without coordinates: 1")
    assert broken.resolved.sum() == whole.resolved.sum() - 1


def test_coordinates_are_those_of_the_file() -> None:
    trypsin = entry("1gbt")
    structure = gemmi.read_structure(str(ENTRIES / "1gbt.cif.gz"))
    theirs = {
        (residue.label_seq, atom.name): atom.pos.tolist()
        for residue in structure[0].get_subchain("A")
        for atom in residue
    }
    of_chain = trypsin.atoms.chain == 0
    found = 0
    for index in np.flatnonzero(of_chain & trypsin.resolved):
        key = int(trypsin.atoms.residue[index]), trypsin.atoms.name[index]
        assert trypsin.positions[index].tolist() == pytest.approx(theirs[key], abs=1e-3)
        found += 1
    # all but the last oxygen, which polymers do not have
    assert found == len({key for key in theirs if key[1] != "OXT"})


def test_residues_of_a_pdb_file_have_their_places_in_its_sequence(tmp_path: Path) -> None:
    structure = gemmi.read_structure(str(ENTRIES / "1a8o.cif.gz"))
    structure.setup_entities()
    del structure[0][0][:5]
    structure.write_pdb(str(tmp_path / "x.pdb"))
    given, whole = read_complex(tmp_path / "x.pdb"), entry("1a8o")
    assert [each.sequence for each in given.job.entities] == [each.sequence for each in whole.job.entities]
    here = whole.resolved & (whole.atoms.residue > 5)
    assert given.resolved.tolist() == here.tolist()
    np.testing.assert_allclose(given.positions[here], whole.positions[here], atol=1e-3)
    (template,) = read_chains(tmp_path / "x.pdb")
    assert (len(template.sequence), template.resolved) == (70, 65)


def test_residue_numbers_of_files_without_sequence_may_start_anywhere(tmp_path: Path) -> None:
    block = gemmi.cif.read(str(ENTRIES / "1a8o.cif.gz")).sole_block()
    for category in ("_entity_poly_seq.", "_entity_poly.", "_pdbx_poly_seq_scheme."):
        block.find_mmcif_category(category).erase()
    for row in block.find("_atom_site.", ["label_seq_id"]):
        row[0] = str(int(row[0]) + 5) if row[0].isdigit() else row[0]
    (tmp_path / "x.cif").write_text(block.as_string())
    given, whole = read_complex(tmp_path / "x.cif"), entry("1a8o")
    assert given.resolved.tolist() == whole.resolved.tolist()


def test_nucleic_acids_are_read_with_their_kind() -> None:
    complex_ = entry("1lcd")
    kinds = [entity.kind for entity in complex_.job.entities if isinstance(entity, Polymer)]
    assert kinds == [MoleculeKind.DNA, MoleculeKind.DNA, MoleculeKind.PROTEIN]
    assert complex_.resolved.mean() > 0.99


def test_modified_residues_keep_their_atoms() -> None:
    peptide = entry("1as5")
    (entity,) = peptide.job.entities
    assert isinstance(entity, Polymer)
    assert entity.sequence == "HPPCCLYGKCRRYPGCSSASCCQRX"
    assert entity.modifications[0] == Modification(2, "HYP")
    assert bool(peptide.resolved[(peptide.atoms.code == "HYP") & (peptide.atoms.name == "OD1")].all())
    selenium = entry("1a8o")
    assert bool(selenium.resolved[selenium.atoms.element == "SE"].all())
    tokens = build_tokens(selenium.atoms)
    assert tokens.is_atomized.sum() == (selenium.atoms.code == "MSE").sum()


ASSEMBLY = """
loop_
_pdbx_struct_assembly.id
_pdbx_struct_assembly.details
_pdbx_struct_assembly.method_details
_pdbx_struct_assembly.oligomeric_details
_pdbx_struct_assembly.oligomeric_count
1 author_defined_assembly ? dimeric 2
loop_
_pdbx_struct_assembly_gen.assembly_id
_pdbx_struct_assembly_gen.oper_expression
_pdbx_struct_assembly_gen.asym_id_list
1 1,2 A,B
loop_
_pdbx_struct_oper_list.id
_pdbx_struct_oper_list.type
_pdbx_struct_oper_list.matrix[1][1]
_pdbx_struct_oper_list.matrix[1][2]
_pdbx_struct_oper_list.matrix[1][3]
_pdbx_struct_oper_list.vector[1]
_pdbx_struct_oper_list.matrix[2][1]
_pdbx_struct_oper_list.matrix[2][2]
_pdbx_struct_oper_list.matrix[2][3]
_pdbx_struct_oper_list.vector[2]
_pdbx_struct_oper_list.matrix[3][1]
_pdbx_struct_oper_list.matrix[3][2]
_pdbx_struct_oper_list.matrix[3][3]
_pdbx_struct_oper_list.vector[3]
1 'identity operation' 1 0 0 0 0 1 0 0 0 0 1 0
2 'crystal symmetry operation' -1 0 0 10 0 -1 0 20 0 0 1 30
"""


def test_the_assembly_has_moved_copies(tmp_path: Path) -> None:
    dimer = read_complex(changed(tmp_path, "4cup", ASSEMBLY))
    protein, ligand = dimer.job.entities
    assert protein.chains == ("A", "A-2")
    assert ligand == Ligand(("B", "B-2"), ("ZYB",))  # methanol is not part of it
    names = np.array([chain.name for chain in dimer.atoms.chains])[dimer.atoms.chain]
    first, second = (dimer.positions[(names == name) & dimer.resolved] for name in ("A", "A-2"))
    assert second == pytest.approx(first * [-1, -1, 1] + [10, 20, 30], abs=1e-3)


@pytest.mark.parametrize(("first", "second", "x"), [("0.50", "0.50", 23.908), ("0.40", "0.60", 30.0)])
def test_the_alternative_location_with_the_highest_occupancy_counts(
    tmp_path: Path, first: str, second: str, x: float
) -> None:
    path = changed(tmp_path, "4cup", "")
    line = next(line for line in path.read_text().splitlines() if line.startswith("ATOM 127 N N . CYS"))
    fields = line.split()
    alternatives = []
    for letter, occupancy, place in (("A", first, fields[10]), ("B", second, "30.000")):
        changes = {4: letter, 10: place, 13: occupancy}
        alternatives.append(" ".join(changes.get(k, field) for k, field in enumerate(fields)))
    path.write_text(path.read_text().replace(line, "\n".join(alternatives)))
    known = read_complex(path)
    atom = (known.atoms.residue == 18) & (known.atoms.name == "N") & (known.atoms.chain == 0)
    assert known.positions[atom][0, 0] == pytest.approx(x)


CONNECTION = """
loop_
_struct_conn.id
_struct_conn.conn_type_id
_struct_conn.ptnr1_label_asym_id
_struct_conn.ptnr1_auth_asym_id
_struct_conn.ptnr1_label_comp_id
_struct_conn.ptnr1_auth_seq_id
_struct_conn.ptnr1_label_seq_id
_struct_conn.ptnr1_label_atom_id
_struct_conn.ptnr2_label_asym_id
_struct_conn.ptnr2_auth_asym_id
_struct_conn.ptnr2_label_comp_id
_struct_conn.ptnr2_auth_seq_id
_struct_conn.ptnr2_label_seq_id
_struct_conn.ptnr2_label_atom_id
_struct_conn.ptnr1_symmetry
_struct_conn.ptnr2_symmetry
covale1 covale A A SER 1874 19 OG B A ZYB 2971 . {atom} 1_555 1_555
covale2 covale A A SER 1856 1 C A A MET 1857 2 N 1_555 1_555
metalc1 metalc A A SER 1858 3 OG B A ZYB 2971 . O 1_555 1_555
disulf1 disulf A A CYS 1873 18 SG A A CYS 1942 87 SG 1_555 1_555
"""


def test_covalent_bonds_that_no_sequence_implies_are_read(tmp_path: Path) -> None:
    bonded = read_complex(changed(tmp_path, "4cup", CONNECTION.format(atom="C2")))
    (bond,) = bonded.job.bonds
    assert bond == Bond(BondedAtom("A", 19, "OG"), BondedAtom("B", 1, "C2"))
    tokens = build_tokens(bonded.atoms)
    # the serine becomes single atoms, one of which is bonded to the ligand
    kinds = bonded.atoms.kind[tokens.start[tokens.bonds]]
    assert (kinds.min(axis=1) != kinds.max(axis=1)).sum() == 1


def test_each_copy_of_an_assembly_has_its_bonds(tmp_path: Path) -> None:
    bonded = read_complex(changed(tmp_path, "4cup", CONNECTION.format(atom="C2") + ASSEMBLY))
    assert [(x.first.chain, x.second.chain) for x in bonded.job.bonds] == [("A", "B"), ("A-2", "B-2")]


def test_a_bond_to_an_atom_that_the_component_lacks_is_named(tmp_path: Path) -> None:
    path = changed(tmp_path, "4cup", CONNECTION.format(atom="C2"))
    text = path.read_text()
    path.write_text(text.replace("C2  . ZYB", "C99 . ZYB").replace(". C2 1_555", ". C99 1_555"))
    with pytest.raises(UnknownAtom, match=r"4cup.cif.*ZYB has no atom 'C99'"):
        read_complex(path)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cif"
    broken.write_text("data_x\nloop_\n_atom_site.id\n_atom_site.type_symbol\n1\n")
    with pytest.raises(InputError, match="broken"):
        read_complex(broken)
    other = tmp_path / "other.cif"
    other.write_text("hello")
    with pytest.raises(InputError, match=r"other.cif.*neither an mmCIF nor a PDB file"):
        read_complex(other)
    with pytest.raises(InputError, match="at most 2 are used"):
        read_complex(ENTRIES / "4cup.cif.gz", max_chains=2)
