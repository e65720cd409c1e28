"""Tests of plans: results of other settings, further models, other rankings, and damaged records."""

from pathlib import Path
from typing import Any

import pytest

from foldcli.pipeline.runs.dry_run import RESUMED, TO_DO
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.plan import has_work
from msa.io.fasta import FastaRecord
from tests.foldcli.pipeline.runs.runs import QUERY, UBIQUITIN, Runs

pytestmark = pytest.mark.usefixtures("one_thread")


def test_results_of_other_settings_are_replaced_only_with_overwrite(runs: Runs) -> None:
    before, times = runs.contents(), runs.times()
    message = runs.refusal(num_recycles=1)
    assert runs.times() == times
    assert "out/q holds a model made with other settings (predict.num_recycle 0, now 1)" in message
    assert message.endswith("; --overwrite replaces it, or choose another --out")
    assert runs.action(num_recycles=1, overwrite=True) == f"{TO_DO}, replaces 1 model"
    runs.run(num_recycles=1, overwrite=True)
    assert runs.done()["ranking"][0]["num_recycles"] == 1 and runs.contents() != before
    runs.run(overwrite=True)
    assert runs.contents() == before


def test_results_of_another_sequence_are_not_replaced(runs: Runs) -> None:
    before = runs.contents()
    assert "query" in runs.refusal(FastaRecord("q", UBIQUITIN[5:35]))
    assert runs.contents() == before


def test_further_models_are_added_and_finished_ones_kept(runs: Runs, tmp_path: Path) -> None:
    seconds = runs.done()["ranking"][0]["seconds"]
    runs.run(models=(4,), random_seed=1)
    runs.run(models=(3, 4), num_seeds=2)
    assert sorted(runs.tags()) == [f"alphafold2_ptm_model_{n}_seed_00{s}" for n in (3, 4) for s in (0, 1)]
    first_model = next(e for e in runs.done()["ranking"] if e["tag"] == "alphafold2_ptm_model_3_seed_000")
    assert first_model["seconds"] == seconds, "the model was not predicted again"
    at_once = Runs(tmp_path / "other", runs.searcher)
    # of earlier models
    for name in ("q.html", "q_plddt.png", "q_templates.tsv"):
        at_once.files.folder.mkdir(parents=True, exist_ok=True)
        (at_once.files.folder / name).touch()
    at_once.run(models=(3, 4), num_seeds=2)
    assert at_once.contents() == runs.contents()
    times = runs.times()
    runs.run(models=(4,))
    assert runs.times() == times, "nothing is left to do"


def test_other_ranking_only_renames_the_models(runs_of_two: Runs) -> None:
    first = runs_of_two.done()
    runs_of_two.run(models=(3, 4), rank="ptm")
    second = runs_of_two.done()
    assert second["rank_by"] == "ptm" and second["ranking"][0]["ptm"] >= second["ranking"][1]["ptm"]
    assert {e["tag"]: e["seconds"] for e in first["ranking"]} == {
        e["tag"]: e["seconds"] for e in second["ranking"]
    }
    assert second["facts"]["residues"] == 30


# tests/foldcli/outputs/test_done.py reads other damaged ones
@pytest.mark.parametrize("content", ["{", '{"format": 1}'])
def test_damaged_done_json_is_one_warning_and_the_target_is_predicted_again(
    runs: Runs, content: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, done = runs.contents(), runs.done()
    runs.files.path("done").write_text(content)
    monkeypatch.setattr("foldcli.logs.logger.propagate", True)
    caplog.clear()
    assert runs.action() in (TO_DO, RESUMED)
    runs.run()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "q.done.json: unusable" in warning and "\n" not in warning
    assert runs.contents() == before and runs.done()["fingerprint"] == done["fingerprint"]


def test_model_with_a_missing_file_is_predicted_again(runs_of_two: Runs) -> None:
    before = runs_of_two.contents()
    next(runs_of_two.files.folder.glob("*_rank_002_*.cif")).unlink()
    runs_of_two.run(models=(3, 4))
    assert runs_of_two.contents() == before


def test_record_set_aside_by_a_killed_run_is_published_again(runs: Runs) -> None:
    before, ranking = runs.contents(), runs.tags()
    # as a run with a further model leaves it, if it is killed when it begins to publish
    runs.files.replaced_record.parent.mkdir()
    runs.files.path("done").replace(runs.files.replaced_record)
    runs.run()
    assert (runs.contents(), runs.tags()) == (before, ranking)
    assert not runs.files.work_folder.exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"overwrite": True}, True),
        ({"num_seeds": 2}, True),
        ({"models": (3, 4)}, True),
        ({"models": (3, 4), "stop_at_score": 0.0}, False),
        ({"rank": "ptm"}, True),
        ({"extras": ("single",)}, True),
        # refused, because there are results of other settings
        ({"num_recycles": 1}, False),
    ],
)
def test_work_is_known_before_the_plan(runs: Runs, changes: dict[str, Any], expected: bool) -> None:
    settings = runs.settings(**changes)
    names = TargetIdentities(
        settings.identities.sources,
        [{"content": ""} for _ in settings.identities.sources],
        settings.predictor.settings,
    )
    assert has_work([("q", QUERY)], names, settings.output) is expected
    assert has_work([("q", QUERY), ("new", QUERY)], names, settings.output)
