"""What a check finds."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Status(StrEnum):
    """ok: as it should be; warning: predictions run, but not all or not as fast; broken: they do not run."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True)
class Outcome:
    """One line of the report.

    Args:
        name: what was looked at.
        status: how it is.
        found: what was seen, in one line.
        remedy: what to do; "" where there is nothing to be done.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Context:
    """What is asked about.

    Args:
        device: value of `--device`.
        params: folder of parameters.
    """

    device: str
    params: Path

    @property
    def gpus(self) -> list[int]:
        """Numbers of the GPUs that would be used: those named, or the first; none under "cpu"."""
        from msa.search.engine_selection import gpu_numbers

        return [] if self.device == "cpu" else gpu_numbers(self.device)

    @property
    def without_gpu(self) -> Status:
        """How bad it is that a GPU does not work: under "auto" the CPU takes its place."""
        return Status.WARNING if self.device == "auto" else Status.BROKEN


def first_line(error: BaseException) -> str:
    """An error in one line that names its kind."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
