"""Plans of `fold --dry-run` and `predict --dry-run`."""

from collections.abc import Callable, Sequence
from typing import Any

from foldcli.families.registry import family_of
from foldcli.families.reporting import Estimate, PlanHeading
from foldcli.inputs.failures import Failures
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.runs.dry_run import DONE, RESUMED, TO_DO, Inspection, plan_targets, print_plan
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.plan import plan_target, read_finished
from foldcli.pipeline.targets.settings import OutputSettings
from foldcli.units import format_count


def print_prediction_plan(
    targets: Sequence[tuple[str, Any]],
    identities: TargetIdentities,
    predictor: Predictor,
    output: OutputSettings,
    failures: Failures,
    headings: tuple[PlanHeading, ...] = (),
    as_json: bool = False,
) -> None:
    """Print the plan of `foldcli fold` or `foldcli predict`.

    Args:
        targets: names and inputs of the targets of all shards.
        identities: identities of the targets.
        predictor: the networks that would run.
        output: settings of the results.
        failures: the failed targets and the files that could not be read.
        headings: further headings of the plan, such as about the database.
        as_json: print one JSON object instead of a table.

    Raises:
        SomeTargetsFailed, TargetFailed: there are failures.
    """
    family, sources = identities.family, predictor.sources
    heading = family.plan_heading(sources, predictor.settings, predictor.memory)
    planned = plan_targets(
        targets,
        lambda name, target_input: inspect_target(name, target_input, identities, output),
        output.shard,
        failures,
        estimator(predictor, identities),
    )
    print_plan(planned, [heading, *headings], failures, as_json, family.size_unit)


def inspect_target(
    name: str, target_input: Any, identities: TargetIdentities, output: OutputSettings
) -> Inspection:
    """Return the number of residues of a target, and the action of a run.

    Raises:
        InputError: its alignments cannot be read, its query cannot be searched with, or the run would refuse
            to replace finished results.
    """
    files = output.files(name)
    identities.sources_of(target_input)
    residues = identities.family.size(target_input)
    unfinished = RESUMED if files.work_folder.is_dir() else TO_DO
    if identities.request is None and identities.family.is_searched(target_input):
        # the database does not exist yet, so no fingerprint is known
        return residues, TO_DO if output.overwrite else unfinished
    if output.overwrite:
        finished = read_finished(files)
        count = 0 if finished is None else len(finished.ranking)
        return residues, f"{TO_DO}, replaces {format_count(count, 'model')}" if count else TO_DO
    plan = plan_target(files, target_input, identities, output)
    return residues, DONE if plan.is_finished else unfinished


def estimator(predictor: Predictor, identities: TargetIdentities) -> Callable[[int, Any], Estimate | None]:
    """Return a function that estimates a target's cost from its size and input."""

    def estimate(size: int, target_input: Any) -> Estimate | None:
        sources = identities.sources_of(target_input)
        return family_of(sources[0]).estimate(
            size, target_input, sources, predictor.sources, predictor.settings, predictor.memory
        )

    return estimate
