"""done.json: what a finished target was made from, and what each step of it took."""

import contextlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import ModelResult
from foldcli.pipeline.predictor import versions
from foldcli.pipeline.timing import StageCost
from msa.io.atomic import atomic_write

FORMAT = 1


@dataclass(frozen=True)
class Done:
    """A finished target.

    Args:
        name: the target.
        fingerprint: hash of input and settings; the target is redone when it differs.
        settings: what the fingerprint was taken of, readable.
        ranking: best first.
        costs: seconds and peak memory per stage, in order.
        warnings: what a reader of the results must know.
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
        """What the file holds."""
        return {
            "format": FORMAT,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "settings": self.settings,
            "versions": versions(),
            "facts": self.facts,
            "warnings": self.warnings,
            "ranking": [{"rank": i, **asdict(result)} for i, result in enumerate(self.ranking, 1)],
            "stages": [cost.as_json() for cost in self.costs],
        }

    def write(self, path: Path) -> None:
        """Write the file; call it last."""
        with atomic_write(path) as stream:
            json.dump(self.content(), stream, indent=1, default=str)
            stream.write("\n")


def is_done(files: TargetFiles, fingerprint: str) -> bool:
    """Whether the target was finished from this input with these settings."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(files.path("done").read_text())
        return isinstance(found, dict) and found.get("fingerprint") == fingerprint
    return False
