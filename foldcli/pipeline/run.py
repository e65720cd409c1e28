"""The flow of targets through `foldcli fold` and `foldcli predict`.

Each target passes through these stages, in this order:

1. search (`fold` only): NAME.a3m and NAME.m8                         `TargetLoader.load`
2. features: deterministic features, from the cache or computed       `TargetLoader.load`
3. predict: random features, then the network, per model and seed     `predict_target`, `Predictor.run`
4. finish, in the writer's thread: ranked files, report, done.json    `predict_target`

The state of a target is on the disk: intermediate files are in its work folder, under names with its
fingerprint, so that an interrupted run continues; done.json, written last, marks a finished target.
"""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from features.cache import read_entry
from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.cached_targets import CachedTarget
from foldcli.inputs.names import ENTRY_SUFFIX
from foldcli.inputs.targets import TargetInput
from foldcli.logs import logger
from foldcli.outputs import colabfold_layout, done
from foldcli.outputs.model_files import ModelResult, publish_models, rank_models
from foldcli.outputs.summary import RunSummary
from foldcli.params.parameters import UNTRAINED
from foldcli.pipeline.background import Prefetcher
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.features import features_of_alignments, features_of_entry
from foldcli.pipeline.identity import TargetIdentities, fingerprint, is_read_once
from foldcli.pipeline.predictor import FeatureSampler, Predictor
from foldcli.pipeline.search_stage import SearchStage, search_target
from foldcli.pipeline.settings import FeatureSettings, OutputSettings
from foldcli.pipeline.target_run import TargetRun
from foldcli.progress import progress_bar
from foldcli.report import ReportSettings
from foldcli.report.make import try_index, try_report
from msa.io.alignments import read_alignment
from msa.io.fasta import FastaRecord

T = TypeVar("T")


def fold_targets(
    targets: Sequence[tuple[str, FastaRecord | CachedTarget]], loader: "TargetLoader", failures: Failures
) -> None:
    """Search, prepare and predict targets one after another.

    Args:
        targets: names and inputs of this shard's targets.
        loader: prepares the targets.
        failures: gets the targets that fail.

    Raises:
        SomeTargetsFailed, TargetFailed: see `Failures.finish`.
    """

    def fold(name: str, target_input: FastaRecord | CachedTarget) -> Future[None] | None:
        loaded = loader.load((name, target_input))
        if loaded is None:
            logger.info("%s: already done", name)
            return None
        return predict_target(loaded, loader.predictor, loader.output.report)

    _run_targets(targets, fold, loader, failures)


def predict_targets(
    targets: Sequence[tuple[str, AlignmentTarget | CachedTarget]], loader: "TargetLoader", failures: Failures
) -> None:
    """Predict targets, each prepared in a background thread while the network works on the one before.

    Args:
        targets: names and inputs of this shard's targets.
        loader: prepares the targets.
        failures: gets the targets that fail.

    Raises:
        SomeTargetsFailed, TargetFailed: see `Failures.finish`.
    """
    prefetcher = Prefetcher(targets, loader.load_and_sample, loader.predictor.executor)

    def predict(name: str, _: object) -> Future[None] | None:
        loaded = prefetcher.take()
        if loaded is None:
            logger.info("%s: already done", name)
            return None
        loaded.target.facts["waited_for_features_seconds"] = prefetcher.waited
        return predict_target(loaded, loader.predictor, loader.output.report, prefetcher.start)

    _run_targets(targets, predict, loader, failures)


def _run_targets(
    targets: Sequence[tuple[str, T]],
    predict: Callable[[str, T], Future[None] | None],
    loader: "TargetLoader",
    failures: Failures,
) -> None:
    """Predict every target, then log the summary and write the index page."""
    output, predictor = loader.output, loader.predictor
    if output.layout == "colabfold":
        colabfold_layout.begin_run(output, predictor.settings, predictor.sources, len(targets))
    summary = RunSummary(output.folder, output.layout, [name for name, _ in targets])
    with predictor:
        failures.run(targets, predict)
    summary.log([name for name, _ in failures.failed], failures.path)
    try:
        failures.finish()
    finally:
        try_index(output.folder, output.report)


@dataclass
class LoadedTarget:
    """A target that is ready for the network.

    Args:
        target: the state of the target.
        sampler: the random features of its jobs.
        key: fingerprint of the target.
        identity: the values behind the fingerprint.
    """

    target: TargetRun
    sampler: FeatureSampler
    key: str
    identity: dict[str, Any]

    @property
    def models_folder(self) -> Path:
        """The folder of the finished models, until all are finished."""
        return _models_folder(self.target, self.key)


def _models_folder(target: TargetRun, key: str) -> Path:
    return target.files.work_folder / f"predict-{key[:16]}"


@dataclass(frozen=True)
class TargetLoader:
    """Loader of targets from queries, alignments, and entries of a feature cache.

    Args:
        output: settings of the results.
        features: the feature cache.
        predictor: the networks.
        identities: identities of the targets.
        search: the search of queries; None if there are no queries.
    """

    output: OutputSettings
    features: FeatureSettings
    predictor: Predictor
    identities: TargetIdentities
    search: SearchStage | None = None

    def load(self, named: tuple[str, TargetInput]) -> LoadedTarget | None:
        """Search a target and load its features, or return None if it is finished.

        Raises:
            InputError: its alignments cannot be read or do not fit each other, or its entry is damaged.
            OSError: a file cannot be read, or the cache cannot be written.
        """
        name, target_input = named
        identity = self.identities.identity(target_input)
        key = fingerprint(identity)
        target = TargetRun(self.output.files(name))
        start_over = self.output.overwrite or is_read_once(target_input)
        if not start_over and done.is_done(target.files, key):
            return None
        if start_over:
            target.clear()
        features = self._load_features(target, target_input)
        sampler = self.predictor.create_sampler(features, _models_folder(target, key))
        return LoadedTarget(target, sampler, key, identity)

    def load_and_sample(self, named: tuple[str, TargetInput]) -> LoadedTarget | None:
        """Like `load`, and sample the random features of the first job; for a background thread."""
        loaded = self.load(named)
        if loaded is not None:
            loaded.sampler.sample_first()
        return loaded

    def _load_features(self, target: TargetRun, target_input: TargetInput) -> dict[str, np.ndarray]:
        verify = self.features.verify
        if isinstance(target_input, CachedTarget):
            return features_of_entry(target, lambda: target_input.features(verify))
        if isinstance(target_input, FastaRecord):
            assert self.search is not None
            a3m = search_target(self.search, target, target_input)
            return features_of_alignments(target, lambda: [read_alignment(a3m)], self.features)
        path = target_input.files[0]
        if path.endswith(ENTRY_SUFFIX):
            return features_of_entry(target, lambda: read_entry(path, verify=verify))
        contents = target_input.read_contents()
        if "-" not in target_input.files:
            target.facts["alignment"] = str(Path(path).resolve())
        features = features_of_alignments(target, lambda: target_input.parse(contents), self.features)
        if target.files.layout == "colabfold" and len(contents) == 1:
            colabfold_layout.keep_alignment(target.files, contents[0], features["msa"].shape[1])
        return features


def predict_target(
    loaded: LoadedTarget,
    predictor: Predictor,
    report: ReportSettings,
    on_last_job: Callable[[], None] = lambda: None,
) -> Future[None]:
    """Predict a target; the writer's thread then ranks its models, makes the report and writes done.json.

    Args:
        loaded: the target with its features.
        predictor: the networks.
        report: pages and plots to make.
        on_last_job: called when the target needs no more sampling.

    Returns:
        A future that is done when the target is finished.
    """
    target, sampler = loaded.target, loaded.sampler
    predictor.memory.reset_peak()
    target.mark_unfinished()
    with target.stage("predict"), progress_bar(f"{target.name}: predict", "passes") as progress:
        results = predictor.run(target.name, sampler, loaded.models_folder, progress, on_last_job)
    waited = target.facts.get("waited_for_features_seconds", 0.0) + sampler.waited
    target.facts["waited_for_features_seconds"] = round(waited, 3)
    target.facts |= predictor.memory.facts()
    if predictor.untrained:
        target.warnings.append(UNTRAINED)
    # taken out of `loaded`, whose features must not stay in memory until the target is finished
    key, identity, models_folder = loaded.key, loaded.identity, loaded.models_folder
    rank_by, untrained = predictor.settings.rank, predictor.untrained

    def finish() -> None:
        ranked = rank_models([result.result() for result in results], rank_by)
        publish_models(ranked, target.files, models_folder)
        record = done.DoneRecord(
            target.name, key, identity, ranked, target.costs, target.warnings, target.facts
        )
        _finish_target(target, record, report)
        _log_result(target, ranked[0], untrained)

    return predictor.writer.submit(finish)


def _finish_target(target: TargetRun, record: done.DoneRecord, report: ReportSettings) -> None:
    """Make the report, write done.json, and remove the work folder."""
    warning: str | None = "the report was interrupted; run `foldcli report` to create it"
    try:
        with target.stage("report"):
            warning = try_report(target.files, record.content(), report)
    finally:
        # the prediction is complete even if its report is not
        target.warnings += [warning] if warning else []
        if target.files.layout == "colabfold":
            colabfold_layout.finish_target(target.files, record.ranking)
        record.write(target.files.path("done"))
        shutil.rmtree(target.files.work_folder, ignore_errors=True)


def _log_result(target: TargetRun, best: ModelResult, untrained: bool) -> None:
    fields = {
        "target": target.name,
        "residues": target.facts["residues"],
        "alignment_rows": target.facts["alignment_rows"],
        "plddt": best.plddt,
        "ptm": best.ptm,
        "untrained": untrained,
        "seconds": round(sum(cost.seconds for cost in target.costs), 3),
        "structure": str(target.files.model("pdb", 1, best.tag)),
    }
    confidence = f"pLDDT {best.plddt:.1f}" + ("" if best.ptm is None else f", pTM {best.ptm:.3f}")
    logger.info(
        "%s: %d residues, %d alignment rows, %s (%s), %.1f s → %s",
        target.name,
        fields["residues"],
        fields["alignment_rows"],
        "UNTRAINED, no meaning" if untrained else confidence,
        best.tag,
        fields["seconds"],
        fields["structure"],
        extra={"fields": fields},
    )
