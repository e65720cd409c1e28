"""Seconds and peak memory of each stage of a target's way."""

import contextlib
import os
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class StageCost:
    """What one stage took.

    Args:
        stage: its name.
        seconds: wall time.
        peak_memory_bytes: the process's largest resident set while the stage ran.
    """

    stage: str
    seconds: float
    peak_memory_bytes: int

    def as_json(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "seconds": round(self.seconds, 3),
            "peak_memory_bytes": self.peak_memory_bytes,
        }


class Stopwatch:
    """Collects the cost of the stages of one target, in the order in which they ran."""

    def __init__(self) -> None:
        self.costs: list[StageCost] = []

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the block as stage `name`.

        In a background thread the peak is that since the main thread's stage began, which is not disturbed.
        """
        if threading.current_thread() is threading.main_thread():
            _reset_peak()
        start = time.perf_counter()
        yield
        self.costs.append(StageCost(name, time.perf_counter() - start, _peak_bytes()))


def seconds_since_start() -> float:
    """Since the system started this process, what was imported before this module included."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def _reset_peak() -> None:
    # Linux sets VmHWM back to the current size on writing 5; where that is not allowed the process's
    # peak so far is reported, which is still an upper bound
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text("5")


def _peak_bytes() -> int:
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
