"""Tests of `foldcli doctor --predict` with the compact network and with random parameters."""

import json
from pathlib import Path

import gemmi
import pytest

from foldcli.comparison.read import read_molecules
from foldcli.doctor import predictions
from foldcli.doctor.result import CheckStatus
from foldcli.outputs.layout import TargetFiles
from tests.command_process import run_foldcli
from tests.networks import tiny_parameters


@pytest.mark.slow
def test_compact_network_predicts_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "PROTEINS", ("1enh_A",))
    (check,) = predictions.check_predictions("compact", "cpu")
    assert check.status is CheckStatus.OK, check
    assert check.lddt is not None and check.lddt > 85


@pytest.mark.slow
def test_random_parameters_are_broken() -> None:
    result = run_foldcli(["doctor", "--predict", "--params", tiny_parameters(), "--device", "cpu", "--json"])
    assert result.returncode == 4, result.stderr
    checks = json.loads(result.stdout)["checks"]
    assert [check["target"] for check in checks] == ["1enh_A", "1hz6_A", "1ctf_A"]
    assert all(check["status"] == "broken" and "TM-score under" in check["reason"] for check in checks)


def write_model(folder: Path, shift: float) -> TargetFiles:
    """Write the complex as a finished prediction of itself, its ligand moved by some Å."""
    structure = gemmi.read_structure(str(predictions._COMPLEX))
    structure.setup_entities()
    for residue in structure[0]["A"]:
        if residue.name == predictions._LIGAND:
            for atom in residue:
                atom.pos += gemmi.Position(shift, 0, 0)
    files = TargetFiles("4cup", folder)
    scores = files.model_path("scores", 1, "x_seed_000")
    scores.parent.mkdir(parents=True)
    scores.write_text("{}")
    structure.make_mmcif_document().write_file(str(files.model_path("cif", 1, "x_seed_000")))
    done = {"facts": {}, "ranking": [{"plddt": 95.0, "ptm": 0.9}]}
    files.path("done").write_text(json.dumps(done))
    return files


@pytest.mark.parametrize(("shift", "status"), [(0.0, CheckStatus.OK), (5.0, CheckStatus.WARNING)])
def test_complex_with_a_ligand_is_compared(tmp_path: Path, shift: float, status: CheckStatus) -> None:
    reference = read_molecules(predictions._COMPLEX)
    check = predictions._check("openfold3", write_model(tmp_path, shift), reference, 0)
    assert check.ligand_rmsd == pytest.approx(shift, abs=0.1)
    assert (check.status, check.lddt) == (status, pytest.approx(100))


def test_missing_prediction_is_broken(tmp_path: Path) -> None:
    reference = read_molecules(predictions._COMPLEX)
    check = predictions._check("openfold3", TargetFiles("4cup", tmp_path), reference, 4)
    assert check.status is CheckStatus.BROKEN
    assert check.cells()[-1].startswith("broken: not predicted")


def test_job_of_the_complex_has_both_molecules() -> None:
    protein, ligand = predictions._complex_job()["sequences"]
    assert protein["protein"]["sequence"].startswith("SMSVKK")
    assert ligand["ligand"]["ccdCodes"] == ["ZYB"]
