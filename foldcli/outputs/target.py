"""The state of one target during a run: its files, facts and warnings, and the cost of its stages."""

import contextlib
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from threading import Lock
from typing import Any

from foldcli.errors import IncompleteTarget, describe, log_bug
from foldcli.logs import logger
from foldcli.outputs.done import StageCost
from foldcli.outputs.facts import Facts
from foldcli.outputs.layout import TargetFiles
from msa.base.json_files import read_json, write_json

_STATUS = Path("/proc/self/status")
_DEVICE_FILE = "device.json"
_CLEAR_REFS = Path("/proc/self/clear_refs")


class TargetStatus(Enum):
    """The place of a target in a run."""

    OPEN = auto()
    """Jobs of it may be run now."""
    PREDICTED = auto()
    """All its jobs have been started, or another run has finished it."""
    POSTPONED = auto()
    """It does not fit into the memory of one device, so all devices predict it together at the end."""
    INTERRUPTED = auto()
    """A job of it was lost with a worker that ended because of another target, or at the end of the run."""
    FAILED = auto()
    """A stage failed, so that no other stage needs to run; this remains."""


@dataclass
class TargetRun:
    """One target during a run.

    Args:
        input: query, alignments, entry of the feature cache, or what else a family of networks reads.
        costs: time and memory of the finished stages, in order.
        facts: what the stages found. Every family adds `residues` and `alignment_rows`.
        warnings: limitations that a reader of the results must know about.
        was_locked: whether this run has held the target's lock before.
        relax_failures: one message for each model that could not be relaxed.
        used_templates: templates of its chains (`model.output.modelcif.UsedTemplate`).
    """

    files: TargetFiles
    input: Any
    costs: list[StageCost] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    warnings: list[str] = field(default_factory=list)
    was_locked: bool = False
    relax_failures: list[str] = field(default_factory=list)
    used_templates: tuple[Any, ...] = ()
    _status: TargetStatus = TargetStatus.OPEN
    _status_lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def name(self) -> str:
        """The target's file-safe name."""
        return self.files.name

    @property
    def status(self) -> TargetStatus:
        """The place of the target in the run."""
        return self._status

    @property
    def is_open(self) -> bool:
        """True if jobs of the target may be run now."""
        return self._status is TargetStatus.OPEN

    def set_status(self, status: TargetStatus) -> bool:
        """Set the status, unless the target has failed; return whether it was set. Any thread may call it."""
        with self._status_lock:
            if self._status is TargetStatus.FAILED:
                return False
            self._status = status
            return True

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run the block as stage `name`, and add its cost to `costs` if it succeeds."""
        logger.debug("%s: %s", self.name, name)
        with measured_stage(name) as costs:
            yield
        self.add_cost(costs[0])

    def add_cost(self, cost: StageCost) -> None:
        """Add the cost of a stage; if the stage has run before in this run, their seconds are summed."""
        for index, earlier in enumerate(self.costs):
            if earlier.stage == cost.stage:
                memory = max(earlier.peak_memory_bytes, cost.peak_memory_bytes)
                self.costs[index] = StageCost(cost.stage, earlier.seconds + cost.seconds, memory)
                return
        self.costs.append(cost)

    def add_relax_failure(self, tag: str, error: BaseException) -> None:
        """Record that a model could not be relaxed."""
        log_bug(error)
        self.relax_failures.append(f"{tag} was not relaxed: {describe(error)}")
        self.warnings.append(self.relax_failures[-1])

    def incompleteness(self, is_reported: bool) -> IncompleteTarget | None:
        """Return the error of a finished target without relaxed models or a report; None if complete."""
        reasons = [
            *self.relax_failures,
            *(["the unrelaxed structure is kept"] if self.relax_failures else []),
        ]
        if not is_reported:
            reasons.append("its report could not be made, see above; the next run tries again")
        return IncompleteTarget("; ".join(reasons)) if reasons else None

    def keep_device(self) -> None:
        """Write the facts about the device into the work folder, for the run that continues this one."""
        device = Facts()
        device.add_device(self.facts)
        write_json(self.files.work_folder / _DEVICE_FILE, device.as_json())

    def restore_device(self, finished: Facts | None) -> None:
        """Add the facts about the device on which models that are kept were predicted.

        Args:
            finished: facts of the target's done.json, if it has one.
        """
        if finished is not None:
            self.facts.add_device(finished)
        # without the file, or if it is damaged, the device is not known
        with contextlib.suppress(OSError, ValueError):
            self.facts.add_device(read_json(self.files.work_folder / _DEVICE_FILE, Facts))

    def discard_work(self) -> None:
        """Remove the intermediate files of an interrupted run."""
        shutil.rmtree(self.files.work_folder, ignore_errors=True)


@contextlib.contextmanager
def measured_stage(name: str) -> Iterator[list[StageCost]]:
    """Yield an empty list, to which the cost of the block is added if it succeeds; see `measure_stage`."""
    measured, costs = measure_stage(name), list[StageCost]()
    yield costs
    costs.append(measured())


def measure_stage(name: str) -> Callable[[], StageCost]:
    """Begin to measure a stage; return a function that returns its cost so far.

    Only the main thread resets the peak memory: a stage in another thread reports the peak since the main
    thread's last stage began.
    """
    if threading.current_thread() is threading.main_thread():
        _reset_peak_memory()
    start = time.perf_counter()
    return lambda: StageCost(name, time.perf_counter() - start, peak_memory_bytes())


def peak_memory_bytes() -> int:
    """Return the largest resident set of this process since it was last reset."""
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _reset_peak_memory() -> None:
    # writing 5 sets VmHWM back to the current size on Linux; where that is not permitted, the reported peak
    # is that of the whole process, which is still an upper bound
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text("5")
