"""`--dry-run`: which targets would be done, on what, with what they would take, and why others would not."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from foldcli.errors import describe
from foldcli.inputs.shard import Shard
from foldcli.outputs import done
from foldcli.pipeline.estimates import Estimate, parameter_bytes, peak_on_gpu, seconds_a_pass
from foldcli.pipeline.failures import Failures
from foldcli.pipeline.output_location import Place

if TYPE_CHECKING:
    from foldcli.pipeline.predictor import Predictor
    from msa.database.database import TargetDatabase

T = TypeVar("T")
TO_DO = "to do"
RESUMED = "to do, goes on from what was begun"
DONE = "already done"
INVALID = "invalid"


@dataclass(frozen=True)
class Planned:
    """What would become of one target.

    Args:
        name: the target.
        residues: of its query; None where it cannot be read or is not looked at.
        what: TO_DO, RESUMED, DONE, INVALID and why, or the shard that does it.
        estimate: of what will be done.
    """

    name: str
    residues: int | None
    what: str
    estimate: Estimate | None = None

    @property
    def to_do(self) -> bool:
        return self.what in (TO_DO, RESUMED)


def state_of(place: Place, name: str, key: str | None) -> str:
    """What is known of a target: TO_DO, RESUMED or DONE.

    Args:
        place: where its results would go.
        name: the target.
        key: its fingerprint, None where it cannot be known yet.
    """
    if place.overwrite:
        return TO_DO
    files = place.files(name)
    if key is not None and done.is_done(files, key):
        return DONE
    return RESUMED if files.work.is_dir() else TO_DO


def plan(
    named: Iterable[tuple[str, T]],
    look: Callable[[T], tuple[int, str | None]],
    shard: Shard,
    state: Callable[[str, str | None], str],
    failures: Failures,
    estimate: Callable[[int], Estimate | None] = lambda residues: None,
) -> list[Planned]:
    """What would become of each target, of all shards, sorted by name.

    Args:
        named: (name, target) of all there are.
        look: residues and fingerprint of a target, which is None where it cannot be known yet.
        shard: the run's part of the targets.
        state: TO_DO, RESUMED or DONE of a target's name and fingerprint.
        failures: what `look` raises is taken down there.
        estimate: of so many residues; None where there is nothing to estimate.
    """
    planned = []
    for number, (name, item) in enumerate(sorted(named, key=lambda pair: pair[0])):
        index = number % shard.count + 1
        if index != shard.index:
            planned.append(Planned(name, None, f"in shard {index}/{shard.count}"))
            continue
        found: list[tuple[int, str | None]] = []
        failures.run([(name, item)], partial(_look, look, found))
        if not found:
            planned.append(Planned(name, None, f"{INVALID}: {describe(failures.failed[-1][1])}"))
            continue
        ((residues, key),) = found
        what = state(name, key)
        planned.append(Planned(name, residues, what, None if what == DONE else estimate(residues)))
    return planned


def _look(
    look: Callable[[T], tuple[int, str | None]], found: list[tuple[int, str | None]], name: str, item: T
) -> None:
    found.append(look(item))


def plan_run(
    named: "list[tuple[str, T]]",
    look: Callable[[T], tuple[int, str | None]],
    facts: list[str],
    place: Place,
    predictor: "Predictor",
    failures: Failures,
) -> None:
    """Tell what `foldcli fold` or `foldcli predict` would do.

    Args:
        named: (name, target) of all there are.
        look: see `TargetLoader.look`.
        facts: lines of the heading, beside the network's.
        place: where results would go.
        predictor: what would run.
        failures: see `plan`.

    Raises:
        SomeTargetsFailed, TargetFailed: a target or a file is invalid.
    """
    planned = plan(named, look, place.shard, partial(state_of, place), failures, estimator(predictor))
    tell(planned, [network_fact(predictor), *facts], failures)


def estimator(predictor: "Predictor") -> Callable[[int], Estimate]:
    """What estimates a target on the predictor's device from its residues; on a CPU nothing is known."""
    from model.config import model_config

    memory, settings = predictor.memory, predictor.settings
    if memory.device == "cpu":
        return lambda residues: Estimate(None, None)
    configs = [model_config(source.config_name) for source in predictor.sources]
    name, available = device_name(memory.device), memory.available_bytes()
    kept = sum(parameter_bytes(config, settings) for config in configs)
    passes = (settings.num_recycle + 1) * settings.num_seeds

    def estimate(residues: int) -> Estimate:
        peak = max(peak_on_gpu(config, settings, residues, available - kept) for config in configs)
        each = [seconds_a_pass(name, config, settings, residues) for config in configs]
        known = [seconds for seconds in each if seconds is not None]
        return Estimate(peak + kept, passes * sum(known) if len(known) == len(each) else None)

    return estimate


def device_name(device: str) -> str:
    """A GPU as its driver calls it, or CPU."""
    if device == "cpu":
        return "CPU"
    import torch

    return str(torch.cuda.get_device_name(device))


def network_fact(predictor: "Predictor") -> str:
    """What would run on what."""
    settings = predictor.settings
    device = f"{device_name(predictor.memory.device)}, {settings.precision}, {settings.kernels} kernels"
    models, seeds = _counted(len(predictor.sources), "model"), _counted(settings.num_seeds, "seed")
    passes = _counted(settings.num_recycle + 1, "pass", "passes")
    return f"network: {device}; a target: {models}, {seeds}, at most {passes} each"


def database_fact(db: str, database: "TargetDatabase | None") -> str:
    """The database's size; None is one that would be built first."""
    if database is None:
        return f"database: {db}, which would be built first; what is finished is not known before that"
    manifest = database.manifest
    return f"database: {db}, {manifest.sequences:,} sequences, {manifest.residues:,} residues"


def tell(planned: list[Planned], facts: list[str], failures: Failures) -> None:
    """Write the plan to stdout.

    Args:
        planned: from `plan`.
        facts: lines of the heading.
        failures: of targets and of files that could not be read.

    Raises:
        SomeTargetsFailed, TargetFailed: there are any.
    """
    for line in lines_of(planned, facts):
        click.echo(line)
    shown = {each.name for each in planned}
    for name, error in failures.failed:
        if name not in shown:
            click.echo(f"unreadable: {describe(error)}")
    failures.judge(written=False)


def lines_of(planned: list[Planned], facts: list[str]) -> list[str]:
    """The heading, a line a target, and what they come to."""
    width = max([len("target"), *(len(each.name) for each in planned)])
    lines = [*facts, "", f"{'target':<{width}}  residues    memory      time  what happens"]
    lines += [_line(each, width) for each in planned]
    return [*lines, "", *_totals(planned)]


def _line(each: Planned, width: int) -> str:
    residues = "" if each.residues is None else str(each.residues)
    memory = seconds = ""
    if each.estimate is not None:
        memory, seconds = _gib(each.estimate.memory_bytes), _seconds(each.estimate.seconds)
    return f"{each.name:<{width}}  {residues:>8} {memory:>9} {seconds:>9}  {each.what}"


def _totals(planned: list[Planned]) -> list[str]:
    counts: dict[str, int] = {}
    for each in planned:
        kind = TO_DO if each.to_do else each.what.partition(":")[0]
        kind = "in other shards" if kind.startswith("in shard") else kind
        counts[kind] = counts.get(kind, 0) + 1
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no targets"
    wanted = [each.estimate for each in planned if each.estimate is not None]
    if not wanted:
        return [told]
    times = [each.seconds for each in wanted]
    total = None if None in times else sum(seconds for seconds in times if seconds is not None)
    memory = [each.memory_bytes for each in wanted]
    most = None if None in memory else max(each for each in memory if each is not None)
    return [
        f"{told}; time of the network {_seconds(total)}, memory at the highest {_gib(most)}",
        "Estimates: memory as planned on a GPU, time from passes measured on a GPU of this kind, for as many",
        "rows as the settings allow; search, features and start come on top. unknown: nothing was measured.",
    ]


def _counted(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
