"""The settings and state that the stages of one run share."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event

from foldcli.errors import ends_run
from foldcli.families.registry import family_of
from foldcli.families.settings import Job
from foldcli.inputs.failures import Failures
from foldcli.logs import logger
from foldcli.outputs.target import TargetRun, TargetStatus
from foldcli.pipeline.network.device_workers import WorkerSettings
from foldcli.pipeline.network.predictor import Predictor
from foldcli.pipeline.network.start import Startup
from foldcli.pipeline.prepare.template_stage import TemplateStage
from foldcli.pipeline.search.stage import SearchStage
from foldcli.pipeline.targets.identity import TargetIdentities
from foldcli.pipeline.targets.locks import TargetLocks
from foldcli.pipeline.targets.plan import TargetPlan, plan_target
from foldcli.pipeline.targets.settings import FeatureSettings, OutputSettings
from foldcli.progress import Report, RunProgress


@dataclass(frozen=True)
class RunSettings:
    """The settings and stages of a run.

    Args:
        search: the search of queries; None if there are no queries.
        templates: the template stage; None to use no templates.
        database: description of the database of `search`, for the opening line.
        workers: settings of one worker per device, if there are several devices; if empty, `predictor` runs
            the jobs in this process.
        startup: the processes that were started ahead.
        report: see `RunProgress`; an exception that it raises ends the run.
    """

    output: OutputSettings
    features: FeatureSettings
    predictor: Predictor
    identities: TargetIdentities
    search: SearchStage | None = None
    templates: TemplateStage | None = None
    database: str | None = None
    workers: tuple[WorkerSettings, ...] = ()
    devices_per_target: int = 1
    startup: Startup = field(default_factory=Startup)
    report: Report | None = None

    def device_groups(self) -> list[tuple[WorkerSettings, ...]]:
        """Return groups of devices that predict targets together; devices left over are not used."""
        size = self.devices_per_target
        starts = range(0, len(self.workers) - size + 1, size)
        return [self.workers[start : start + size] for start in starts]

    def opening_line(self, num_targets: int) -> str:
        """Return a description of the run: targets, networks, device and database."""
        predictor, identities = self.predictor, self.identities
        labels = [source.label for source in predictor.sources]
        # labels that differ only in their number are written like alphafold2_ptm_model_1, 2, 3
        labels_by_kind: dict[str, list[str]] = {}
        for label in labels:
            labels_by_kind.setdefault(label.rpartition("_")[0], []).append(label)
        networks = " and ".join(
            ", ".join([first, *(label.rpartition("_")[2] for label in others)])
            for first, *others in labels_by_kind.values()
        )
        seeds, concurrent_targets = identities.settings.num_seeds, min(len(self.device_groups()), num_targets)
        parts = [
            f"{num_targets} target{'s' if num_targets > 1 else ''}",
            networks + (f" with {seeds} seeds" if seeds > 1 else ""),
            predictor.family.describe_device(predictor.settings, predictor.memory),
            *([f"{concurrent_targets} targets at a time"] if concurrent_targets > 1 else []),
            *([] if self.database is None else [f"database {self.database}"]),
            *(
                [f"{'without' if self.templates and self.templates.has_no_dates else 'with'} templates"]
                if self.uses_templates(identities.all_jobs())
                else []
            ),
        ]
        return "; ".join(parts)

    def uses_templates(self, jobs: Sequence[Job]) -> bool:
        """Return True if templates are searched, and the network of one of the jobs takes them."""
        takes_templates = (family_of(job.source).uses_templates(job.source) for job in jobs)
        return self.templates is not None and any(takes_templates)


class RunState:
    """The targets of one run, its locks and its failures; stages in several threads use it.

    Attributes:
        stop: set when the run ends.
        ended_by: the error of a target that has ended the run; see `foldcli.errors.ends_run`.
    """

    def __init__(self, targets: list[TargetRun], settings: RunSettings, failures: Failures) -> None:
        self.targets, self.settings, self.failures = targets, settings, failures
        self.positions = {target.name: position for position, target in enumerate(targets, 1)}
        self.stop = Event()
        self.ended_by: BaseException | None = None
        self.locks = TargetLocks(self.stop)
        report = {} if settings.report is None else {"report": self._report}
        self.progress = RunProgress(len(targets), _most_passes(settings, targets), **report)

    def _report(self, done: int, total: int, text: str) -> None:
        """Call the report of the settings; its exception ends the run, whichever thread calls."""
        assert self.settings.report is not None
        try:
            self.settings.report(done, total, text)
        except BaseException as error:
            self.ended_by = self.ended_by or error
            self.stop.set()
            raise

    def plan(self, target: TargetRun) -> TargetPlan:
        """Return the plan of a target; see `plan_target`, whose exceptions it raises."""
        settings = self.settings
        return plan_target(target.files, target.input, settings.identities, settings.output)

    def fail(self, target: TargetRun, error: BaseException) -> None:
        """Record a target's first failure, and release its lock; failures of its other jobs are ignored.

        An error that ends the run is kept instead, and stops the stages.
        """
        if ends_run(error):
            self.ended_by = self.ended_by or error
            self.stop.set()
        if not target.set_status(TargetStatus.FAILED):
            # jobs of the same target overlap, and several may fail
            return
        self.locks.release(target.files.lock_path)
        if self.ended_by is None:
            self.failures.record(target.name, error)
        self.progress.target_done(target.name)

    def count_finished(self, target: TargetRun) -> None:
        """Log and count a target that an earlier run has finished."""
        logger.info("%s: already done", target.name)
        self.progress.target_done(target.name)


def _most_passes(settings: RunSettings, targets: Sequence[TargetRun]) -> int:
    """Return the largest number of passes that a target of the run can need."""
    seeds, requested = settings.identities.settings.seeds, settings.predictor.family.seeds
    most_seeds = max((len(seeds(requested(target.input))) for target in targets), default=1)
    # a target is predicted by networks of one family only
    num_passes = Counter[str]()
    for job in settings.identities.all_jobs():
        own_settings = family_of(job.source).own_settings(settings.predictor.settings)
        num_passes[job.source.family] += own_settings.num_passes
    return max(num_passes.values()) * most_seeds // len(seeds())
