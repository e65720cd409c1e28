"""The preparation of jobs: the selection of unfinished targets, and the random features of their models."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from foldcli.families.settings import Job
from foldcli.outputs.target import TargetRun, TargetStatus
from foldcli.pipeline.prepare.feature_stage import FeatureStage
from foldcli.pipeline.prepare.template_stage import warn_of_unused_templates
from foldcli.pipeline.processes.background import map_ahead, run_ahead
from foldcli.pipeline.processes.shared_arrays import share_arrays
from foldcli.pipeline.results.publishing import has_leftovers, remove_leftovers
from foldcli.pipeline.runs.state import RunState
from foldcli.pipeline.runs.target_facts import add_facts, warn_of_equal_seeds
from foldcli.pipeline.targets.plan import TargetPlan

# sampled jobs that wait for the network
SAMPLES_AHEAD = 2


@dataclass(frozen=True)
class TargetStep:
    """The next work on a target: predict one job, or only publish its models.

    Args:
        job: the job to predict; None if the models of an earlier run only need to be published.
        sample: input of the job; see `Family.sample`.
        is_first: whether this is the first job of the target in this run.
        is_last: whether this is the last step of the target.
    """

    target: TargetRun
    plan: TargetPlan
    job: Job | None
    sample: object
    is_first: bool
    is_last: bool


# returns a sample, which may be in shared memory, in the form that its network needs
HandOver: TypeAlias = Callable[[object], object]
# a target with its steps
PreparedTarget: TypeAlias = tuple[TargetRun, Iterator[TargetStep]]


class JobPreparation:
    """Finds the targets of a run that are not finished, and prepares their jobs."""

    def __init__(self, state: RunState, features: FeatureStage) -> None:
        self._state, self._features = state, features
        self._settings, self._locks = state.settings, state.locks

    def prepare_for_workers(
        self, targets: Iterable[TargetRun], workers: int
    ) -> Generator[PreparedTarget, None, None]:
        """Yield each target with its jobs; background threads prepare the first jobs of the next targets.

        Further jobs of a target are prepared ahead once the first one is taken. Workers map their samples.
        """

        def begin(prepared: PreparedTarget) -> PreparedTarget | None:
            target, steps = prepared
            if (first := next(steps, None)) is None:
                return None
            return target, run_ahead(chain([first], steps), SAMPLES_AHEAD, self._state.stop)

        prepared = self.prepare(targets, share_arrays)
        begun = map_ahead(begin, prepared, SAMPLES_AHEAD * workers, self._state.stop)
        return (each for each in begun if each is not None)

    def prepare(self, targets: Iterable[TargetRun], hand_over: HandOver) -> Iterator[PreparedTarget]:
        """Yield each target with its jobs; targets locked by other runs come last.

        Args:
            targets: the unfinished targets.
            hand_over: returns the input of a job, which may be in shared memory, in the form that its network
                needs; called by several threads.
        """
        locked_elsewhere = []
        for target in targets:
            if target.status is TargetStatus.FAILED:
                continue
            if self._locks.try_acquire(target.files.lock_path):
                yield target, self._prepare_locked(target, hand_over)
            else:
                locked_elsewhere.append(target)
        for target in locked_elsewhere:
            if not self._locks.acquire(target.files.lock_path, target.name):
                return
            yield target, self._prepare_locked(target, hand_over)

    def skip_finished(self, target: TargetRun) -> bool:
        """Return True if a target is finished, or fails because it cannot be predicted; count it then."""
        try:
            family = self._settings.identities.family_of(target.input)
            if not self._is_finished(target):
                family.check(target.input)
                return False
        except Exception as error:
            self._state.fail(target, error)
            return True
        self._state.count_finished(target)
        return True

    def _is_finished(self, target: TargetRun) -> bool:
        """Return True if a target is finished, after removing what the run that finished it has left."""
        if not target.files.path("done").exists() or not self._state.plan(target).is_finished:
            return False
        # that run may have been killed before it removed its files
        if has_leftovers(target.files) and self._locks.try_acquire(target.files.lock_path):
            # another run may have changed the target before it was locked
            if self._begin(target) is not None:
                self._locks.release(target.files.lock_path)
                return False
            self._release_finished(target)
        return True

    def _begin(self, target: TargetRun) -> TargetPlan | None:
        """Prepare the folder of a target that was just locked; return its plan, or None if it is finished.

        Raises:
            InputError: the run would replace finished results of other settings.
        """
        remove_leftovers(target.files)
        if self._settings.output.overwrite and not target.was_locked:
            target.discard_work()
        target.was_locked = True
        plan = self._state.plan(target)
        return None if plan.is_finished else plan

    def _release_finished(self, target: TargetRun) -> None:
        target.discard_work()
        self._locks.release(target.files.lock_path)

    def _prepare_locked(self, target: TargetRun, hand_over: HandOver) -> Iterator[TargetStep]:
        """Yield the steps of a locked target, which fails with an exception."""
        try:
            plan = self._begin(target)
            if plan is None:
                # another run has finished it since `skip_finished`
                self._release_finished(target)
                self._state.count_finished(target)
                target.set_status(TargetStatus.PREDICTED)
                return
            plan, jobs = plan.stage_kept_models(target.files)
            # even without jobs, because done.json contains facts of the inputs
            inputs = self._load_inputs(target, plan, jobs)
            if jobs:
                warn_of_equal_seeds(target, plan, inputs, self._settings)
                yield from self._sample(target, plan, jobs, inputs, hand_over)
            else:
                yield TargetStep(target, plan, None, None, False, True)
        except Exception as error:
            self._state.fail(target, error)

    def _load_inputs(self, target: TargetRun, plan: TargetPlan, jobs: Sequence[Job]) -> object:
        """Return the inputs of a target's jobs, and add the target's facts; see `Family.inputs`."""
        if sum(len(job.tags) for job in jobs) < len(plan.models):
            target.restore_device(None if plan.finished is None else plan.finished.facts)
        family = self._settings.identities.family_of(target.input)
        with_templates = any(family.uses_templates(job.source) for job in plan.jobs)
        if plan.jobs and not with_templates:
            warn_of_unused_templates(target.name, target.input, "none of the networks takes any")
        inputs = family.inputs(target, self._features, with_templates)
        add_facts(target, plan, inputs, self._settings, with_templates)
        return inputs

    def _sample(
        self,
        target: TargetRun,
        plan: TargetPlan,
        jobs: Sequence[Job],
        inputs: object,
        hand_over: HandOver,
    ) -> Iterator[TargetStep]:
        """Yield a step for each job; jobs with equal sampling in a row share a sample."""
        family = self._settings.identities.family_of(target.input)
        settings, processes = self._settings.predictor.settings, self._settings.startup.sampling
        draw = None if processes is None else processes.sample
        previous: tuple[object, object] | None = None
        for job in jobs:
            if not target.is_open:
                return
            sampling = family.sampling(job, settings)
            if previous is None or previous[0] != sampling:
                previous = None  # freed before the next sample is made
                previous = sampling, hand_over(family.sample(inputs, job, settings, draw))
            yield TargetStep(target, plan, job, previous[1], job is jobs[0], job is jobs[-1])
