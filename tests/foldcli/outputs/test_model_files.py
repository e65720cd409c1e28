"""Files of the models of complexes, their results, and ranking."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from foldcli.logs import logger
from foldcli.outputs.layout import TargetFiles, model_kinds, unranked_name
from foldcli.outputs.model_files import (
    ModelOrigin,
    ModelResult,
    PredictedModel,
    publish_models,
    rank_models,
    read_staged_results,
    write_model,
)
from msa.base.json_files import parse_json
from tests.model.output.random_predictions import complex_of

TAG = "alphafold2_multimer_v3_model_1_seed_000"


def staged(files: TargetFiles, lengths: tuple[int, ...]) -> ModelResult:
    files.staging_folder.mkdir(parents=True)
    origin = ModelOrigin("pair", "a network", is_untrained=False)
    return write_model(PredictedModel(files.staging_folder, TAG, "0" * 64, complex_of(lengths), origin, 1.0))


def test_complex_has_a_table_of_contacts(tmp_path: Path) -> None:
    files = TargetFiles("pair", tmp_path)
    result = staged(files, (2, 3))
    assert (result.num_chains, result.iptm) == (2, 0.456)
    assert result.describe(is_untrained=False).endswith("pTM 0.500, ipTM 0.456")
    assert read_staged_results(files.staging_folder) == [result]
    publish_models([result], files)
    assert [path.name for path in files.model_files()] == [
        f"pair_contacts_rank_001_{TAG}.tsv", f"pair_scores_rank_001_{TAG}.json",
        f"pair_unrelaxed_rank_001_{TAG}.cif", f"pair_unrelaxed_rank_001_{TAG}.pdb",
    ]  # fmt: skip
    assert files.structure_path(1, TAG).suffix == ".pdb"


def test_more_chains_than_pdb_can_name_have_mmcif_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logger, "propagate", True)
    files = TargetFiles("pair", tmp_path)
    result = staged(files, (1,) * 63)
    assert caplog.messages == [f"pair: {TAG} has 63 chains, more than the PDB format can name: mmCIF only"]
    assert not (files.staging_folder / unranked_name("pdb", TAG)).exists()
    assert read_staged_results(files.staging_folder) == [result]
    publish_models([result], files)
    assert files.structure_path(1, TAG).suffix == ".cif" and files.structure_path(1, TAG).is_file()
    assert model_kinds(("recycles", "pair"), 1, 63) == ("cif", "scores", "contacts", "pair")


def test_complexes_are_ranked_by_iptm_and_ptm() -> None:
    def result(tag: str, plddt: float, ptm: float, iptm: float | None) -> ModelResult:
        return ModelResult(tag, plddt, ptm, 3, 1.0, "0", iptm=iptm)

    models = [result("a", 90, 0.9, 0.1), result("b", 50, 0.1, 0.5), result("c", 70, 0.95, 0.3)]
    # 0.26, 0.42, 0.43
    assert [model.tag for model in rank_models(models, "auto")] == ["c", "b", "a"]
    assert [model.tag for model in rank_models(models, "plddt")] == ["a", "c", "b"]
    mixed = [*models, result("d", 80, 0.5, None)]
    assert [model.tag for model in rank_models(mixed, "auto")] == ["a", "d", "c", "b"]


@pytest.mark.parametrize(
    "damage", [{"num_chains": 0}, {"num_chains": 1.5}, {"iptm": "x"}, {"iptm": np.nan}, {"plddt": 10**400}]
)
def test_damaged_result_of_a_complex_is_an_error(damage: dict[str, object]) -> None:
    result = ModelResult("a", 1.0, 0.5, 0, 1.0, "b", iptm=0.5, num_chains=2)
    assert parse_json(json.dumps(asdict(result)), ModelResult) == result
    with pytest.raises(ValueError, match=r"JSON is malformed|: (expected|number out of range)"):
        parse_json(json.dumps(asdict(result) | damage), ModelResult)
