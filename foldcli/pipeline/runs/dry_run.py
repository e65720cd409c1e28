"""Plans for `--dry-run`: a table or JSON with the action that a run would take for each target."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from foldcli.errors import describe
from foldcli.families.registry import family_of
from foldcli.families.reporting import Estimate, PlanHeading
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.plan import plan_target, read_finished
from foldcli.pipeline.targets.settings import OutputSettings
from foldcli.units import format_count, format_duration
from msa.database.database import TargetDatabase

if TYPE_CHECKING:
    from foldcli.pipeline.network.predictor import Predictor

T = TypeVar("T")

TO_DO = "to do"
RESUMED = "to do, resumes an interrupted run"
DONE = "already done"
INVALID = "invalid"
# descriptions of the states in the line of counts
_STATE_LABELS = {"to_do": TO_DO, "done": DONE, "invalid": INVALID, "other_shard": "in other shards"}
# the number of residues of a target, and its action
Inspection = tuple[int, str]


@dataclass(frozen=True)
class PlannedTarget:
    """The plan for one target.

    Args:
        residues: length of its query; None if it cannot be read, or belongs to another shard.
        action: TO_DO (followed by the models that would be replaced), RESUMED, DONE, INVALID with the reason,
            or the shard of the target.
        estimate: estimated cost; None if there is nothing to do or nothing to estimate.
    """

    name: str
    residues: int | None
    action: str
    estimate: Estimate | None = None

    @property
    def state(self) -> Literal["to_do", "done", "invalid", "other_shard"]:
        """The state of the target according to its action."""
        if self.action.startswith(TO_DO):
            return "to_do"
        if self.action == DONE:
            return "done"
        return "invalid" if self.action.startswith(INVALID) else "other_shard"

    @property
    def atoms(self) -> int | None:
        """The number of atoms; None if it is not known."""
        return None if self.estimate is None else self.estimate.atoms

    def as_json(self) -> dict[str, Any]:
        """Return the target's entry in the plan's JSON form; unknown values are None."""
        return {
            "target": self.name,
            "state": self.state,
            "action": self.action,
            "residues": self.residues,
            "memory_bytes": None if self.estimate is None else self.estimate.memory_bytes,
            "seconds": None if self.estimate is None else self.estimate.seconds,
            "rough": None if self.estimate is None else self.estimate.is_rough,
        } | ({} if self.atoms is None else {"atoms": self.atoms})


def plan_targets(
    targets: Iterable[tuple[str, T]],
    inspect: Callable[[str, T], Inspection],
    shard: Shard,
    failures: Failures,
    estimate: Callable[[int, T], Estimate | None] = lambda residues, target_input: None,
) -> list[PlannedTarget]:
    """Return the plan for the targets of all shards, sorted by name.

    Args:
        targets: names and inputs.
        inspect: returns residues and action from a target's name and input.
        shard: the run's share of the targets; only these are inspected.
        failures: gets the exceptions that `inspect` raises.
        estimate: returns the cost of a target from its residues and input; None if nothing can be estimated.
    """
    inspections: dict[str, Inspection] = {}

    def record(name: str, target_input: T) -> None:
        inspections[name] = inspect(name, target_input)

    planned = []
    for position, (name, target_input) in enumerate(sorted(targets, key=lambda target: target[0])):
        shard_index = position % shard.count + 1
        if shard_index != shard.index:
            planned.append(PlannedTarget(name, None, f"in shard {shard_index}/{shard.count}"))
            continue
        failures.run([(name, target_input)], record)
        if name not in inspections:
            # the row of the table begins with the name
            reason = describe(failures.failed[-1][1]).removeprefix(f"{name}: ")
            planned.append(PlannedTarget(name, None, f"{INVALID}: {reason}"))
            continue
        residues, action = inspections[name]
        planned.append(
            PlannedTarget(
                name, residues, action, None if action == DONE else estimate(residues, target_input)
            )
        )
    return planned


def print_prediction_plan(
    targets: Sequence[tuple[str, object]],
    identities: TargetIdentities,
    predictor: "Predictor",
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
    family, sources = predictor.family, predictor.sources
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
    name: str, target_input: object, identities: TargetIdentities, output: OutputSettings
) -> Inspection:
    """Return the number of residues of a target, and the action of a run.

    Raises:
        InputError: its alignments cannot be read, its query cannot be searched with, or the run would refuse
            to replace finished results.
    """
    files = output.files(name)
    family = identities.family_of(target_input)
    residues = family.size(target_input)
    unfinished = RESUMED if files.work_folder.is_dir() else TO_DO
    if identities.request is None and family.is_searched(target_input):
        # the database does not exist yet, so no fingerprint is known
        return residues, TO_DO if output.overwrite else unfinished
    if output.overwrite:
        finished = read_finished(files)
        count = 0 if finished is None else len(finished.ranking)
        return residues, f"{TO_DO}, replaces {format_count(count, 'model')}" if count else TO_DO
    plan = plan_target(files, target_input, identities, output)
    return residues, DONE if plan.is_finished else unfinished


def estimator(predictor: "Predictor", identities: TargetIdentities) -> Callable[[int, Any], Estimate | None]:
    """Return a function that estimates a target's cost from its size and input."""

    def estimate(size: int, target_input: object) -> Estimate | None:
        sources = identities.sources_of(target_input)
        return family_of(sources[0]).estimate(
            size, target_input, sources, predictor.sources, predictor.settings, predictor.memory
        )

    return estimate


def database_heading(db: str, database: TargetDatabase | None) -> PlanHeading:
    """Return the plan's heading about the database, which is None if it would have to be built first."""
    values: dict[str, object] = {"path": db, "exists": database is not None}
    if database is None:
        line = f"database: {db}, which would be built first; finished targets are not known before that"
        return PlanHeading(line, "database", values)
    manifest = database.manifest
    line = f"database: {db}, {manifest.sequences:,} sequences, {manifest.residues:,} residues"
    if database.companions:
        line += f"; with {len(database.companions)} more, {database.total_residues:,} residues"
    values |= {"sequences": manifest.sequences, "residues": manifest.residues}
    return PlanHeading(line, "database", values)


def print_plan(
    planned: list[PlannedTarget],
    headings: Sequence[PlanHeading],
    failures: Failures,
    as_json: bool,
    size_unit: str = "residues",
) -> None:
    """Print a plan to stdout.

    Args:
        planned: from `plan_targets`.
        headings: printed above the table.
        failures: the failed targets and the files that could not be read.
        as_json: print one JSON object instead of a table.
        size_unit: heading of the column of sizes.

    Raises:
        SomeTargetsFailed, TargetFailed: there are failures.
    """
    names = {target.name for target in planned}
    unreadable = [describe(error) for name, error in failures.failed if name not in names]
    if as_json:
        content = {heading.name: heading.values for heading in headings}
        content |= {"targets": [target.as_json() for target in planned], "unreadable": unreadable}
        print(json.dumps(content, indent=2), flush=True)
    else:
        width = max([len("target"), *(len(target.name) for target in planned)])
        lines = [heading.line for heading in headings]
        lines += ["", f"{'target':<{width}}  {size_unit:>8}    memory        time  action"]
        lines += [_line(target, width) for target in planned]
        lines += ["", *totals(planned), *(f"unreadable: {reason}" for reason in unreadable)]
        print("\n".join(lines), flush=True)
    failures.raise_if_any(written=False)


def _line(target: PlannedTarget, width: int) -> str:
    residues = "" if target.residues is None else str(target.residues)
    memory = seconds = ""
    if target.estimate is not None:
        memory, seconds = _gibibytes(target.estimate.memory_bytes), _duration(target.estimate.seconds)
    action = target.action if target.atoms is None else f"{target.action}, {target.atoms:,} atoms"
    return f"{target.name:<{width}}  {residues:>8} {memory:>9} {seconds:>11}  {action}"


def totals(planned: list[PlannedTarget]) -> list[str]:
    """Return the lines below the table: counts per action, total time and largest memory."""
    counts: dict[str, int] = {}
    for target in planned:
        label = _STATE_LABELS[target.state]
        counts[label] = counts.get(label, 0) + 1
    text = ", ".join(f"{count} {label}" for label, count in counts.items()) or "no targets"
    estimates = [target.estimate for target in planned if target.estimate is not None]
    if not estimates:
        return [text]
    seconds = [estimate.seconds for estimate in estimates]
    total_seconds = None if None in seconds else sum(value for value in seconds if value is not None)
    memory = [estimate.memory_bytes for estimate in estimates]
    max_memory = None if None in memory else max(value for value in memory if value is not None)
    first = f"{text}; network time {_duration(total_seconds)}, peak memory {_gibibytes(max_memory)}"
    if any(estimate.is_rough for estimate in estimates):
        return [
            first,
            "Rough estimates, often wrong by a factor of two: from the speed of this CPU now, for as many",
            "alignment rows as the settings allow. Search, features and start-up are not included.",
        ]
    return [
        first,
        "Estimates: planned GPU memory, and time measured on such GPUs, for as many alignment rows as the",
        "settings allow. Search, features and start-up are not included. unknown: never measured.",
    ]


def _gibibytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"


def _duration(seconds: float | None) -> str:
    return "unknown" if seconds is None else format_duration(seconds)
