"""Tests of reading finished folders of foldcli and ColabFold, and of their predictions."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldcli
from foldcli.api import results
from msa.base.errors import InputError
from tests.foldcli.report.results import SEQUENCE, write_result


def rows(folder: Path) -> list[dict[str, Any]]:
    table = foldcli.load(folder)
    return table if isinstance(table, list) else table.to_dict("records")


@pytest.fixture
def colabfold(tmp_path: Path) -> Path:
    """Return a folder as an earlier ColabFold wrote it: no records, and ranks of one digit."""
    write_result(tmp_path, models=2)
    for path in list(tmp_path.iterdir()):
        if "_rank_" in path.name:
            path.rename(path.with_name(path.name.replace("_rank_00", "_rank_")))
        else:
            path.unlink()
    return tmp_path


def test_folder_of_foldcli_is_read(tmp_path: Path) -> None:
    write_result(tmp_path / "target", models=2)
    first, second = rows(tmp_path)
    assert (first["target"], first["rank"], second["rank"]) == ("target", 1, 2)
    assert first["structure"].is_file() and first["scores"].is_file()
    assert first["residues"] == len(SEQUENCE)
    assert first["prediction"].plddt[0] == pytest.approx(91)


def test_folder_of_colabfold_is_read(colabfold: Path) -> None:
    first, second = rows(colabfold)
    prediction = first["prediction"]
    assert (first["rank"], second["rank"]) == (1, 2)
    assert first["plddt"] == pytest.approx(prediction.plddt.mean(), abs=0.01)
    assert first["ptm"] == prediction.ptm == 0.8
    assert prediction.pae.shape == (len(SEQUENCE), len(SEQUENCE))
    assert prediction.path.name == "target_unrelaxed_rank_1_alphafold2_ptm_model_1_seed_000.pdb"


def test_coordinates_are_those_of_all_libraries(colabfold: Path) -> None:
    pytest.importorskip("biotite")
    prediction = rows(colabfold)[0]["prediction"]
    array = prediction.to_biotite()
    np.testing.assert_allclose(prediction.coordinates, array.coord, atol=1e-4)
    np.testing.assert_allclose(array.b_factor, prediction.plddt, atol=0.01)
    assert [residue.name for residue in prediction.structure[0][0]] == array.res_name.tolist()


def test_table_is_a_data_frame_with_pandas(colabfold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("pandas") is not None:
        assert type(foldcli.load(colabfold)).__name__ == "DataFrame"
    monkeypatch.setattr(results, "find_spec", lambda name: None)
    assert isinstance(foldcli.load(colabfold), list)


def test_missing_and_damaged_files_are_named(
    colabfold: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    prediction = rows(colabfold)[0]["prediction"]
    prediction.scores_path.write_text(json.dumps({"plddt": "high"}))
    with pytest.raises(InputError, match=r"_scores_rank_1_.*not the scores of a model"):
        foldcli.load(colabfold)
    prediction.path.unlink()
    with pytest.raises(InputError, match="its structure is missing"):
        foldcli.load(colabfold)
    with pytest.raises(InputError, match="no finished target here"):
        foldcli.load(empty)
