"""NAME.done.json, the record of a finished target: settings, ranked models, and the cost of each stage."""

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

FORMAT = 2


@dataclass(frozen=True)
class StageCost:
    """Time and memory of one stage of a target.

    Args:
        stage: name of the stage.
        seconds: wall time; for a stage that works on several targets at once, the target's share.
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
        fingerprint: hash of `settings`.
        settings: everything that all predictions of the target depend on, readable.
        rank_by: the score that ranked the models; see `PredictSettings.rank`.
        ranking: models, best first.
        costs: time and memory of each stage of the run that finished the target, in order.
        warnings: facts that a reader of the results must know.
        facts: counts such as hits and alignment rows.
    """

    name: str
    fingerprint: str
    settings: dict[str, Any]
    rank_by: str
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
            "rank_by": self.rank_by,
            "ranking": [{"rank": i, **asdict(result)} for i, result in enumerate(self.ranking, 1)],
            "stages": [cost.as_json() for cost in self.costs],
        }

    def write(self, path: Path) -> None:
        """Write the file; must be the last file of a target to be written."""
        with atomic_write(path) as stream:
            json.dump(self.content(), stream, indent=1, default=str)
            stream.write("\n")


@dataclass(frozen=True)
class FinishedTarget:
    """The part of a target's done.json that later runs use.

    Args:
        fingerprint: see DoneRecord.
        settings: see DoneRecord.
        rank_by: see DoneRecord.
        ranking: models, best first.
        facts: see DoneRecord.
    """

    fingerprint: str
    settings: dict[str, Any]
    rank_by: str
    ranking: list[ModelResult]
    facts: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "FinishedTarget | None":
        """Read a done.json, or return None if there is none.

        Raises:
            ValueError: it is damaged, or a version with another format wrote it.
            OSError: it cannot be read.
        """
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        if content.get("format") != FORMAT:
            raise ValueError(f"format {content.get('format')!r} instead of {FORMAT}")
        try:
            finished = cls(
                fingerprint=content["fingerprint"],
                settings=content["settings"],
                rank_by=content["rank_by"],
                ranking=[
                    ModelResult.from_json({key: value for key, value in entry.items() if key != "rank"})
                    for entry in content["ranking"]
                ],
                facts=content["facts"],
            )
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"missing or wrong values ({error})") from error
        if not (
            isinstance(finished.fingerprint, str)
            and isinstance(finished.settings, dict)
            and isinstance(finished.rank_by, str)
            and isinstance(finished.facts, dict)
            and finished.ranking
        ):
            raise ValueError("missing or wrong values")
        return finished

    def missing_files(self, files: TargetFiles) -> list[Path]:
        """Return the ranked models' files that do not exist."""
        paths = [path for rank, result in enumerate(self.ranking, 1) for path in result.paths(files, rank)]
        return [path for path in paths if not path.is_file()]


def _versions() -> dict[str, str]:
    """Return the versions of the software that the results depend on."""
    packages = ("torch", "numpy", "numba")
    return {"foldcli": VERSION, "python": platform.python_version()} | {
        package: version(package) for package in packages
    }
