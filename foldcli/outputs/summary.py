"""What a run came to, on one screen: a line a target, or, of many, the best, the worst and counts."""

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldcli.logs import logger
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.params.parameters import UNTRAINED
from foldcli.pipeline.failures import Failures

# lines of targets that fit on a screen beside the heading and the counts
MOST = 16
BEST, WORST = 8, 5
MOST_FAILED = 5
LONGEST_NAME = 32


@dataclass(frozen=True)
class Outcome:
    """A finished target, as its done.json tells of it.

    Args:
        name: the target.
        residues, rows: length of the query and depth of its alignment.
        hits: of the search; None where there was none.
        plddt, ptm: of the best model; None where they mean nothing or the network has none.
        seconds: of all stages, whenever they were done.
        place: where its files are.
        before: it was finished already.
    """

    name: str
    residues: int
    rows: int
    hits: int | None
    plddt: float | None
    ptm: float | None
    seconds: float
    place: str
    before: bool


class RunSummary:
    """The targets of a run; made before it begins, told when it ends.

    Args:
        out: the run's folder.
        layout: of its files.
        names: of the targets of this shard.
    """

    def __init__(self, out: Path, layout: LayoutName, names: list[str]) -> None:
        self._files = [TargetFiles(name, out, layout) for name in names]
        self._stamps = {files.name: _stamp(files) for files in self._files}
        self._begun = time.monotonic()

    def tell(self, failures: Failures) -> None:
        """Log it: a table for people, one object under --log-json."""
        failed = [name for name, _ in failures.failed]
        outcomes = [each for each in map(self._outcome, self._files) if each and each.name not in failed]
        if not outcomes and len(failed) <= 1:
            # there is nothing to say that the error does not
            return
        seconds = time.monotonic() - self._begun
        before = sum(each.before for each in outcomes)
        counts = {"finished": len(outcomes) - before, "finished_before": before, "failed": len(failed)}
        lines = [_heading(counts, seconds), *table(outcomes)]
        lines += [f"failed: {name}" for name in failed[:MOST_FAILED]]
        if len(failed) > MOST_FAILED:
            lines.append(f"failed: {len(failed) - MOST_FAILED} others, see {failures.path}")
        if any(each.plddt is None for each in outcomes):
            lines.append(UNTRAINED)
        fields = {"summary": counts | {"seconds": round(seconds, 3)}}
        logger.info("%s", "\n".join(lines), extra={"fields": fields})

    def _outcome(self, files: TargetFiles) -> Outcome | None:
        try:
            done = json.loads(files.path("done").read_text())
            return outcome_of(done, files, _stamp(files) == self._stamps[files.name])
        except (OSError, ValueError, LookupError, TypeError):
            # not finished, or by a version that wrote something else
            return None


def outcome_of(done: dict[str, Any], files: TargetFiles, before: bool) -> Outcome:
    """What a done.json says.

    Raises:
        LookupError: it lacks something.
    """
    best, facts = done["ranking"][0], done["facts"]
    meaningless = UNTRAINED in done["warnings"]
    flat = files.layout == "colabfold"
    return Outcome(
        name=files.name,
        residues=facts["residues"],
        rows=facts["alignment_rows"],
        hits=facts["search"]["hits"] if "search" in facts else None,
        plddt=None if meaningless else best["plddt"],
        ptm=None if meaningless else best["ptm"],
        seconds=sum(stage["seconds"] for stage in done["stages"]),
        place=f"{files.shown}/{files.name}_*" if flat else f"{files.shown}/",
        before=before,
    )


def table(outcomes: list[Outcome]) -> list[str]:
    """The lines of the targets, best first if not all have a place."""
    if not outcomes:
        return []
    shown, between = outcomes, None
    if len(outcomes) > MOST:
        ranked = sorted(outcomes, key=lambda each: -(each.plddt or 0.0))
        shown = [*ranked[:BEST], *ranked[-WORST:]]
        between = _between(ranked[BEST:-WORST])
    width = min(LONGEST_NAME, max(len("target"), *(len(each.name) for each in shown)))
    heading = f"{'target':<{width}}  residues   hits   rows  pLDDT   pTM  seconds  files"
    lines = [_line(each, width) for each in shown]
    if between is not None:
        lines.insert(BEST, between)
    return [heading, *lines]


def _heading(counts: dict[str, int], seconds: float) -> str:
    parts = []
    if counts["finished"] or not counts["finished_before"]:
        parts.append(f"{counts['finished']} finished")
    if counts["finished_before"]:
        parts.append(f"{counts['finished_before']} finished before")
    if counts["failed"]:
        parts.append(f"{counts['failed']} failed")
    return f"{', '.join(parts)}, in {_duration(seconds)}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _line(each: Outcome, width: int) -> str:
    name = each.name if len(each.name) <= width else each.name[: width - 1] + "…"
    hits = "–" if each.hits is None else str(each.hits)
    plddt = "–" if each.plddt is None else f"{each.plddt:.1f}"
    ptm = "–" if each.ptm is None else f"{each.ptm:.2f}"
    seconds = "before" if each.before else f"{each.seconds:.1f}"
    numbers = f"{each.residues:>8} {hits:>6} {each.rows:>6} {plddt:>6} {ptm:>5} {seconds:>8}"
    return f"{name:<{width}}  {numbers}  {each.place}"


def _between(others: list[Outcome]) -> str:
    known = [each.plddt for each in others if each.plddt is not None]
    told = (
        f", pLDDT {min(known):.1f} to {max(known):.1f}, median {statistics.median(known):.1f}"
        if known
        else ""
    )
    return f"… {len(others)} others{told}"


def _stamp(files: TargetFiles) -> int | None:
    try:
        return files.path("done").stat().st_mtime_ns
    except OSError:
        return None
