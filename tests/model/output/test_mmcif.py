"""Tests of an all-atom prediction as mmCIF: its text, and the identifiers by which readers join its tables.

After a change of the writer, `python -m tests.model.output.test_mmcif` writes the file in data/ again.
"""

from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import pytest

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from features.assembly.job import Bond, BondedAtom, Ligand, Modification, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from model.output.mmcif import format_all_atom_mmcif
from model.output.modelcif import UsedTemplate
from model.output.provenance import Provenance
from tests.molecules import random_prediction

GOLDEN = Path(__file__).parent / "data/all_atom.cif"
# a protein with a modified residue, disulfide, glycan and zinc; RNA, DNA, two copies of a ligand, a drawn one
JOB = MoleculeJob(
    "golden",
    (
        Polymer(MoleculeKind.PROTEIN, "NCSC", ("A",), (Modification(3, "SEP"),)),
        Polymer(MoleculeKind.RNA, "GU", ("R",)),
        Polymer(MoleculeKind.DNA, "A", ("D",)),
        Ligand(("G",), ("NAG", "NAG")),
        Ligand(("L", "M"), ("ACT",)),
        Ligand(("S",), smiles="C[NH3+]"),
        Ligand(("Z",), ("ZN",)),
    ),
    (
        Bond(BondedAtom("A", 2, "SG"), BondedAtom("A", 4, "SG")),
        Bond(BondedAtom("A", 1, "ND2"), BondedAtom("G", 1, "C1")),
        Bond(BondedAtom("G", 1, "O4"), BondedAtom("G", 2, "C1")),
        Bond(BondedAtom("A", 3, "O2P"), BondedAtom("Z", 1, "ZN")),
    ),
)
TEMPLATES = (
    UsedTemplate("A", "1abc", "B", "chain B of 1ABC", ("NCSC", "GCGSC"), ((1, 1), (2, 3), (3, 4)), 1.0),
    UsedTemplate("A", None, "X", "own.cif"),
)


def golden_text() -> str:
    prediction = random_prediction(JOB)
    count = len(prediction.positions)
    # exact in float32, and the same whatever conformers RDKit makes
    positions = (np.arange(3 * count).reshape(count, 3) * 0.25 - 20).astype(np.float32)
    provenance = Provenance(
        "golden", "foldcli 0.0", "openfold3_p2, seed 0, sample 1", "a warning", note="A note"
    )
    prediction = replace(prediction, positions=positions)
    return format_all_atom_mmcif(prediction, provenance, TEMPLATES)


def test_file_equals_the_golden_one() -> None:
    assert golden_text() == GOLDEN.read_text()


def rows(block: gemmi.cif.Block, category: str, columns: str) -> list[tuple[str, ...]]:
    """Return the cells of columns, whose names are separated by spaces."""
    table = block.find(f"{category}.", columns.split())
    assert len(table) > 0, (category, columns)
    return [tuple(gemmi.cif.as_string(cell) if cell != "." else cell for cell in row) for row in table]


@pytest.fixture(scope="module")
def block() -> gemmi.cif.Block:
    return gemmi.cif.read(str(GOLDEN)).sole_block()


# parents and children, as the dictionary of mmCIF links them
KEYS = {
    ("_chem_comp", "id"): [
        ("_atom_site", "label_comp_id"), ("_chem_comp_atom", "comp_id"), ("_entity_poly_seq", "mon_id"),
        ("_pdbx_entity_nonpoly", "comp_id"), ("_pdbx_entity_branch_list", "comp_id"),
        ("_ma_chem_comp_descriptor", "chem_comp_id"),
    ],
    ("_chem_comp_atom", "comp_id atom_id"): [
        ("_atom_site", "label_comp_id label_atom_id"), ("_chem_comp_bond", "comp_id atom_id_1"),
        ("_chem_comp_bond", "comp_id atom_id_2"), ("_pdbx_entity_branch_link", "comp_id_1 atom_id_1"),
        ("_pdbx_entity_branch_link", "comp_id_2 atom_id_2"),
        ("_pdbx_entity_branch_link", "comp_id_2 leaving_atom_id_2"),
    ],
    ("_atom_type", "symbol"): [("_atom_site", "type_symbol"), ("_chem_comp_atom", "type_symbol")],
    ("_struct_conn_type", "id"): [("_struct_conn", "conn_type_id")],
    ("_struct_asym", "id entity_id"): [
        ("_atom_site", "label_asym_id label_entity_id"), ("_pdbx_poly_seq_scheme", "asym_id entity_id"),
        ("_pdbx_nonpoly_scheme", "asym_id entity_id"), ("_pdbx_branch_scheme", "asym_id entity_id"),
        ("_ma_target_entity_instance", "asym_id entity_id"),
    ],
    ("_entity_poly_seq", "entity_id num mon_id"): [("_pdbx_poly_seq_scheme", "entity_id seq_id mon_id")],
    ("_pdbx_entity_nonpoly", "entity_id comp_id"): [("_pdbx_nonpoly_scheme", "entity_id mon_id")],
    ("_pdbx_entity_branch_list", "entity_id num comp_id"): [
        ("_pdbx_branch_scheme", "entity_id num mon_id"),
        ("_pdbx_entity_branch_link", "entity_id entity_branch_list_num_1 comp_id_1"),
        ("_pdbx_entity_branch_link", "entity_id entity_branch_list_num_2 comp_id_2"),
    ],
    ("_atom_site", "label_asym_id label_seq_id label_comp_id"): [
        ("_ma_qa_metric_local", "label_asym_id label_seq_id label_comp_id"),
    ],
    ("_ma_qa_metric", "id"): [("_ma_qa_metric_local", "metric_id"), ("_ma_qa_metric_global", "metric_id")],
    ("_ma_data", "id"): [
        ("_ma_data_group", "data_id"), ("_ma_target_entity", "data_id"), ("_ma_model_list", "data_id"),
        ("_ma_template_details", "template_data_id"), ("_ma_alignment_info", "data_id"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("parent", "children"), KEYS.items(), ids=lambda value: value[0] if len(value) == 2 else ""
)
def test_identifiers_name_rows_of_their_parents(
    block: gemmi.cif.Block, parent: tuple[str, str], children: list[tuple[str, str]]
) -> None:
    known = set(rows(block, *parent))
    for child in children:
        assert set(rows(block, *child)) <= known, child


# asym, entity, component, sequence number; then the author's chain, component, number and insertion code
RESIDUE = "label_asym_id label_entity_id label_comp_id label_seq_id"
AUTHOR = "auth_asym_id auth_comp_id auth_seq_id pdbx_PDB_ins_code"
SCHEMES = {
    "_pdbx_poly_seq_scheme": ("seq_id", "pdb_strand_id", "pdb_ins_code"),
    "_pdbx_nonpoly_scheme": (None, "pdb_strand_id", "pdb_ins_code"),
    "_pdbx_branch_scheme": (None, "pdb_asym_id", None),
}


def test_schemes_have_the_identifiers_of_every_atom(block: gemmi.cif.Block) -> None:
    """The author's numbers of a scheme are those of the atoms, by which viewers join the tables."""
    described = set()
    for scheme, (sequence, chain, insertion) in SCHEMES.items():
        for source in ("pdb", "auth"):
            names = [
                "asym_id",
                "entity_id",
                "mon_id",
                sequence,
                chain,
                f"{source}_mon_id",
                f"{source}_seq_num",
            ]
            found = [rows(block, scheme, name) if name else None for name in (*names, insertion)]
            count = len(found[0] or ())
            cells = [["."] * count if column is None else [cell for (cell,) in column] for column in found]
            described |= set(zip(*cells, strict=True))
    atoms = {(*row[:-1], ".") for row in rows(block, "_atom_site", f"{RESIDUE} {AUTHOR}")}
    assert described == atoms


def test_ends_of_links_are_atoms(block: gemmi.cif.Block) -> None:
    columns = "label_asym_id label_comp_id label_seq_id label_atom_id auth_asym_id auth_comp_id auth_seq_id"
    atoms = rows(block, "_atom_site", columns)
    assert len(set(atoms)) == len(atoms)
    for side in (1, 2):
        ends = rows(block, "_struct_conn", " ".join(f"ptnr{side}_{name}" for name in columns.split()))
        assert set(ends) <= set(atoms)


def test_gemmi_reads_the_entities_and_links(block: gemmi.cif.Block) -> None:
    structure = gemmi.make_structure_from_block(block)
    entities = {x.name: (x.entity_type.name, x.polymer_type.name, x.subchains) for x in structure.entities}
    assert entities == {
        "1": ("Polymer", "PeptideL", ["A"]),
        "2": ("Polymer", "Rna", ["R"]),
        "3": ("Polymer", "Dna", ["D"]),
        "4": ("Branched", "Unknown", ["G"]),
        "5": ("NonPolymer", "Unknown", ["L", "M"]),
        "6": ("NonPolymer", "Unknown", ["S"]),
        "7": ("NonPolymer", "Unknown", ["Z"]),
    }
    assert [(x.type.name, str(x.partner1), str(x.partner2)) for x in structure.connections] == [
        ("Disulf", "A/CYS 2/SG", "A/CYS 4/SG"),
        ("Covale", "A/ASN 1/ND2", "G/NAG 1/C1"),
        ("Covale", "G/NAG 1/O4", "G/NAG 2/C1"),
        ("MetalC", "A/SEP 3/O2P", "Z/ZN 1/ZN"),
    ]


if __name__ == "__main__":
    GOLDEN.write_text(golden_text())
