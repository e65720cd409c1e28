"""Plans of targets: the requested predictions, compared with the results of earlier runs."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from foldcli.families.settings import Job, JobSettings
from foldcli.fingerprints import fingerprint
from foldcli.logs import warn_once
from foldcli.outputs.done import FinishedTarget
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import (
    ModelResult,
    discard_staged,
    read_staged_results,
    restage_model,
)
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.settings import OutputSettings
from model.prediction import Extra
from msa.base.errors import InputError

# differences between settings to name in a message
_MAX_DIFFERENCES = 3


@dataclass(frozen=True)
class TargetPlan:
    """The predictions of a target: requested ones, and finished ones that are kept.

    Args:
        jobs: the requested jobs, in order, without those that --stop-at-score makes unnecessary according to
            the results so far.
        finished: results of an earlier run with the same fingerprint, which are kept; None if there are none.
        is_finished: whether all requested jobs are done, ranked, relaxed, archived and reported as requested.
    """

    identity: dict[str, object]
    fingerprint: str
    jobs: list[Job]
    stop_at_score: float
    extras: tuple[Extra, ...]
    finished: FinishedTarget | None
    is_finished: bool

    @property
    def may_stop(self) -> bool:
        """True if a score can make jobs unnecessary; pLDDT is at most 100."""
        return self.stop_at_score < 100

    @property
    def models(self) -> dict[str, str]:
        """The fingerprints of all models that the target will have, requested and kept, by tag."""
        kept_results = [] if self.finished is None else self.finished.ranking
        requested = fingerprints(self.jobs, self.fingerprint)
        return {result.tag: result.fingerprint for result in kept_results} | requested

    def _matches(self, result: ModelResult) -> bool:
        """Return True if a result belongs to a model of this plan, and has all extras that the run saves."""
        requested = {tag for job in self.jobs for tag in job.tags}
        has_extras = result.tag not in requested or result.has_extras(self.extras)
        return has_extras and self.models.get(result.tag) == result.fingerprint

    def stop_after(self, job: Job) -> "TargetPlan":
        """Return the plan without the jobs after one of them."""
        return replace(self, jobs=self.jobs[: self.jobs.index(job) + 1])

    def stage_kept_models(self, files: TargetFiles) -> "tuple[TargetPlan, list[Job]]":
        """Stage the published models that are kept, and discard staged models that do not match the plan.

        Returns:
            The plan, without jobs that staged models make unnecessary, and the jobs that must be predicted.
        """
        staged = {result.tag: result for result in read_staged_results(files.staging_folder)}
        for tag, result in list(staged.items()):
            if not self._matches(result):
                discard_staged(files, tag)
                del staged[tag]
        if self.finished is not None:
            for rank, result in enumerate(self.finished.ranking, 1):
                paths = result.paths(files, rank)
                is_needed = result.tag not in staged and self._matches(result)
                if is_needed and all(path.is_file() for path in paths):
                    restage_model(files, rank, result)
                    staged[result.tag] = result
        plan = replace(self, jobs=_needed_jobs(self.jobs, staged.values(), self.stop_at_score))
        needed = [job for job in plan.jobs if not staged.keys() >= set(job.tags)]
        for job in needed:
            # a killed run may have left some files of a model, such as a relaxed structure
            for tag in job.tags:
                discard_staged(files, tag)
        return plan, needed


def plan_target(
    files: TargetFiles, target_input: object, identities: TargetIdentities, output: OutputSettings
) -> TargetPlan:
    """Return the plan of a target; changes no files.

    Args:
        files: the target's files.
        target_input: its input.
        identities: identities of the run.
        output: settings of the results; with `overwrite`, finished results are ignored.

    Raises:
        InputError: the run would replace finished results of other settings.
    """
    identity = identities.identity(files.name, target_input)
    key = fingerprint(identity)
    jobs = identities.jobs(target_input)
    stop_at_score, extras = identities.settings.stop_at_score, identities.settings.extras
    finished = None if output.overwrite else read_finished(files)
    if finished is None:
        return TargetPlan(identity, key, jobs, stop_at_score, extras, None, False)
    if finished.fingerprint != key:
        differences = ", ".join(_describe_differences(finished.settings, identity))
        raise InputError(
            _refusal(files, finished.ranking, f"made with other settings ({differences})"), files.name
        )
    jobs = _needed_jobs(jobs, finished.ranking, stop_at_score)
    requested = fingerprints(jobs, key)
    replaced = [
        result
        for result in finished.ranking
        if requested.get(result.tag, result.fingerprint) != result.fingerprint
    ]
    if replaced:
        raise InputError(_refusal(files, replaced, "made with other network parameters"), files.name)
    is_finished = _is_complete(files, finished, requested, identities.settings, output)
    return TargetPlan(identity, key, jobs, stop_at_score, extras, finished, is_finished)


def has_work(
    targets: Sequence[tuple[str, object]], identities: TargetIdentities, output: OutputSettings
) -> bool:
    """Return True if a run will work on a target, which its record shows before anything is hashed.

    Results of other settings or parameters count as finished: `plan_target` refuses to replace them.

    Args:
        targets: names and inputs.
        identities: identities of the run; the hashes of its parameters and its request are not used.
        output: settings of the results.
    """
    if output.overwrite or not all(output.files(name).path("done").exists() for name, _ in targets):
        return True
    return not all(_is_recorded(output.files(name), item, identities, output) for name, item in targets)


def _is_recorded(
    files: TargetFiles, target_input: object, identities: TargetIdentities, output: OutputSettings
) -> bool:
    """Return True if the record of a target has all requested models, or no network predicts the target."""
    if (finished := read_finished(files)) is None:
        return False
    settings = identities.settings
    try:
        jobs = _needed_jobs(identities.jobs(target_input), finished.ranking, settings.stop_at_score)
    except InputError:
        return True
    return _is_complete(files, finished, {tag for job in jobs for tag in job.tags}, settings, output)


def _is_complete(
    files: TargetFiles,
    finished: FinishedTarget,
    requested: Collection[str],
    settings: JobSettings,
    output: OutputSettings,
) -> bool:
    """Return True if results have all requested models, by tag, ranked and with the files of the settings."""
    models = [result for result in finished.ranking if result.tag in requested]
    # an interrupted run may have moved done.json aside
    if not (
        finished.rank_by == settings.rank
        and files.path("done").is_file()
        and set(requested) == {result.tag for result in models}
        and all(result.has_extras(settings.extras) for result in models)
        and (not output.archive or files.path("archive").is_file())
        and output.report.is_made(files)
    ):
        return False
    if missing := finished.missing_files(files):
        _warn_of_record(files, f"{files.name}: {missing[0]} is missing, so its model is made again")
        return False
    return all(
        files.model_path("relaxed_pdb", rank, result.tag).is_file()
        for rank, result in enumerate(finished.ranking[: output.relaxation.limit], 1)
    )


def fingerprints(jobs: Iterable[Job], target_fingerprint: str) -> dict[str, str]:
    """Return the fingerprints of the models of jobs by tag, given the target's fingerprint."""
    return {tag: key for job in jobs for tag, key in job.fingerprints(target_fingerprint).items()}


def _needed_jobs(jobs: list[Job], results: Iterable[ModelResult], stop_at_score: float) -> list[Job]:
    """Return the jobs up to the first one that has a result with a mean pLDDT above `stop_at_score`."""
    high_scoring = {result.tag for result in results if result.plddt > stop_at_score}
    end = next((index for index, job in enumerate(jobs, 1) if high_scoring & set(job.tags)), None)
    return jobs[:end]


def read_finished(files: TargetFiles) -> FinishedTarget | None:
    """Return the record of a target's finished results; None if there is none, or it is damaged."""
    # a run that was interrupted while it published files has moved the record aside
    for path in (files.path("done"), files.replaced_record):
        try:
            if (finished := FinishedTarget.read(path)) is not None:
                return finished
        except (OSError, ValueError) as error:
            _warn_of_record(files, f"{path}: unusable, so {files.name} is predicted again: {error}")
    return None


def _warn_of_record(files: TargetFiles, text: str) -> None:
    """Warn about a target's record: a run plans a target several times."""
    record = files.path("done")
    warn_once(text, record.stat().st_mtime_ns if record.exists() else None)


def _refusal(files: TargetFiles, models: list[ModelResult], reason: str) -> str:
    count, pronoun = (f"{len(models)} models", "them") if len(models) > 1 else ("a model", "it")
    remedy = f"--overwrite replaces {pronoun}, or choose another --out"
    return f"{files.structures_folder} holds {count} {reason}; {remedy}"


def _describe_differences(old: dict[str, object], new: dict[str, object]) -> Iterator[str]:
    """Yield short descriptions of the settings that differ."""
    # `old` was read from JSON, which has no tuples
    before, now = dict(_flatten(old)), dict(_flatten(json.loads(json.dumps(new, default=str))))
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for name in names[:_MAX_DIFFERENCES]:
        values = [str(values.get(name, "none")) for values in (before, now)]
        # sequences and checksums are too long for a message
        all_short = all(len(value) <= 20 for value in values)
        yield f"{name} {values[0]}, now {values[1]}" if all_short else name
    if len(names) > _MAX_DIFFERENCES:
        yield f"{len(names) - _MAX_DIFFERENCES} others"


def _flatten(settings: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
