"""NAME.done.json, the record of a finished target, and NAME.result.zip, all of its files."""

import json
import os
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import msgspec

from foldcli.outputs.facts import Facts
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import ModelResult
from foldcli.version import VERSION
from msa.base.atomic import atomic_write
from msa.base.json_files import read_json, to_record

FORMAT = 2
# endings of files that name structures of the target by relative paths
_WITH_PATHS = (".cxc", ".pml", ".html")


@dataclass(frozen=True)
class StageCost:
    """Time and memory of one stage of a target.

    Args:
        seconds: wall time; for a stage that works on several targets at once, the target's share.
        peak_memory_bytes: the largest resident set of the process during the stage.
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
        settings: everything that all predictions of the target depend on, as JSON values.
        rank_by: the score that ranked the models; see `JobSettings.rank`.
        ranking: models, best first.
        costs: time and memory of each stage of the run that finished the target, in order.
        warnings: limitations of the results, for their reader.
        facts: what the stages of the run found, such as hits and alignment rows.
    """

    name: str
    fingerprint: str
    settings: dict[str, Any]
    rank_by: str
    ranking: list[ModelResult]
    costs: list[StageCost]
    warnings: list[str] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file as JSON values."""
        return {
            "format": FORMAT,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "settings": self.settings,
            "versions": _versions(),
            "facts": self.facts.as_json(),
            "warnings": self.warnings,
            "rank_by": self.rank_by,
            "ranking": [{"rank": i, **result.as_json()} for i, result in enumerate(self.ranking, 1)],
            "stages": [cost.as_json() for cost in self.costs],
        }

    def text(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.as_json(), indent=1, default=str) + "\n"

    def write(self, path: Path) -> None:
        """Write the file, which must be the last one of a target to be written."""
        with atomic_write(path) as stream:
            stream.write(self.text())


@dataclass(frozen=True)
class FinishedTarget:
    """The values of a target's done.json that later runs use; see `DoneRecord`."""

    fingerprint: str
    settings: dict[str, Any]
    rank_by: str
    ranking: Annotated[list[ModelResult], msgspec.Meta(min_length=1)]
    facts: Facts

    @classmethod
    def read(cls, path: Path) -> "FinishedTarget | None":
        """Read a done.json, or return None if there is none.

        Raises:
            ValueError: it is damaged, or has the format of another version.
        """
        try:
            content = read_done_record(path)
        except FileNotFoundError:
            return None
        if content.get("format") != FORMAT:
            raise ValueError(f"format {content.get('format')!r} instead of {FORMAT}")
        return to_record(content, cls)

    def missing_files(self, files: TargetFiles) -> list[Path]:
        """Return the paths of the ranked models' files that do not exist."""
        paths = [path for rank, result in enumerate(self.ranking, 1) for path in result.paths(files, rank)]
        return [path for path in paths if not path.is_file()]


def _partial(**types: Any) -> Any:
    """Return a type of objects with these fields, all of which may be missing."""
    return msgspec.defstruct("Partial", [(name, kind, None) for name, kind in types.items()])


_RANKED_MODEL = _partial(
    rank=int, tag=str, plddt=float, ptm=float | None, num_recycles=int, seconds=float, fingerprint=str,
    iptm=float | None, num_chains=int, ranking_score=float,
)  # fmt: skip
# types of the values that readers use; files of other versions lack some of them
_RECORD = _partial(
    name=str,
    fingerprint=str,
    settings=_partial(header=str | None),
    versions=dict[str, Any],
    facts=Facts,
    warnings=list[str],
    rank_by=str,
    ranking=list[_RANKED_MODEL],  # type: ignore[valid-type]
    stages=list[StageCost],
)


def read_done_record(path: Path) -> dict[str, Any]:
    """Return the content of a done.json of any format version, after checking the types of its values.

    Raises:
        ValueError: it is damaged.
    """
    content = read_json(path, dict[str, Any])
    to_record(content, _RECORD)
    return content


def facts_of(done: Mapping[str, Any]) -> Facts:
    """Return the facts in the content of a done.json, which may be empty; raises ValueError if damaged."""
    return to_record(done.get("facts", {}), Facts)


def _versions() -> dict[str, str]:
    """Return the versions of the software that the results depend on."""
    packages = ("torch", "numpy", "numba")
    return {"foldcli": VERSION, "python": platform.python_version()} | {
        package: version(package) for package in packages
    }


def write_archive(files: TargetFiles, done: str) -> None:
    """Write the archive of a target, replacing an older one.

    Args:
        files: the target's files, all of which exist except done.json.
        done: text of done.json, which is written to the folder after the archive.
    """
    with (
        atomic_write(files.path("archive"), "wb") as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        prefix = os.path.relpath(files.structures_folder, files.folder)
        for path in files.files_to_archive():
            if prefix != "." and path.suffix in _WITH_PATHS:
                # the archive has all files in one folder
                text = path.read_text("utf-8").replace(f"{prefix}/{files.name}", files.name)
                archive.writestr(path.name, text, zipfile.ZIP_DEFLATED)
            else:
                archive.write(path, path.name)
        archive.writestr(files.path("done").name, done)
