"""NAME.done.json, the record of a finished target: settings, ranked models, and the cost of each stage."""

import json
import platform
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.model_files import ModelResult
from foldcli.version import VERSION
from msa.base.atomic import atomic_write
from msa.base.json_files import read_json

FORMAT = 2

_RECORD_TYPES: dict[str, Any] = {
    "name": str, "fingerprint": str, "settings": dict, "versions": dict, "facts": dict, "warnings": list,
    "rank_by": str, "ranking": list, "stages": list,
}  # fmt: skip
_MODEL_TYPES: dict[str, Any] = {
    "rank": int, "tag": str, "plddt": int | float, "ptm": int | float, "num_recycles": int,
    "seconds": int | float, "fingerprint": str, "iptm": int | float, "num_chains": int,
    "ranking_score": int | float,
}  # fmt: skip
_STAGE_TYPES: dict[str, Any] = {"stage": str, "seconds": int | float, "peak_memory_bytes": int}
_FACT_TYPES: dict[str, Any] = {
    "residues": int,
    "alignment_rows": int,
    "search": dict,
    "alignment": str,
    "network": dict,
}
_NETWORK_TYPES: dict[str, Any] = {"note": str, "expected_lddt": dict}
_EXPECTED_TYPES: dict[str, Any] = dict.fromkeys(
    ("percentile_10", "percentile_90", "plddt_error"), int | float
)
# keys whose values may be null
_NULLABLE = ("ptm", "iptm", "search", "header", "expected_lddt")


@dataclass(frozen=True)
class StageCost:
    """Time and memory of one stage of a target.

    Args:
        stage: name of the stage.
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
        name: file-safe name of the target.
        fingerprint: hash of `settings`.
        settings: everything that all predictions of the target depend on, as JSON values.
        rank_by: the score that ranked the models; see `PredictSettings.rank`.
        ranking: models, best first.
        costs: time and memory of each stage of the run that finished the target, in order.
        warnings: limitations of the results, for their reader.
        facts: numbers that the run found, such as hits and alignment rows.
    """

    name: str
    fingerprint: str
    settings: dict[str, Any]
    rank_by: str
    ranking: list[ModelResult]
    costs: list[StageCost]
    warnings: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file as JSON values."""
        return {
            "format": FORMAT,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "settings": self.settings,
            "versions": _versions(),
            "facts": self.facts,
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
    """The values of a target's done.json that later runs use.

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
            ValueError: it is damaged, or has the format of another version.
            OSError: it cannot be read.
        """
        try:
            content = read_done_record(path)
        except FileNotFoundError:
            return None
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
        if not finished.ranking:
            raise ValueError("no models")
        return finished

    def missing_files(self, files: TargetFiles) -> list[Path]:
        """Return the paths of the ranked models' files that do not exist."""
        paths = [path for rank, result in enumerate(self.ranking, 1) for path in result.paths(files, rank)]
        return [path for path in paths if not path.is_file()]


def read_done_record(path: Path) -> dict[str, Any]:
    """Return the content of a done.json of any format version, after checking the types of its values.

    Raises:
        ValueError: it is damaged.
        OSError: it cannot be read.
    """
    content = read_json(path)
    _check_types(content, _RECORD_TYPES, "the file")
    _check_types(content.get("settings", {}), {"header": str}, "settings")
    facts = content.get("facts", {})
    _check_types(facts, _FACT_TYPES, "facts")
    _check_types(facts.get("search") or {}, {"hits": int}, "facts.search")
    network = facts.get("network") or {}
    _check_types(network, _NETWORK_TYPES, "facts.network")
    _check_types(network.get("expected_lddt") or {}, _EXPECTED_TYPES, "facts.network.expected_lddt")
    for name, types in (("ranking", _MODEL_TYPES), ("stages", _STAGE_TYPES)):
        for entry in content.get(name, []):
            _check_types(entry, types, name)
            if name == "stages" and not entry.keys() >= types.keys():
                raise ValueError(f"missing values in {name}")
    if not all(isinstance(warning, str) for warning in content.get("warnings", [])):
        raise ValueError("warnings has the wrong type")
    result: dict[str, Any] = content
    return result


def _check_types(content: Any, types: dict[str, Any], name: str) -> None:
    """Raise ValueError if `content` is not a JSON object, or one of its values has the wrong type."""
    if not isinstance(content, dict):
        raise ValueError(f"{name} is not a JSON object")
    for key, expected in types.items():
        value = content.get(key)
        has_wrong_type = not isinstance(value, expected) or isinstance(value, bool)
        # integers of any size are JSON, too
        is_not_finite = isinstance(value, int | float) and not abs(value) <= sys.float_info.max
        if value is not None and (has_wrong_type or is_not_finite):
            raise ValueError(f"{key} in {name} has the wrong type")
        if value is None and key in content and key not in _NULLABLE:
            raise ValueError(f"{key} in {name} is null")


def _versions() -> dict[str, str]:
    """Return the versions of the software that the results depend on."""
    packages = ("torch", "numpy", "numba")
    return {"foldcli": VERSION, "python": platform.python_version()} | {
        package: version(package) for package in packages
    }
