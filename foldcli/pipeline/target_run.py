"""The state of one target during a run: its files, facts and warnings, and the cost of its stages."""

import contextlib
import os
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foldcli.logs import logger
from foldcli.outputs.done import StageCost
from foldcli.outputs.layout import TargetFiles

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass
class TargetRun:
    """One target during a run.

    Args:
        files: paths of the target's files.
        costs: time and memory of the finished stages, in order.
        facts: counts for done.json, such as hits and alignment rows.
        warnings: facts that a reader of the results must know.
    """

    files: TargetFiles
    costs: list[StageCost] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The target's file-safe name."""
        return self.files.name

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run the block as stage `name`, and add its cost to `costs` if it succeeds.

        In a background thread the peak memory is that since the main thread's last stage began.
        """
        logger.debug("%s: %s", self.name, name)
        if threading.current_thread() is threading.main_thread():
            _reset_peak_memory()
        start = time.perf_counter()
        yield
        self.costs.append(StageCost(name, time.perf_counter() - start, _peak_memory_bytes()))

    def clear(self) -> None:
        """Remove marks of a finished target and intermediate files, so that every stage runs again."""
        self.mark_unfinished()
        shutil.rmtree(self.files.work_folder, ignore_errors=True)

    def mark_unfinished(self) -> None:
        """Remove the marks of a finished target; must be called before its files are replaced."""
        for kind in ("done", "finished_mark"):
            self.files.path(kind).unlink(missing_ok=True)


def seconds_since_start() -> float:
    """Return the seconds since the system started this process, early imports included."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def _reset_peak_memory() -> None:
    # writing 5 sets VmHWM back to the current size on Linux; where that is not permitted, the reported peak
    # is that of the whole process, which is still an upper bound
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text("5")


def _peak_memory_bytes() -> int:
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
