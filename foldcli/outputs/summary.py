"""The summary of a run: summary.tsv with one line per model, and a logged table with one line per target.

Screens with a background also get a table of their scores, and of how often chance gives more.
"""

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foldcli.inputs.names import BACKGROUND_PREFIX
from foldcli.inputs.shard import Shard
from foldcli.logs import logger, seconds_since_start
from foldcli.outputs.done import facts_of, read_done_record
from foldcli.outputs.layout import LayoutName, ModelKind, TargetFiles
from foldcli.params.parameters import UNTRAINED
from foldcli.units import format_duration
from model.prediction import complex_confidence
from msa.base.atomic import atomic_write
from msa.base.temporary_names import remove_abandoned_files

# with more targets, the table would not fit on a screen
MAX_LINES = 16
NUM_BEST, NUM_WORST = 8, 5
MAX_FAILED = 5
MAX_NAME_WIDTH = 32
_SCREEN_COLUMNS = ("target", "rank", "background")
# scores of the best model in the table of a screen, of which larger ones are better
_SCREEN_SCORES = ("ranking_confidence", "ipsae", "pdockq2", "ilis")
# errors of a done.json that is missing, or that a version with another format wrote
_UNREADABLE = (OSError, ValueError, LookupError, TypeError)
# prefixes of the names of files that belong to the whole run
_RUN_FILE_PREFIXES = (
    "summary",
    "screen",
    "failures",
    "index.html",
    "comparison",
    "config.json",
    "cite.bibtex",
    "methods.txt",
)
# the columns of summary.tsv, and the keys of its JSON form
COLUMNS = (
    "target", "rank", "model", "plddt", "ptm", "iptm", "ranking_confidence", "residues", "alignment_rows",
    "hits", "recycles", "seconds", "untrained", "copied_from", "structure", "relaxed", "scores",
)  # fmt: skip
# further columns, if a model has such a value
RARE_COLUMNS = (
    "ranking_score", "checks", "ipsae", "pdockq", "pdockq2", "lis", "ilis", "pae_min", "has_clash",
    "fraction_disordered",
)  # fmt: skip


class RunSummary:
    """The summary of a run's targets; created before the run begins, written and logged when it ends.

    Args:
        shard: the run's share of the targets; part of the file's name.
    """

    def __init__(self, out: Path, layout: LayoutName, shard: Shard, names: list[str]) -> None:
        self._path = out / f"summary{shard.suffix}.tsv"
        self._files = [TargetFiles(name, out, layout) for name in names]
        self._modified_before = {files.name: _modification_time(files) for files in self._files}

    def models(self, failed: Sequence[str]) -> list[dict[str, Any]]:
        """Return the values of COLUMNS for each model of the finished targets, by target and rank.

        Targets that failed in this run are left out, even if an earlier run had finished them. Paths are
        relative to the run's folder. Missing values are None: `ptm` without a PAE head, `iptm` of a single
        chain, `hits` without a search.
        """
        finished = [files for files in self._files if files.name not in failed]
        return order_models([finished_models(files) for files in finished])

    def write(self, failed: Sequence[str]) -> None:
        """Write summary.tsv, unless no target is finished."""
        if not (models := self.models(failed)):
            return
        write_table(self._path, models)
        write_screen_table(self._path.with_name(self._path.name.replace("summary", "screen", 1)), models)

    def log(self, failed: Sequence[str], failures_path: Path) -> None:
        """Log a table for people, and the counts as one object under --log-json."""
        summaries = (self._read(files) for files in self._files)
        targets = [target for target in summaries if target and target["target"] not in failed]
        if not targets and len(failed) <= 1:
            # the error message of the only target is enough
            return
        seconds = seconds_since_start()
        finished_before = sum(target["finished_before"] for target in targets)
        counts = {
            "finished": len(targets) - finished_before,
            "finished_before": finished_before,
            "failed": len(failed),
        }
        lines = [_heading(counts, seconds), *_table(targets)]
        lines += [f"failed: {name}" for name in failed[:MAX_FAILED]]
        if len(failed) > MAX_FAILED:
            lines.append(f"failed: {len(failed) - MAX_FAILED} others, see {failures_path}")
        if any(target["plddt"] is None for target in targets):
            lines.append(UNTRAINED)
        if any(target["copied_from"] is not None for target in targets):
            lines.append("Copies of templates, not predictions: the column pLDDT has their expected lDDT.")
        fields = {"summary": counts | {"seconds": round(seconds, 3)}}
        logger.info("%s", "\n".join(lines), extra={"fields": fields})

    def _read(self, files: TargetFiles) -> dict[str, Any] | None:
        """Return the values of the best model, and of the target; None if it is not finished.

        `seconds` are those of all stages. The scores of untrained networks are None.
        """
        try:
            done = read_done_record(files.path("done"))
            best = _models(done, files)[0]
            seconds = sum(stage["seconds"] for stage in done["stages"])
        except _UNREADABLE:
            return None
        scores = dict.fromkeys(("plddt", "ptm", "iptm")) if best["untrained"] else {}
        finished_before = _modification_time(files) == self._modified_before[files.name]
        target = {"seconds": seconds, "files": files.pattern, "finished_before": finished_before}
        return best | scores | target


def finished_models(files: TargetFiles) -> list[dict[str, Any]]:
    """Return the values of COLUMNS for each model of a target, by rank; none if it is not finished."""
    try:
        return _models(read_done_record(files.path("done")), files)
    except _UNREADABLE:
        return []


def _models(done: dict[str, Any], files: TargetFiles) -> list[dict[str, Any]]:
    """Return the values of COLUMNS for each model in a target's done.json."""
    facts, untrained = facts_of(done), UNTRAINED in done["warnings"]
    if not facts.residues or not facts.alignment_rows:
        raise ValueError("the size of the target is missing")
    return [
        {
            "target": files.name,
            "rank": model["rank"],
            "model": model["tag"],
            "plddt": round(model["plddt"], 2),
            "ptm": None if model["ptm"] is None else round(model["ptm"], 3),
            "iptm": None if model.get("iptm") is None else round(model["iptm"], 3),
            "ranking_confidence": _rounded_confidence(model),
            "residues": facts.residues,
            "alignment_rows": facts.alignment_rows,
            "hits": None if facts.search is None else facts.search.hits,
            "recycles": model["num_recycles"],
            "seconds": model["seconds"],
            "untrained": untrained,
            "copied_from": model.get("copied_from"),
            "structure": str(files.structure_path(model["rank"], model["tag"]).relative_to(files.out)),
            "relaxed": _relative_path(files, "relaxed_pdb", model, if_exists=True),
            "scores": _relative_path(files, "scores", model),
        }
        | {column: values[column] for column in RARE_COLUMNS if column in values}
        for model in done["ranking"]
        for values in ({**model, **(model.get("interface") or {})},)
    ]


def _rounded_confidence(model: dict[str, Any]) -> float | None:
    """Return the score that ranks models: the network's own or that of a complex; None without one."""
    if (own := model.get("ranking_score")) is not None:
        return round(own, 3)
    if model.get("iptm") is None:
        return None
    return round(complex_confidence(model["ptm"], model["iptm"]), 3)


def order_models(targets: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the models of all targets, by ranking score or, if all are complexes, by confidence."""
    finished = [models for models in targets if models]
    if finished and all("ranking_score" in models[0] for models in finished):
        finished.sort(key=lambda models: -models[0]["ranking_score"])
    elif all(models[0]["iptm"] is not None for models in finished):
        finished.sort(key=lambda models: -complex_confidence(models[0]["ptm"], models[0]["iptm"]))
    return [model for models in finished for model in models]


def _relative_path(
    files: TargetFiles, kind: ModelKind, model: dict[str, Any], if_exists: bool = False
) -> str | None:
    """Return the path of a file of a model, relative to the run's folder.

    Args:
        files: files of the model's target.
        kind: kind of the file.
        model: the model's entry in done.json.
        if_exists: return None if the file does not exist.
    """
    path = files.model_path(kind, model["rank"], model["tag"])
    return None if if_exists and not path.is_file() else str(path.relative_to(files.out))


def remove_run_leftovers(out: Path) -> None:
    """Remove temporary files of a folder's tables and pages that killed runs have left."""
    for prefix in _RUN_FILE_PREFIXES:
        remove_abandoned_files(out, prefix)


def write_table(path: Path, models: Sequence[dict[str, Any]]) -> None:
    """Write the table of a summary."""
    columns = [*COLUMNS, *(name for name in RARE_COLUMNS if any(name in model for model in models))]
    with atomic_write(path) as stream:
        stream.write("\t".join(columns) + "\n")
        for model in models:
            stream.write("\t".join(_cell(model.get(column)) for column in columns) + "\n")


def write_screen_table(path: Path, models: Sequence[dict[str, Any]]) -> None:
    """Write the requested complexes of a screen with their scores and p-values.

    Without a background there is no table, and that of an earlier screen is removed.

    A p-value is (1 + b) / (1 + n), if b of n pairs of the background have at least this score (Phipson and
    Smyth, Stat. Appl. Genet. Mol. Biol. 9, 39, 2010).

    Args:
        path: path of the table.
        models: models of all targets, best targets first; see `order_models`.
    """
    best = [model for model in models if model["rank"] == 1]
    background = [model for model in best if model["target"].startswith(BACKGROUND_PREFIX)]
    requested = [model for model in best if not model["target"].startswith(BACKGROUND_PREFIX)]
    if not background or not requested:
        if _is_screen_table(path):
            path.unlink()
        return
    chance = {
        name: sorted(model[name] for model in background if model.get(name) is not None)
        for name in _SCREEN_SCORES
    }
    columns = [column for name in _SCREEN_SCORES for column in (name, f"{name}_p")]
    with atomic_write(path) as stream:
        stream.write("\t".join((*_SCREEN_COLUMNS, *columns)) + "\n")
        for rank, model in enumerate(requested, 1):
            cells = [model["target"], str(rank), str(len(background))]
            for name in _SCREEN_SCORES:
                value = model.get(name)
                cells += ["", ""] if value is None else [str(value), f"{_p_value(value, chance[name]):.3g}"]
            stream.write("\t".join(cells) + "\n")


def _is_screen_table(path: Path) -> bool:
    """Return True if a file exists and is a table of a screen, and not one of the user's."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as stream:
        return stream.readline().split("\t")[: len(_SCREEN_COLUMNS)] == list(_SCREEN_COLUMNS)


def _p_value(score: float, chance: Sequence[float]) -> float:
    """Return the p-value of a score, given the sorted scores of the background."""
    return (1 + len(chance) - bisect_left(chance, score)) / (1 + len(chance))


def _table(targets: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table; with more than MAX_LINES targets, only of the best and the worst."""
    if not targets:
        return []
    listed, omitted_line = targets, None
    if len(targets) > MAX_LINES:
        ranked = sorted(targets, key=_rank_key)
        listed = [*ranked[:NUM_BEST], *ranked[-NUM_WORST:]]
        omitted_line = _omitted_line(ranked[NUM_BEST:-NUM_WORST])
    width = min(MAX_NAME_WIDTH, max(len("target"), *(len(target["target"]) for target in listed)))
    complexes = any(target["iptm"] is not None for target in targets)
    iptm = "  ipTM" if complexes else ""
    heading = f"{'target':<{width}}  residues   hits   rows  pLDDT   pTM{iptm}  seconds  files"
    lines = [_line(target, width, complexes) for target in listed]
    if omitted_line is not None:
        lines.insert(NUM_BEST, omitted_line)
    return [heading, *lines]


def _rank_key(target: dict[str, Any]) -> tuple[float, float]:
    """Return a key that sorts complexes by confidence, then single chains by pLDDT, best first."""
    confidence = 0.0 if target["iptm"] is None else complex_confidence(target["ptm"], target["iptm"])
    return -confidence, -(target["plddt"] or 0.0)


def _heading(counts: dict[str, int], seconds: float) -> str:
    parts = []
    if counts["finished"] or not counts["finished_before"]:
        parts.append(f"{counts['finished']} finished")
    if counts["finished_before"]:
        parts.append(f"{counts['finished_before']} finished before")
    if counts["failed"]:
        parts.append(f"{counts['failed']} failed")
    return f"{', '.join(parts)}, in {format_duration(seconds)}"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _line(target: dict[str, Any], width: int, complexes: bool) -> str:
    name = target["target"] if len(target["target"]) <= width else target["target"][: width - 1] + "…"
    hits = "–" if target["hits"] is None else str(target["hits"])
    plddt = "–" if target["plddt"] is None else f"{target['plddt']:.1f}"
    ptm = f"{'–' if target['ptm'] is None else format(target['ptm'], '.2f'):>5}"
    if complexes:
        ptm += f" {'–' if target['iptm'] is None else format(target['iptm'], '.2f'):>5}"
    seconds = "before" if target["finished_before"] else f"{target['seconds']:.1f}"
    numbers = f"{target['residues']:>8} {hits:>6} {target['alignment_rows']:>6} {plddt:>6} {ptm} {seconds:>8}"
    return f"{name:<{width}}  {numbers}  {target['files']}"


def _omitted_line(targets: list[dict[str, Any]]) -> str:
    """Return the line that replaces the targets between the best and the worst."""
    plddts = [target["plddt"] for target in targets if target["plddt"] is not None]
    text = f"… {len(targets)} others"
    if plddts:
        median = statistics.median(plddts)
        text += f", pLDDT {min(plddts):.1f} to {max(plddts):.1f}, median {median:.1f}"
    return text


def _modification_time(files: TargetFiles) -> int | None:
    """Return the modification time of done.json in nanoseconds, or None if there is no such file."""
    try:
        return files.path("done").stat().st_mtime_ns
    except OSError:
        return None
