"""Tests of runs: every kind of input, targets that are finished, extended or refused, and damaged records."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from foldcli.errors import TargetFailed
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CacheIndex
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import TargetInput
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import stage_published
from foldcli.params.parameters import find_parameters
from foldcli.pipeline.device import NetworkMemory
from foldcli.pipeline.dry_run import DONE, RESUMED, TO_DO
from foldcli.pipeline.estimates import inspect_target
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.identity import TargetIdentities
from foldcli.pipeline.predictor import Predictor
from foldcli.pipeline.run import RunSettings, run_targets
from foldcli.pipeline.search_stage import SearchStage
from foldcli.pipeline.searcher import LocalSearcher
from foldcli.pipeline.settings import AlignmentSettings, FeatureSettings, OutputSettings, PredictSettings
from foldcli.report import ReportSettings
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.search.settings import AlignmentFilter, SearchSettings

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
QUERY = FastaRecord("q", UBIQUITIN[:30])
SETTINGS = PredictSettings(num_recycles=0, max_seq=8, max_extra_seq=6)


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> LocalSearcher:
    folder = tmp_path_factory.mktemp("database")
    (folder / "t.fasta").write_text(f">ubq\n{UBIQUITIN}\n>half\n{UBIQUITIN[:25]}\n")
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return LocalSearcher(TargetDatabase.open(folder / "db"), CpuEngine())


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Runs:
    """Runs into one folder, each with its own settings."""

    def __init__(self, folder: Path, searcher: LocalSearcher | None = None) -> None:
        self.folder, self.searcher = folder, searcher
        self.files = TargetFiles("q", folder / "out")

    def settings(
        self, models: tuple[int, ...] = (3,), overwrite: bool = False, plots: bool = False, **changes: Any
    ) -> RunSettings:
        settings = replace(SETTINGS, **changes)
        sources = find_parameters("demo", models, "auto")
        predictor = Predictor(sources, settings, NetworkMemory("cpu"))
        output = OutputSettings(
            self.folder / "out", "default", Shard(), overwrite, ReportSettings(False, plots)
        )
        search = None
        if self.searcher is not None:
            alignment = AlignmentSettings(SearchSettings(), AlignmentFilter())
            search = SearchStage(self.searcher, alignment, show_progress=False)
        parameters = [
            {"label": s.label, "network": s.config_name, "content": f"demo {s.number}"} for s in sources
        ]
        request = None if search is None else search.request
        identities = TargetIdentities(sources, parameters, settings, request)
        return RunSettings(output, FeatureSettings(self.folder / "cache"), predictor, identities, search)

    def run(self, target_input: TargetInput = QUERY, **changes: Any) -> None:
        settings = self.settings(**changes)
        run_targets([("q", target_input)], settings, Failures(settings.output.folder, Shard()))

    def action(self, target_input: TargetInput = QUERY, **changes: Any) -> str:
        """Return what `--dry-run` says."""
        settings = self.settings(**changes)
        return inspect_target("q", target_input, settings.identities, settings.output)[1]

    def done(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.files.path("done").read_text())
        return content

    def tags(self) -> list[str]:
        return [entry["tag"] for entry in self.done()["ranking"]]

    def contents(self) -> dict[str, bytes]:
        """Return all files without done.json, which contains times."""
        files = [path for path in self.files.folder.rglob("*") if path.is_file()]
        return {path.name: path.read_bytes() for path in files if path != self.files.path("done")}

    def times(self) -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in self.files.folder.iterdir()}


@pytest.fixture
def runs(tmp_path: Path, searcher: LocalSearcher) -> Runs:
    return Runs(tmp_path, searcher)


def test_every_kind_of_input_is_finished_once(runs: Runs, tmp_path: Path) -> None:
    runs.run()
    first = runs.done()
    assert (first["facts"]["search"]["hits"], first["facts"]["feature_cache_hit"]) == (2, False)
    assert not runs.files.work_folder.exists() and not runs.files.lock.exists()
    ((cached,),) = CacheIndex(tmp_path / "cache").targets.values()
    a3m = runs.files.path("alignment")
    text = a3m.read_bytes()
    kept = tmp_path / "kept.a3m"
    shutil.copy(a3m, kept)
    inputs: list[TargetInput] = [
        cached,
        AlignmentTarget("q", (str(kept),)),
        AlignmentTarget("q", (str(cached.path),)),
        AlignmentTarget("q", ("-",), text),
    ]
    scores = [path.read_bytes() for path in runs.files.folder.glob("*_scores_*")]
    for index, target_input in enumerate(inputs):
        own = Runs(tmp_path / str(index))
        own.folder.mkdir()
        shutil.copytree(tmp_path / "cache", own.folder / "cache")
        assert own.action(target_input) == TO_DO
        own.run(target_input)
        assert own.action(target_input) == DONE
        # every input is the same alignment
        assert own.done()["facts"]["feature_cache_hit"]
        assert [path.read_bytes() for path in own.files.folder.glob("*_scores_*")] == scores
        times = own.times()
        own.run(target_input)
        assert own.times() == times


def test_results_of_other_settings_are_replaced_only_with_overwrite(runs: Runs) -> None:
    runs.run()
    before, times = runs.contents(), runs.times()
    for changes in ({"num_recycles": 1}, {"max_seq": 7}):
        with pytest.raises(TargetFailed) as failed:
            runs.run(**changes)
        assert failed.value.code == 3
        assert runs.times() == times
    failures = Failures(runs.folder / "out", Shard())
    with pytest.raises(TargetFailed):
        run_targets([("q", QUERY)], runs.settings(num_recycles=1), failures)
    message = str(failures.failed[0][1])
    assert "out/q holds a model made with other settings (predict.num_recycle 0, now 1)" in message
    assert "--overwrite" in message
    assert runs.action(num_recycles=1, overwrite=True) == f"{TO_DO}, replaces 1 model"
    runs.run(num_recycles=1, overwrite=True)
    assert runs.done()["ranking"][0]["num_recycles"] == 1 and runs.contents() != before
    runs.run(overwrite=True)
    assert runs.contents() == before


def test_results_of_another_sequence_are_not_replaced(runs: Runs) -> None:
    runs.run()
    before = runs.contents()
    with pytest.raises(TargetFailed):
        runs.run(FastaRecord("q", UBIQUITIN[5:35]))
    assert runs.contents() == before


def test_further_models_are_added_and_finished_ones_kept(runs: Runs, tmp_path: Path) -> None:
    runs.run(models=(3,))
    seconds = runs.done()["ranking"][0]["seconds"]
    runs.run(models=(4,), random_seed=1)
    runs.run(models=(3, 4), num_seeds=2)
    assert sorted(runs.tags()) == [f"alphafold2_ptm_model_{n}_seed_00{s}" for n in (3, 4) for s in (0, 1)]
    kept = next(e for e in runs.done()["ranking"] if e["tag"] == "alphafold2_ptm_model_3_seed_000")
    assert kept["seconds"] == seconds, "the model was not predicted again"
    at_once = Runs(tmp_path / "other", runs.searcher)
    at_once.run(models=(3, 4), num_seeds=2)
    assert at_once.contents() == runs.contents()
    times = runs.times()
    runs.run(models=(4,))
    assert runs.times() == times, "nothing is left to do"


def test_other_ranking_only_renames_the_models(runs: Runs) -> None:
    runs.run(models=(3, 4))
    first = runs.done()
    runs.run(models=(3, 4), rank="ptm")
    second = runs.done()
    assert second["rank_by"] == "ptm" and second["ranking"][0]["ptm"] >= second["ranking"][1]["ptm"]
    assert {e["tag"]: e["seconds"] for e in first["ranking"]} == {
        e["tag"]: e["seconds"] for e in second["ranking"]
    }
    assert second["facts"]["residues"] == 30


@pytest.mark.parametrize(
    "content",
    ["", "{", "{}", "[]", "null", '{"format": 1}', '{"format": 2, "fingerprint": 3}', "ranking", "facts"],
)
def test_damaged_done_json_is_one_warning_and_the_target_is_predicted_again(
    runs: Runs, content: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.run()
    before, done = runs.contents(), runs.done()
    if content in done:
        content = json.dumps(done | {content: "wrong"})
    runs.files.path("done").write_text(content)
    monkeypatch.setattr("foldcli.logs.logger.propagate", True)
    assert runs.action() in (TO_DO, RESUMED)
    caplog.clear()
    runs.run()
    (warning,) = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert "q.done.json: unusable" in warning and "\n" not in warning
    assert runs.contents() == before and runs.done()["fingerprint"] == done["fingerprint"]


def test_missing_file_of_a_finished_model_is_made_again(runs: Runs) -> None:
    runs.run(models=(3, 4))
    before = runs.contents()
    next(runs.files.folder.glob("*_rank_002_*.cif")).unlink()
    runs.run(models=(3, 4))
    assert runs.contents() == before


def test_edited_alignment_is_searched_again(runs: Runs) -> None:
    runs.run()
    before = runs.contents()
    runs.files.path("alignment").write_text(f">q\n{QUERY.sequence}\n")
    runs.run(models=(3, 4))
    assert (
        runs.contents().items()
        >= {name: content for name, content in before.items() if name.endswith((".a3m", ".m8"))}.items()
    )


def test_damaged_intermediate_files_are_made_again(runs: Runs, tmp_path: Path) -> None:
    runs.run(models=(3, 4))
    expected = runs.contents()
    for damage in ("search.json", "q.a3m", "*.result.json", "*.pdb"):
        again = Runs(tmp_path / damage.strip("*."), runs.searcher)
        again.files.work_folder.mkdir(parents=True)
        make_intermediate_files(again, runs)
        for path in again.files.work_folder.rglob(damage):
            path.write_text("{" if path.suffix == ".json" else path.read_text()[:-9])
            if path.suffix == ".pdb":
                path.unlink()
        again.run(models=(3, 4))
        assert again.contents() == expected


def make_intermediate_files(target: Runs, finished: Runs) -> None:
    """Create the work folder of a run that was killed before it published its models."""
    record = FinishedTarget.read(finished.files.path("done"))
    assert record is not None
    shutil.copytree(finished.files.folder, target.files.folder, dirs_exist_ok=True)
    for rank, result in enumerate(record.ranking, 1):
        stage_published(target.files, rank, result)
    target.files.search_folder.mkdir()
    for kind in ("alignment", "hits"):
        shutil.copy(finished.files.path(kind), target.files.staged(kind))  # type: ignore[arg-type]
    (target.files.search_folder / "search.json").write_text(json.dumps(record.facts["search"]))
    for path in target.files.folder.glob("q*"):
        path.unlink()


def test_temporary_files_of_a_killed_run_are_removed(runs: Runs) -> None:
    folders = (runs.files.folder, runs.files.search_folder, runs.files.staging_folder)
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".q.a3m.0123456789abcdef.tmp").touch()
    runs.run()
    assert not list(runs.files.folder.rglob("*.tmp"))
