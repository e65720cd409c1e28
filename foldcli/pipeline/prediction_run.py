"""All targets of one run of `fold` or `predict`: predicted, summed up, and listed on the index page."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from foldcli.outputs import colabfold_layout
from foldcli.outputs.summary import RunSummary
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.output_location import Place
from foldcli.report.make import ReportSettings, try_index

if TYPE_CHECKING:
    from foldcli.pipeline.predictor import Predictor

T = TypeVar("T")


def predict_all(
    selected: Sequence[tuple[str, T]],
    predict: Callable[[str, T], "Future[None] | None"],
    predictor: "Predictor",
    place: Place,
    failures: Failures,
    report: ReportSettings,
) -> None:
    """Predict every target, and tell what the run came to.

    Args:
        selected: name and what there is of it, of this shard's targets.
        predict: predicts one of them; what it gives back is done when that is finished.
        predictor: networks and settings; its threads end with the run.
        place: where the results go.
        failures: takes down what fails.
        report: what people look at.

    Raises:
        SomeTargetsFailed, TargetFailed: see Failures.finish.
    """
    if place.layout == "colabfold":
        colabfold_layout.begin_run(place.out, predictor, len(selected), place.overwrite)
    summary = RunSummary(place.out, place.layout, [name for name, _ in selected])
    with predictor:
        failures.run(selected, predict)
    summary.tell(failures)
    try:
        failures.finish()
    finally:
        try_index(place.out, report)
