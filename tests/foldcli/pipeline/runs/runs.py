"""Runs of one target with a tiny network."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foldcli.errors import TargetFailed
from foldcli.families.settings import AlphaFold2Settings
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.inputs.targets import TargetInput
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import restage_model
from foldcli.params.parameters import find_parameters
from foldcli.pipeline.network.device import NetworkMemory
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.runs.dry_run import inspect_target
from foldcli.pipeline.runs.run import run_targets
from foldcli.pipeline.runs.state import RunSettings
from foldcli.pipeline.search.searcher import LocalSearcher
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.targets.alignment_settings import AlignmentSettings
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings
from foldcli.report import ReportSettings
from msa.alignments.filter_settings import AlignmentFilter
from msa.engines.search_settings import SearchSettings
from msa.io.fasta import FastaRecord
from tests.networks import tiny_parameters

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
QUERY = FastaRecord("q", UBIQUITIN[:30])
SETTINGS = AlphaFold2Settings(num_recycles=0, max_seq=8, max_extra_seq=6)


class Runs:
    """Runs into one folder, each with its own settings."""

    def __init__(self, folder: Path, searcher: LocalSearcher | None = None) -> None:
        self.folder, self.searcher = folder, searcher
        self.files = TargetFiles("q", folder / "out")

    def settings(
        self, models: tuple[int, ...] = (3,), overwrite: bool = False, plots: bool = False, **changes: Any
    ) -> RunSettings:
        settings = replace(SETTINGS, **changes)
        sources = find_parameters(tiny_parameters(), models, "auto")
        predictor = Predictor(sources, settings, NetworkMemory("cpu"))
        output = OutputSettings(
            self.folder / "out", "default", Shard(), overwrite, ReportSettings(False, plots)
        )
        search = None
        if self.searcher is not None:
            alignment = AlignmentSettings(SearchSettings(), AlignmentFilter())
            search = SearchStage(self.searcher, alignment, show_progress=False)
        parameters = [
            {"label": s.label, "network": s.config_name, "content": f"tiny {s.number}"} for s in sources
        ]
        request = None if search is None else search.request
        identities = TargetIdentities(sources, parameters, settings, request)
        return RunSettings(output, FeatureSettings(self.folder / "cache"), predictor, identities, search)

    def run(self, target_input: TargetInput = QUERY, **changes: Any) -> None:
        settings = self.settings(**changes)
        run_targets([("q", target_input)], settings, Failures(settings.output.folder, Shard()))

    def refusal(self, target_input: TargetInput = QUERY, **changes: Any) -> str:
        """Return the message of the error with which a run refuses the target."""
        settings = self.settings(**changes)
        failures = Failures(settings.output.folder, Shard())
        with pytest.raises(TargetFailed) as failed:
            run_targets([("q", target_input)], settings, failures)
        assert failed.value.code == 3
        return str(failures.failed[0][1])

    def action(self, target_input: TargetInput = QUERY, **changes: Any) -> str:
        """Return the action of the target in the plan of `--dry-run`."""
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


def copy_of(finished: Runs, folder: Path) -> Runs:
    """Copy a finished target, preserving the modification times of its files."""
    shutil.copytree(finished.folder, folder, dirs_exist_ok=True)
    return Runs(folder, finished.searcher)


def make_intermediate_files(target: Runs, finished: Runs) -> None:
    """Create the work folder of a run that was killed before it published its models."""
    record = FinishedTarget.read(finished.files.path("done"))
    assert record is not None
    shutil.copytree(finished.files.folder, target.files.folder, dirs_exist_ok=True)
    for rank, result in enumerate(record.ranking, 1):
        restage_model(target.files, rank, result)
    target.files.search_folder.mkdir()
    for kind in ("alignment", "hits"):
        shutil.copy(finished.files.path(kind), target.files.staged_path(kind))  # type: ignore[arg-type]
    for path in target.files.folder.glob("q*"):
        path.unlink()
