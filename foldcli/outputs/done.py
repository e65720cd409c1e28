"""NAME.done.json, the record of a finished target: settings, ranked models, and the cost of each stage."""

import contextlib
import json
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import ModelResult
from foldcli.version import VERSION
from msa.io.atomic import atomic_write

FORMAT = 1


@dataclass(frozen=True)
class StageCost:
    """Time and memory of one stage of a target.

    Args:
        stage: name of the stage.
        seconds: wall time.
        peak_memory_bytes: the largest resident set of the process while the stage ran.
    """

    stage: str
    seconds: float
    peak_memory_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Return the stage's entry in done.json, seconds rounded to milliseconds."""
        return {
            "stage": self.stage,
            "seconds": round(self.seconds, 3),
            "peak_memory_bytes": self.peak_memory_bytes,
        }


@dataclass(frozen=True)
class DoneRecord:
    """The content of a target's done.json.

    Args:
        name: file-safe name of the target.
        fingerprint: hash of input and settings; when it differs from a run's, the target is predicted again.
        settings: the values behind the fingerprint, readable.
        ranking: models, best first.
        costs: time and memory per stage, in order.
        warnings: facts that a reader of the results must know.
        facts: counts such as hits and alignment rows.
    """

    name: str
    fingerprint: str
    settings: dict[str, Any]
    ranking: list[ModelResult]
    costs: list[StageCost]
    warnings: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "format": FORMAT,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "settings": self.settings,
            "versions": _versions(),
            "facts": self.facts,
            "warnings": self.warnings,
            "ranking": [{"rank": i, **asdict(result)} for i, result in enumerate(self.ranking, 1)],
            "stages": [cost.as_json() for cost in self.costs],
        }

    def write(self, path: Path) -> None:
        """Write the file; must be the last file of a target to be written."""
        with atomic_write(path) as stream:
            json.dump(self.content(), stream, indent=1, default=str)
            stream.write("\n")


def is_done(files: TargetFiles, fingerprint: str) -> bool:
    """Return whether the target was finished with this input and these settings."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(files.path("done").read_text())
        return isinstance(content, dict) and content.get("fingerprint") == fingerprint
    return False


def _versions() -> dict[str, str]:
    """Return the versions of the software that the results depend on."""
    packages = ("torch", "numpy", "numba")
    return {"foldcli": VERSION, "python": platform.python_version()} | {
        package: version(package) for package in packages
    }
