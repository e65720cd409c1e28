"""Tests of --save-recycles, --save-all and the representations: files, their names, and later runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.model_files import read_staged_results, restage_model
from foldcli.pipeline.runs.dry_run import DONE, TO_DO
from model.prediction import EXTRAS
from tests.foldcli.pipeline.runs.runs import UBIQUITIN, Runs

pytestmark = pytest.mark.slow

RESIDUES = 20
QUERY = AlignmentTarget("q", ("-",), f">q\n{UBIQUITIN[:RESIDUES]}\n".encode())
TAG = "alphafold2_ptm_model_3_seed_000"
NAMES = {f"q_unrelaxed_rank_001_{TAG}.r0.pdb", f"q_unrelaxed_rank_001_{TAG}.r1.pdb"}
NAMES |= {f"q_{kind}_rank_001_{TAG}.npy" for kind in ("single_repr", "pair_repr")}
NAMES |= {f"q_all_rank_001_{TAG}.npz", f"q_pairwise_rank_001_{TAG}.cif"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Finish a target, then add the extras; tests must not change its files."""
    runs = Runs(tmp_path_factory.mktemp("extras"))
    runs.run(QUERY, num_recycles=1)
    before = runs.contents()
    assert runs.action(QUERY, num_recycles=1, extras=EXTRAS) == TO_DO
    runs.run(QUERY, num_recycles=1, extras=EXTRAS)
    after = runs.contents()
    assert after.keys() - before.keys() == NAMES
    assert {name: after[name] for name in before} == before
    return runs


def test_extras_are_recorded_and_saved_once(finished: Runs) -> None:
    assert finished.done()["ranking"][0]["extras"] == list(EXTRAS)
    for extras in ((), ("pair",), EXTRAS):
        assert finished.action(QUERY, num_recycles=1, extras=extras) == DONE


def test_extra_files_have_the_representations_and_results(finished: Runs) -> None:
    folder = finished.files.folder
    single, pair = (np.load(folder / f"q_{kind}_repr_rank_001_{TAG}.npy") for kind in ("single", "pair"))
    assert single.shape[0] == RESIDUES and pair.shape[:2] == (RESIDUES, RESIDUES)
    with np.load(folder / f"q_all_rank_001_{TAG}.npz", allow_pickle=False) as results:
        np.testing.assert_array_equal(results["representations/pair"], pair)
        assert results["predicted_aligned_error/logits"].shape == (RESIDUES, RESIDUES, 64)
        assert results["structure_module/final_atom_positions"].dtype == np.float32
    texts = [(folder / f"q_unrelaxed_rank_001_{TAG}{end}.pdb").read_text() for end in (".r0", ".r1", "")]
    first, last, final = ([line for line in text.splitlines() if line[:4] == "ATOM"] for text in texts)
    assert last == final != first


def test_extras_follow_the_rank_of_their_model(finished: Runs, tmp_path: Path) -> None:
    shutil.copytree(finished.folder, tmp_path, dirs_exist_ok=True)
    runs = Runs(tmp_path)
    runs.run(QUERY, num_recycles=1, models=(4,))
    rank = 1 + runs.tags().index(TAG)
    extra_names = {
        name
        for name in runs.contents()
        if name.endswith(("npy", "npz", ".r0.pdb", ".r1.pdb")) or "_pairwise_" in name
    }
    assert extra_names == {name.replace("rank_001", f"rank_{rank:03d}") for name in NAMES}
    # a model whose extra is missing is made again
    next(runs.files.folder.glob("*.npz")).unlink()
    assert runs.action(QUERY, num_recycles=1, models=(3, 4)) == TO_DO


def test_staged_model_with_a_missing_extra_is_incomplete(finished: Runs, tmp_path: Path) -> None:
    shutil.copytree(finished.folder, tmp_path, dirs_exist_ok=True)
    files = Runs(tmp_path).files
    record = FinishedTarget.read(files.path("done"))
    assert record is not None
    restage_model(files, 1, record.ranking[0])
    assert read_staged_results(files.staging_folder) == record.ranking
    (files.staging_folder / f"unrelaxed_{TAG}.r0.pdb").unlink()
    assert read_staged_results(files.staging_folder) == []


def test_unknown_extra_in_done_json_is_damage(finished: Runs, tmp_path: Path) -> None:
    content = finished.done()
    content["ranking"][0]["extras"] = ["everything"]
    (tmp_path / "q.done.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"extras\[0\]: invalid enum value .everything."):
        FinishedTarget.read(tmp_path / "q.done.json")
