"""The result of a check, and the options that checks depend on."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from msa.base.hardware import gpu_numbers, has_nvidia_hardware

REPORT_REQUEST = "Report it with this output."


class CheckStatus(StrEnum):
    """The status of one check.

    OK: no problem. WARNING: predictions run, but with limits or slower. BROKEN: predictions do not run.
    """

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True)
class CheckResult:
    """One line of the report.

    Args:
        remedy: instructions for the user; "" if none are needed.
    """

    name: str
    status: CheckStatus
    finding: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the result as it is printed with --json."""
        return {
            "name": self.name,
            "status": self.status.value,
            "found": self.finding,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class CheckContext:
    """The command-line options that checks depend on."""

    device: str
    params: Path

    @property
    def gpus(self) -> list[int]:
        """Numbers of the GPUs that a run would use: the listed ones, else the first; none for "cpu"."""
        return [] if self.device == "cpu" else gpu_numbers(self.device)

    @property
    def status_without_gpu(self) -> CheckStatus:
        """The status if a GPU does not work: a warning for "auto", which falls back to the CPU."""
        return CheckStatus.WARNING if self.device == "auto" else CheckStatus.BROKEN

    def uses_gpu(self) -> bool:
        """Return True if GPUs must be checked; for "auto", only if the machine has one."""
        return self.device != "cpu" and (self.device != "auto" or has_nvidia_hardware())


def describe_briefly(error: BaseException) -> str:
    """Return the error's class and the first line of its message."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
