"""Tests of AlphaFold2's models as ModelCIF.

FOLDCLI_PYTHON_MODELCIF names a Python with python-modelcif (package modelcif), which then reads the files.
"""

import os
import subprocess
from pathlib import Path

import gemmi
import numpy as np
import pytest

from model.output.modelcif import UsedTemplate, format_pairwise_scores
from model.output.provenance import Provenance
from model.output.residues import format_mmcif
from model.prediction import Prediction
from msa.base.residues import RESTYPES
from tests.predictions import complex_prediction

PROVENANCE = Provenance("a target", "foldcli 0.1", "alphafold2_multimer_v3_model_1, seed 0")
# reads a file, writes it with the library's own checks, and prints what it found
PROGRAM = """
import sys, modelcif.reader, modelcif.dumper
(system,) = modelcif.reader.read(open(sys.argv[1]))
if len(sys.argv) > 2:
    modelcif.dumper.write(open(sys.argv[2], "w"), [system])
(model,) = [model for _, model in system._all_models()]
print(len(system.entities), len(system.asym_units), len(model._atoms), len(model.qa_metrics))
for alignment in system.alignments:
    for pair in alignment.pairs:
        print(pair.target.gapped_sequence, pair.template.gapped_sequence, pair.template.template.name)
steps = [step.name for protocol in system.protocols for step in protocol.steps]
print(steps, [software.name for software in system.software])
"""


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return complex_prediction(1)


@pytest.fixture(scope="module")
def templates(prediction: Prediction) -> tuple[UsedTemplate, ...]:
    query = "".join(RESTYPES[code] for code in prediction.aatype[prediction.structure.residue_chain == 0])
    # residues 4 to 8 and 10 to 20 of the query; two more residues in the template, residue 9 has no partner
    template = f"GG{query[3:8]}WW{query[9:20]}"
    pairs = (*((i, i - 1) for i in range(3, 8)), *((i, i) for i in range(9, 20)))
    found = UsedTemplate("A", "1ABC", "B", "1abc_B, 30% identity", (query, template), pairs, 0.3)
    return found, UsedTemplate("A", None, "C", "own_C", (query, query), ((0, 0), (1, 1)), 1.0)


def test_templates_have_their_alignments(prediction: Prediction, templates: tuple[UsedTemplate, ...]) -> None:
    query = templates[0].sequences[0] if templates[0].sequences else ""
    rows = templates[0].aligned_rows()
    assert rows == (f"{query[3:8]}{query[8]}--{query[9:20]}", f"{query[3:8]}-WW{query[9:20]}")
    block = gemmi.cif.read_string(format_mmcif(prediction, PROVENANCE, templates)).sole_block()
    found = block.find("_ma_alignment.", ["alignment_id", "target_template_flag", "sequence"])
    assert [list(row) for row in found] == [
        ["1", "1", rows[0]], ["1", "2", rows[1]], ["2", "1", query[:2]], ["2", "2", query[:2]],
    ]  # fmt: skip
    mapping = block.find("_ma_target_template_poly_mapping.", ["target_seq_id_begin", "target_seq_id_end"])
    assert [list(row) for row in mapping] == [["4", "20"], ["1", "2"]]


def test_pairwise_file_has_the_pae(prediction: Prediction) -> None:
    block = gemmi.cif.read_string(format_pairwise_scores(prediction, PROVENANCE)).sole_block()
    values = np.array(block.find_values("_ma_qa_metric_feature_pairwise.metric_value"), float)
    assert prediction.pae is not None
    assert np.allclose(values.reshape(prediction.pae.shape), prediction.pae, atol=6e-3)


def test_python_modelcif_reads_and_writes_the_files(
    prediction: Prediction, templates: tuple[UsedTemplate, ...], tmp_path: Path
) -> None:
    if (python := os.environ.get("FOLDCLI_PYTHON_MODELCIF")) is None:
        pytest.skip("FOLDCLI_PYTHON_MODELCIF names no Python with the package modelcif")

    def read(*files: str) -> list[str]:
        command = [python, "-c", PROGRAM, *(str(tmp_path / file) for file in files)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    (tmp_path / "a.cif").write_text(format_mmcif(prediction, PROVENANCE, templates))
    (tmp_path / "b.cif").write_text(format_pairwise_scores(prediction, PROVENANCE))
    first, *alignments, last = read("a.cif", "again.cif")
    residues, atoms = len(prediction.aatype), len(prediction.positions)
    assert first == f"{prediction.num_chains} {prediction.num_chains} {atoms} {residues + 2}"
    assert alignments[0] == " ".join((*templates[0].aligned_rows(), "1abc_B, 30% identity"))
    assert last == "['prediction of the structure'] ['foldcli']"
    # what the library writes has the same content
    assert read("again.cif") == [first, *alignments, last]
    assert read("b.cif")[0].endswith(f" {residues**2}")
    # seven entities in eight chains; the library cannot write residues that have no number
    golden, aligned, _ = read(str(Path(__file__).parent / "data/all_atom.cif"))
    assert golden.startswith("7 8 ") and aligned == "C-SC CGSC chain B of 1ABC"
