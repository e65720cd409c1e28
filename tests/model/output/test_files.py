"""Tests of the files of predictions of molecules, read back with gemmi and biotite."""

import io
import json
from dataclasses import replace

import gemmi
import numpy as np
import pytest

pytest.importorskip("rdkit")
pytest.importorskip("biotite")

from biotite.structure.io import pdbx

from features.assembly.job import Modification, MoleculeJob, Polymer
from features.chemistry.residue_classes import MoleculeKind
from model.output.mmcif import format_all_atom_mmcif
from model.output.modelcif import UsedTemplate, format_pairwise_scores
from model.output.pdb import format_all_atom_pdb, reason_against_pdb
from model.output.provenance import Provenance
from model.output.scores import format_all_atom_scores, format_confidences, format_summary_confidences
from model.prediction import Prediction
from tests.molecules import GLYCAN, random_prediction

PROVENANCE = Provenance("target_1", "foldcli 0.0", "openfold3_p2, seed 0, sample 1")


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return random_prediction()


@pytest.fixture(scope="module")
def block(prediction: Prediction) -> gemmi.cif.Block:
    templates = [UsedTemplate("A", "1abc", "B", "chain B of 1ABC"), UsedTemplate("A", None, "X", "own.cif")]
    text = format_all_atom_mmcif(prediction, PROVENANCE, templates)
    return gemmi.cif.read_string(text).sole_block()


def read_text(text: str) -> gemmi.Structure:
    return gemmi.make_structure_from_block(gemmi.cif.read_string(text).sole_block())


def test_gemmi_reads_every_atom_where_it_was_written(prediction: Prediction, block: gemmi.cif.Block) -> None:
    structure, tables = gemmi.make_structure_from_block(block), prediction.structure
    atoms = [atom for chain in structure[0] for residue in chain for atom in residue]
    assert [atom.name for atom in atoms] == tables.atom_name.tolist()
    assert [atom.element.name for atom in atoms] == tables.atom_element.tolist()
    assert [atom.charge for atom in atoms] == tables.atom_charge.tolist()
    assert [atom.pos.tolist() for atom in atoms] == pytest.approx(prediction.positions, abs=6e-4)
    assert [atom.b_iso for atom in atoms] == pytest.approx(prediction.atom_plddt, abs=6e-3)
    assert [chain.name for chain in structure[0]] == list(tables.chain_names)


def test_gemmi_reads_the_entities(block: gemmi.cif.Block) -> None:
    structure = gemmi.make_structure_from_block(block)
    polymers = {e.name: (e.polymer_type.name, e.full_sequence) for e in structure.entities if e.full_sequence}
    assert polymers == {
        "1": ("PeptideL", ["MET", "LYS", "TRP", "CYS"]),
        "4": ("Dna", ["DA", "DC"]),
        "5": ("Rna", ["G", "U"]),
    }
    others = [entity.entity_type.name for entity in structure.entities if not entity.full_sequence]
    assert others == ["NonPolymer"] * 3


def test_biotite_reads_every_bond_with_its_order(prediction: Prediction) -> None:
    text = format_all_atom_mmcif(prediction, PROVENANCE)
    atoms = pdbx.get_structure(pdbx.CIFFile.read(io.StringIO(text)), model=1, include_bonds=True)
    found = {(int(a), int(b)): int(kind) for a, b, kind in atoms.bonds.as_array()}
    expected = {tuple(sorted(bond[:2])): bond[2] for bond in prediction.structure.bonds.tolist()}
    assert found.keys() == expected.keys()
    # biotite numbers aromatic single and double bonds 5 and 6
    orders = {5: 1, 6: 2}
    drawn = {pair for pair in expected if prediction.structure.atom_chain[pair[0]] == 2}
    assert {pair: orders.get(found[pair], found[pair]) for pair in drawn} == {
        pair: expected[pair] for pair in drawn
    }
    assert sum(order == 2 for pair, order in expected.items() if pair in drawn) == 3


def test_modelcif_categories_name_data_software_and_templates(block: gemmi.cif.Block) -> None:
    def rows(category: str, *columns: str) -> list[list[str]]:
        return [[gemmi.cif.as_string(cell) for cell in row] for row in block.find(category, list(columns))]

    assert rows("_ma_data.", "content_type")[0] == ["model coordinates"]
    assert len(rows("_ma_data.", "content_type")) == 1 + 6 + 2
    assert rows("_ma_protocol_step.", "method_type", "output_data_group_id") == [["modeling", "2"]]
    assert rows("_software.", "name", "version") == [["foldcli", "0.0"]]
    assert rows("_ma_template_details.", "template_origin", "target_asym_id", "template_auth_asym_id") == [
        ["reference database", "A", "B"],
        ["customized", "A", "X"],
    ]
    assert rows("_ma_template_ref_db_details.", "db_name", "db_accession_code") == [["PDB", "1ABC"]]
    assert rows("_ma_qa_metric.", "name", "mode")[:2] == [["pLDDT", "global"], ["pLDDT", "local"]]
    assert rows("_ma_chem_comp_descriptor.", "chem_comp_id", "value") == [["LIG0", "C[C@H](O)c1ccccc1"]]
    provenance = dict(rows("_chem_comp.", "id", "ma_provenance"))
    assert provenance["GOL"] == "CCD Core" and provenance["LIG0"] == "CCD local"


def test_pairwise_file_has_the_pae_and_pde_of_all_tokens(prediction: Prediction) -> None:
    block = gemmi.cif.read_string(format_pairwise_scores(prediction, PROVENANCE)).sole_block()
    table = block.find(
        "_ma_qa_metric_feature_pairwise.", ["feature_id_1", "feature_id_2", "metric_id", "metric_value"]
    )
    values = np.array([list(map(float, row)) for row in table])
    count = len(prediction.pae)
    assert len(values) == 2 * count**2
    assert values[: count**2, 3].reshape(count, count) == pytest.approx(prediction.pae, abs=6e-3)
    assert values[count**2 :, 3].reshape(count, count) == pytest.approx(prediction.all_atom.pde, abs=6e-3)
    atoms = np.array(block.find_values("_ma_atom_feature.atom_id"), int)
    assert (
        atoms.tolist() == (prediction.structure.token_start[prediction.structure.token_is_atom] + 1).tolist()
    )


def test_branched_ligands_keep_their_residues_and_links() -> None:
    text = format_all_atom_mmcif(random_prediction(GLYCAN), PROVENANCE)
    structure = read_text(text)
    assert [entity.entity_type.name for entity in structure.entities] == ["Polymer", "Branched"]
    assert [residue.name for residue in structure[0]["B"]] == ["NAG", "NAG"]
    assert [str(residue.seqid) for residue in structure[0]["B"]] == ["1", "2"]
    links = {(str(item.partner1.atom_name), str(item.partner2.atom_name)) for item in structure.connections}
    assert links == {("ND2", "C1"), ("O4", "C1")}
    block = gemmi.cif.read_string(text).sole_block()
    columns = [
        f"{item}_{side}"
        for side in (1, 2)
        for item in ("entity_branch_list_num", "atom_id", "leaving_atom_id")
    ]
    assert [list(row) for row in block.find("_pdbx_entity_branch_link.", columns)] == [
        ["1", "O4", "?", "2", "C1", "O1"]
    ]


def test_pdb_holds_the_same_atoms_with_bonds_of_ligands(prediction: Prediction) -> None:
    text = format_all_atom_pdb(prediction, PROVENANCE)
    structure, tables = gemmi.read_pdb_string(text), prediction.structure
    atoms = [atom for chain in structure[0] for residue in chain for atom in residue]
    assert [atom.name for atom in atoms] == tables.atom_name.tolist()
    assert [atom.pos.tolist() for atom in atoms] == pytest.approx(prediction.positions, abs=6e-4)
    assert structure[0]["C"][0].name == "LIG" and "REMARK   6 LIG is LIG0" in text
    zinc = next(line for line in text.splitlines() if line.startswith("HETATM") and " ZN " in line)
    assert zinc[76:80] == "ZN2+"
    lines = [line for line in text.splitlines() if line.startswith("CONECT")]
    partners = sum(len(line.split()) - 2 for line in lines)
    ligand = ~tables.chain_is_polymer[tables.atom_chain]
    # each bond from both ends, double bonds twice
    assert partners == 2 * tables.bonds[ligand[tables.bonds[:, 0]], 2].sum()
    # by the numbers in the file, which the TER records shift
    records = [line for line in text.splitlines() if line.startswith(("ATOM", "HETATM"))]
    index = {line[6:11]: number for number, line in enumerate(records)}
    bonds = {
        (index[line[6:11]], index[line[start : start + 5]])
        for line in lines
        for start in range(11, len(line.rstrip()), 5)
    }
    expected = tables.bonds[ligand[tables.bonds[:, 0]], :2]
    assert bonds == {(a, b) for bond in expected.tolist() for a, b in (bond, bond[::-1])}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"chains": 63}, "63 chains"),
        ({"name": "HEAVY"}, "the chain id 'HEAVY'"),
        ({"name": "α"}, "the chain id 'α' is not ASCII"),
        ({"code": "A1LU6"}, "the component code 'A1LU6'"),
        ({"atom": "C1234"}, "the atom name 'C1234'"),
        ({"position": 1e4}, "coordinates"),
    ],
)
def test_pdb_says_why_it_cannot_hold_a_structure(
    prediction: Prediction, change: dict[str, object], reason: str
) -> None:
    tables, positions = prediction.structure, prediction.positions
    if "chains" in change:
        tables = replace(tables, chains=tables.chains * 11)
        tables = replace(tables, chains=tables.chains[:63])
    if "name" in change:
        first = replace(tables.chains[0], name=str(change["name"]))
        tables = replace(tables, chains=(first, *tables.chains[1:]))
    if "code" in change:
        tables = replace(tables, components=tables.components | {"A1LU6": tables.components["GOL"]})
    if "atom" in change:
        tables = replace(tables, atom_name=np.array(["C1234", *tables.atom_name[1:]], object))
    if "position" in change:
        positions = positions + np.float32(1e4)
    changed = replace(prediction, structure=tables, positions=positions)
    assert (reason_against_pdb(changed) or "").startswith(reason)
    with pytest.raises(ValueError, match="use the mmCIF file"):
        format_all_atom_pdb(changed, PROVENANCE)


def test_scores_have_colabfolds_keys_by_token(prediction: Prediction) -> None:
    scores = json.loads(format_all_atom_scores(prediction, {"warning": "x"}))
    assert {"plddt", "max_pae", "pae", "ptm", "iptm", "per_chain_ptm", "pairwise_iptm"} <= scores.keys()
    count = len(prediction.pae)
    assert len(scores["plddt"]) == len(scores["pae"]) == len(scores["tokens"]["chain"]) == count
    # the digits that rounding gives
    for key in ("pae", "pde"):
        values = getattr(prediction if key == "pae" else prediction.all_atom, key)
        assert scores[key] == np.round(values.astype(np.float64), 2).tolist()
    assert scores["tokens"]["atom"][0] == "" and "ZN" in scores["tokens"]["atom"]
    assert scores["chains"] == {
        "A": "protein", "B": "ligand", "C": "ligand", "D": "DNA", "E": "RNA", "F": "ion",
    }  # fmt: skip
    chain = prediction.structure.atom_chain
    assert scores["per_chain_plddt"]["C"] == pytest.approx(prediction.atom_plddt[chain == 2].mean(), abs=6e-3)
    rows, columns = (prediction.structure.token_chain == index for index in (1, 3))
    assert scores["pairwise_pae_min"]["B-D"] == pytest.approx(
        prediction.pae[np.ix_(rows, columns)].min(), abs=6e-3
    )
    assert scores["warning"] == "x"


def test_scores_of_chain_pairs_are_not_ambiguous(prediction: Prediction) -> None:
    tables = prediction.structure
    # "A-B" and "C", "A" and "B-C" would have the same key
    names = ("A-B", "C", "A", "B-C", "E", "F")
    chains = tuple(replace(chain, name=name) for chain, name in zip(tables.chains, names, strict=True))
    renamed = replace(prediction, structure=replace(tables, chains=chains))
    for changed, expected in ((prediction, list("ABCDEF")), (renamed, list(names))):
        scores = json.loads(format_all_atom_scores(changed))
        assert scores["chain_ids"] == list(scores["chains"]) == expected
        pairs = np.array(scores["chain_pair_iptm"])
        assert pairs[0, 3] == pytest.approx(prediction.all_atom.chain_pair_iptm[0, 3], abs=6e-4)
        minima = np.array(scores["chain_pair_pae_min"])
        assert minima == pytest.approx(prediction.chain_pair_pae_min, abs=6e-3)
        keys = {"pairwise_iptm", "pairwise_pae_min"} & scores.keys()
        assert len(keys) == (2 if changed is prediction else 0)


def test_summary_has_alphafold3s_keys(prediction: Prediction) -> None:
    summary = json.loads(format_summary_confidences(prediction))
    assert list(summary) == [
        "chain_iptm", "chain_pair_iptm", "chain_pair_pae_min", "chain_ptm", "fraction_disordered",
        "has_clash", "iptm", "ptm", "ranking_score",
    ]  # fmt: skip
    pairs = np.array(summary["chain_pair_iptm"])
    assert np.diag(pairs) == pytest.approx(prediction.all_atom.chain_ptm, abs=6e-3)
    off = prediction.all_atom.chain_pair_iptm[0][~np.isnan(prediction.all_atom.chain_pair_iptm[0])]
    assert summary["chain_iptm"][0] == pytest.approx(off.mean(), abs=6e-3)
    full = json.loads(format_confidences(prediction))
    assert list(full) == [
        "atom_chain_ids", "atom_plddts", "contact_probs", "pae", "token_chain_ids", "token_res_ids",
    ]  # fmt: skip
    assert len(full["atom_plddts"]) == len(full["atom_chain_ids"]) == len(prediction.atom_plddt)


def test_scores_that_are_not_finite_are_no_result(prediction: Prediction) -> None:
    broken = replace(prediction, pae=prediction.pae * np.float32(np.nan))
    with pytest.raises(ValueError, match="pae is not finite"):
        format_all_atom_scores(broken)
    with pytest.raises(ValueError, match="coordinates are not finite"):
        format_all_atom_mmcif(
            replace(prediction, positions=prediction.positions * np.float32(np.nan)), PROVENANCE
        )


def test_a_single_chain_has_no_iptm() -> None:
    single = random_prediction(">A|protein\nMKW\n")
    summary = json.loads(format_summary_confidences(single))
    assert summary["iptm"] is None and summary["chain_iptm"] == [None]
    assert "iptm" not in json.loads(format_all_atom_scores(single))


def test_residues_without_a_letter_are_in_brackets_and_unknown_ones_are_x() -> None:
    modified = Polymer(MoleculeKind.PROTEIN, "MUCS", ("A",), (Modification(3, "SEC"),))
    prediction = random_prediction(MoleculeJob("x", (modified,)))
    block = gemmi.cif.read_string(format_all_atom_mmcif(prediction, PROVENANCE)).sole_block()
    (row,) = block.find("_entity_poly.", ["pdbx_seq_one_letter_code", "pdbx_seq_one_letter_code_can"])
    assert list(row) == ["MX(SEC)S", "MXCS"]
    assert list(block.find_values("_entity_poly.nstd_monomer")) == ["yes"]
    groups = {x[0]: x[1] for x in block.find("_atom_site.", ["label_comp_id", "group_PDB"])}
    in_pdb = gemmi.read_pdb_string(format_all_atom_pdb(prediction, PROVENANCE))[0]["A"]
    assert groups == {"MET": "ATOM", "UNK": "ATOM", "SEC": "HETATM", "SER": "ATOM"}
    assert [residue.het_flag for residue in in_pdb] == ["A", "A", "H", "A"]
