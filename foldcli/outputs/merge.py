"""Merging of the tables that array jobs write: summary.I-of-N.tsv and failures.I-of-N.jsonl."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldcli.outputs.layout import LAYOUTS, TargetFiles, find_done_files
from foldcli.outputs.screen_table import write_screen_table
from foldcli.outputs.summary import finished_models, order_models, write_table
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.base.json_files import parse_json


@dataclass(frozen=True)
class MergedTable:
    """A merged table."""

    path: Path
    targets: int
    rows: int


def merge_summaries(out: Path) -> MergedTable | None:
    """Write OUT/summary.tsv with the models of all finished targets of a run's folder.

    The models are read from the targets' done.json. The table is therefore complete even if some shards were
    run twice, or with different numbers of shards.

    Returns:
        The table; None if there is no finished target in the layouts of runs.
    """
    models_by_target = [finished_models(files) for files in _finished_targets(out)]
    models = order_models(models_by_target)
    if not models:
        return None
    path = out / "summary.tsv"
    write_table(path, models)
    write_screen_table(out / "screen.tsv", models)
    return MergedTable(path, sum(map(bool, models_by_target)), len(models))


def merge_failures(out: Path) -> MergedTable | None:
    """Write OUT/failures.jsonl with the failures of all shards, except for targets that were finished later.

    Returns:
        The table; None if no failures are left, and the file was therefore removed.

    Raises:
        InputError: a file of failures is damaged; names file and line.
    """
    path = out / "failures.jsonl"
    finish_times = {files.name: files.path("done").stat().st_mtime_ns for files in _finished_targets(out)}
    entries: dict[str, str] = {}
    # in order of time, so that the newest entry of a target replaces older ones
    times_and_files = sorted((file.stat().st_mtime_ns, file) for file in out.glob("failures*.jsonl"))
    for time, file in times_and_files:
        for name, entry in _read_failures(file).items():
            if finish_times.get(name, 0) <= time:
                entries[name] = json.dumps(entry)
    if not entries:
        path.unlink(missing_ok=True)
        return None
    with atomic_write(path) as stream:
        stream.writelines(f"{entries[name]}\n" for name in sorted(entries))
    return MergedTable(path, len(entries), len(entries))


def _finished_targets(out: Path) -> list[TargetFiles]:
    """Return the targets of a run with a done.json, by name."""
    done_files = set(find_done_files(out))
    names = {path.parent.name for path in done_files}
    targets = [TargetFiles(name, out, layout) for name in names for layout in LAYOUTS]
    return sorted(
        (files for files in targets if files.path("done") in done_files), key=lambda files: files.name
    )


def _read_failures(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a file of failures, by target."""
    entries = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            entry = parse_json(line.decode())
            entries[str(entry["target"])] = entry
        except (ValueError, LookupError, TypeError) as error:
            raise InputError("not an entry of failures.jsonl", path, number) from error
    return entries
