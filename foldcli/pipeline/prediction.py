"""The prediction of one target, and all that is made of it."""

import shutil
from collections.abc import Callable
from concurrent.futures import Future

from foldcli.logs import logger
from foldcli.outputs import colabfold_layout, done
from foldcli.outputs.model_files import ModelResult, publish, rank
from foldcli.params.parameters import UNTRAINED
from foldcli.pipeline.loading import Loaded
from foldcli.pipeline.predictor import Predictor
from foldcli.pipeline.target_run import TargetRun
from foldcli.progress import progress_bar
from foldcli.report.make import ReportSettings, try_report


def predict_target(
    loaded: Loaded,
    predictor: Predictor,
    report: ReportSettings,
    last_job: Callable[[], None] = lambda: None,
) -> "Future[None]":
    """Predict, and have the target finished: ranked, reported on, its done.json written.

    Args:
        loaded: the target on its way, with its features.
        predictor: networks and settings.
        report: what people look at.
        last_job: see `Predictor.run`.

    Returns:
        Done when the target is finished, which may go on beside the next one's prediction; or what went
        wrong there.
    """
    target, draws = loaded.target, loaded.draws
    predictor.memory.reset_peak()
    target.unfinish()
    with target.stage("predict"), progress_bar(f"{target.name}: predict", "passes") as progress:
        results = predictor.run(target.name, draws, loaded.unfinished, progress, last_job)
    waited = target.facts.get("waited_for_features_seconds", 0.0) + draws.waited
    target.facts["waited_for_features_seconds"] = round(waited, 3)
    target.facts |= predictor.memory.facts()
    if predictor.untrained:
        target.warnings.append(UNTRAINED)
    # not `loaded` itself, whose features would be kept in memory until the target is finished
    key, identity, unfinished, by = loaded.key, loaded.identity, loaded.unfinished, predictor.settings.rank

    def finish() -> None:
        ranked = rank([result.result() for result in results], by)
        publish(ranked, target.files, unfinished)
        facts = target.watch.costs, target.warnings, target.facts
        _finish(target, done.Done(target.name, key, identity, ranked, *facts), report)
        _tell(target, ranked[0], predictor.untrained)

    return predictor.beside.begin(finish)


def _finish(target: TargetRun, finished: done.Done, report: ReportSettings) -> None:
    """Make the report, write done.json, and clear what was half-way."""
    failure: str | None = "the report was interrupted; foldcli report makes it"
    try:
        with target.stage("report"):
            failure = try_report(target.files, finished.content(), report)
    finally:
        # the prediction is whole, whatever became of its report
        target.warnings += [failure] if failure else []
        if target.files.layout == "colabfold":
            colabfold_layout.finish_target(target.files, finished.ranking)
        finished.write(target.files.path("done"))
        shutil.rmtree(target.work, ignore_errors=True)


def _tell(target: TargetRun, best: ModelResult, untrained: bool) -> None:
    told = {
        "target": target.name,
        "residues": target.facts["residues"],
        "alignment_rows": target.facts["alignment_rows"],
        "plddt": best.plddt,
        "ptm": best.ptm,
        "untrained": untrained,
        "seconds": round(sum(cost.seconds for cost in target.watch.costs), 3),
        "structure": str(target.files.model("pdb", 1, best.tag)),
    }
    confidence = f"pLDDT {best.plddt:.1f}" + ("" if best.ptm is None else f", pTM {best.ptm:.3f}")
    logger.info(
        "%s: %d residues, %d alignment rows, %s (%s), %.1f s → %s",
        target.name,
        told["residues"],
        told["alignment_rows"],
        "UNTRAINED, no meaning" if untrained else confidence,
        best.tag,
        told["seconds"],
        told["structure"],
        extra={"fields": told},
    )
