"""Tests of PDB and mmCIF files, read back with gemmi and Biopython, and of the scores JSON."""

import dataclasses
import io
import json
from pathlib import Path

import gemmi
import numpy as np
import pytest
from Bio.PDB import MMCIFParser, PDBParser

from model.output.provenance import Provenance
from model.output.residues import CONTACT_COLUMNS, format_contacts, format_mmcif, format_pdb
from model.output.scores import format_scores
from model.prediction import Prediction
from msa.base.residues import ATOM37, RESTYPE_NAMES
from tests.model.output.random_predictions import complex_of, prediction_of

NAMES = ("MET", "GLY", "TRP", "SER")
PROVENANCE = Provenance("target_1", "foldcli 0.0", "alphafold2_ptm_model_3, seed 0, 3 recycles")


@pytest.fixture
def prediction() -> Prediction:
    codes = [RESTYPE_NAMES.index(name) for name in NAMES]
    return prediction_of(codes)


def check_atoms(structure: gemmi.Structure, prediction: Prediction) -> None:
    residues = list(structure[0]["A"])
    assert [residue.name for residue in residues] == list(NAMES)
    for i, residue in enumerate(residues):
        assert residue.seqid.num == i + 1
        present = prediction.structure.atom37[prediction.structure.atom_residue == i]
        assert [atom.name for atom in residue] == [ATOM37[j] for j in present]
        for atom, j in zip(residue, present, strict=True):
            assert atom.element.name == atom.name[0]
            assert np.allclose(atom.pos.tolist(), prediction.atom_positions[i, j], atol=5.1e-4)
            assert atom.b_iso == pytest.approx(prediction.plddt[i], abs=5.1e-3)


def test_pdb_round_trip(prediction: Prediction) -> None:
    text = format_pdb(prediction, PROVENANCE)
    check_atoms(gemmi.read_pdb_string(text), prediction)
    assert max(map(len, text.splitlines())) <= 80
    chain = PDBParser(QUIET=True).get_structure("x", io.StringIO(text))[0]["A"]
    assert [residue.get_resname() for residue in chain] == list(NAMES)


def test_mmcif_round_trip_with_plddt_per_residue(prediction: Prediction) -> None:
    text = format_mmcif(prediction, PROVENANCE)
    block = gemmi.cif.read_string(text).sole_block()
    check_atoms(gemmi.make_structure_from_block(block), prediction)
    rows = block.find("_ma_qa_metric_local.", ["label_seq_id", "label_comp_id", "metric_value"])
    assert [(int(row[0]), row[1]) for row in rows] == list(enumerate(NAMES, 1))
    assert np.allclose([float(row[2]) for row in rows], prediction.plddt, atol=5.1e-3)
    overall = block.find("_ma_qa_metric_global.", ["metric_value"])
    assert float(overall[0][0]) == pytest.approx(prediction.plddt.mean(), abs=5.1e-3)
    chain = MMCIFParser(QUIET=True).get_structure("x", io.StringIO(text))[0]["A"]
    assert [residue.get_resname() for residue in chain] == list(NAMES)


def test_unknown_residues_are_numbered_and_have_no_atoms() -> None:
    met, unknown = RESTYPE_NAMES.index("MET"), 20
    prediction = prediction_of([met, unknown, met])
    assert [r.seqid.num for r in gemmi.read_pdb_string(format_pdb(prediction, PROVENANCE))[0]["A"]] == [1, 3]
    block = gemmi.cif.read_string(format_mmcif(prediction, PROVENANCE)).sole_block()
    assert [row[0] for row in block.find("_entity_poly_seq.", ["mon_id"])] == ["MET", "UNK", "MET"]
    assert [r.label_seq for r in gemmi.make_structure_from_block(block)[0]["A"]] == [1, 3]


def test_warning_is_in_the_first_line(prediction: Prediction) -> None:
    warned = dataclasses.replace(PROVENANCE, warning="UNTRAINED network. " + "Means nothing at all. " * 5)
    assert format_pdb(prediction, warned).splitlines()[0].startswith("REMARK   6 UNTRAINED network.")
    assert "UNTRAINED" in gemmi.cif.read_string(format_mmcif(prediction, warned)).sole_block().find_value(
        "_struct.title"
    )
    assert "UNTRAINED" not in format_pdb(prediction, PROVENANCE)


def test_coordinates_that_do_not_fit_are_an_error(prediction: Prediction) -> None:
    prediction.positions[1, 0] = 12345.0
    with pytest.raises(ValueError, match="too large"):
        format_pdb(prediction, PROVENANCE)
    prediction.positions[1, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        format_pdb(prediction, PROVENANCE)


def test_scores_and_their_rounding() -> None:
    prediction = prediction_of([0, 1, 2])
    scores = json.loads(format_scores(prediction))
    assert list(scores) == ["plddt", "max_pae", "pae", "ptm"]
    assert np.allclose(scores["plddt"], prediction.plddt, atol=5.1e-3)
    assert scores["max_pae"] == prediction.pae.max()
    assert np.allclose(scores["pae"], prediction.pae, atol=5.1e-3)
    assert scores["plddt"] == [round(value, 2) for value in scores["plddt"]]
    # float32 in the prediction; its nearest float64 would have more digits
    assert all(value == round(value, 2) for row in scores["pae"] for value in row)


def test_scores_without_a_pae_head() -> None:
    prediction = dataclasses.replace(prediction_of([0, 1]), pae=None, ptm=None)
    assert list(json.loads(format_scores(prediction))) == ["plddt"]


def test_extra_scores_are_added() -> None:
    assert json.loads(format_scores(prediction_of([0]), {"untrained": True}))["untrained"] is True


def test_keys_and_types_of_scores_equal_colabfolds(shared_dir: Path) -> None:
    files = sorted(shared_dir.glob("data/colabfold_result/*/*_scores_rank_*.json"))
    if not files:
        pytest.skip("needs a ColabFold result in ../shared")
    scores = json.loads(format_scores(prediction_of([0, 1, 2])))
    for file in files:
        colabfold_scores = json.loads(file.read_text())
        assert {key: type(value) for key, value in scores.items()} == {
            key: type(value) for key, value in colabfold_scores.items()
        }


def test_chains_have_separate_names_numbers_and_entities() -> None:
    # the second chain is a copy of the first; the first and the last end in an unknown residue without atoms
    prediction = complex_of((3, 3, 2), [12, 7, 20, 12, 7, 20, 7, 20])
    pdb, cif = format_pdb(prediction, PROVENANCE), format_mmcif(prediction, PROVENANCE)
    expected = {"A": [1, 2], "B": [1, 2], "C": [1]}
    block = gemmi.cif.read_string(cif).sole_block()
    from_pdb, from_cif = gemmi.read_pdb_string(pdb), gemmi.make_structure_from_block(block)
    for structure in (from_pdb, from_cif):
        assert {chain.name: [r.seqid.num for r in chain] for chain in structure[0]} == expected
    assert {chain.name: [r.label_seq for r in chain] for chain in from_cif[0]} == expected
    for parser, text in ((PDBParser(QUIET=True), pdb), (MMCIFParser(QUIET=True), cif)):
        model = parser.get_structure("x", io.StringIO(text))[0]
        assert {chain.id: [r.id[1] for r in chain] for chain in model} == expected
    lines = pdb.splitlines()
    # after the last residue of each chain
    assert [line[17:26] for line in lines if line.startswith("TER")] == [
        "GLY A   2",
        "GLY B   2",
        "GLY C   1",
    ]
    assert [line.split()[2:] for line in lines if line.startswith("SEQRES")] == [
        ["A", "3", "MET", "GLY", "UNK"], ["B", "3", "MET", "GLY", "UNK"], ["C", "2", "GLY", "UNK"],
    ]  # fmt: skip
    entities = [(row[0], row[1]) for row in block.find("_entity_poly.", ["entity_id", "pdbx_strand_id"])]
    assert entities == [("1", "A,B"), ("2", "C")]
    asym = [(row[0], row[1]) for row in block.find("_struct_asym.", ["id", "entity_id"])]
    assert asym == [("A", "1"), ("B", "1"), ("C", "2")]
    local = block.find("_ma_qa_metric_local.", ["label_asym_id", "label_seq_id", "metric_value"])
    assert [(row[0], int(row[1])) for row in local] == [
        ("A", 1), ("A", 2), ("A", 3), ("B", 1), ("B", 2), ("B", 3), ("C", 1), ("C", 2),
    ]  # fmt: skip
    assert np.allclose([float(row[2]) for row in local], prediction.plddt, atol=5.1e-3)


def test_more_chains_than_the_pdb_format_has_are_written_as_mmcif() -> None:
    fits, too_many = complex_of((1,) * 62), complex_of((1,) * 64)
    assert [chain.name for chain in gemmi.read_pdb_string(format_pdb(fits, PROVENANCE))[0]][-2:] == ["8", "9"]
    with pytest.raises(ValueError, match="more than 62 chains"):
        format_pdb(too_many, PROVENANCE)
    block = gemmi.cif.read_string(format_mmcif(too_many, PROVENANCE)).sole_block()
    names = [chain.name for chain in gemmi.make_structure_from_block(block)[0]]
    assert names[61:] == ["9", "AA", "AB"] and len(set(names)) == 64


def test_scores_of_complexes_have_colabfolds_keys() -> None:
    prediction = complex_of((2, 3, 1))
    scores = json.loads(format_scores(prediction))
    # the order of ColabFold 1.6.3 with --calc-extra-ptm
    assert list(scores) == [
        "plddt", "max_pae", "pae", "pairwise_actifptm", "pairwise_iptm", "per_chain_ptm", "actifptm", "ptm",
        "iptm", "ipsae", "pdockq", "pdockq2", "per_chain_pdockq2", "lis", "ilis", "pairwise_pae_min",
    ]  # fmt: skip
    assert (scores["iptm"], scores["actifptm"]) == (0.46, 0.123)
    assert list(scores["per_chain_ptm"]) == ["A", "B", "C"]
    assert list(scores["pairwise_iptm"]) == list(scores["pdockq"]) == ["A-B", "A-C", "B-C"]
    assert list(scores["ipsae"]) == list(scores["pdockq2"]) == ["A-B", "A-C", "B-A", "B-C", "C-A", "C-B"]
    assert prediction.scores is not None
    assert scores["ipsae"]["C-A"] == round(prediction.scores.ipsae[2, 0], 6)


def test_table_of_contacts() -> None:
    prediction = complex_of((2, 3, 1), [12, 7, 17, 0, 1, 20])
    heading, *rows = format_contacts(prediction).splitlines()
    assert heading.split("\t") == list(CONTACT_COLUMNS)
    plddt = [f"{value:.2f}" for value in prediction.plddt]
    assert [row.split("\t") for row in rows] == [
        ["A", "1", "M", plddt[0], "B", "1", "W", plddt[2], "3.46", "1.23", "2.00"],
        ["A", "2", "G", plddt[1], "C", "1", "X", plddt[5], "7.90", "30.00", "4.00"],
    ]
    with pytest.raises(ValueError, match="single chain"):
        format_contacts(prediction_of([0, 1]))
