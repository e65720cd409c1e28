"""Merging of the tables of array jobs: summary.I-of-N.tsv and failures.I-of-N.jsonl of all shards."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldcli.outputs.layout import LAYOUTS, TargetFiles, find_done_files
from foldcli.outputs.summary import finished_models, order_models, write_table
from msa.errors import InputError
from msa.io.atomic import atomic_write
from msa.io.json_files import parse_json


@dataclass(frozen=True)
class MergedTable:
    """A merged table.

    Args:
        path: path of the table.
        targets: number of targets in it.
        rows: number of rows.
    """

    path: Path
    targets: int
    rows: int


def merge_summaries(out: Path) -> MergedTable | None:
    """Write OUT/summary.tsv with the models of all finished targets of a run's folder.

    The models are read from the targets' done.json, so that the table is complete even if some shards have
    been run again or with another number of shards.

    Args:
        out: the folder of one run or of several shards.

    Returns:
        The table; None if there is no finished target in the layouts of runs.

    Raises:
        OSError: the file cannot be written.
    """
    found = [finished_models(files) for files in _finished_targets(out)]
    models = order_models(found)
    if not models:
        return None
    path = out / "summary.tsv"
    write_table(path, models)
    return MergedTable(path, sum(map(bool, found)), len(models))


def merge_failures(out: Path) -> MergedTable | None:
    """Write OUT/failures.jsonl with the failures of all shards, except for targets that were finished later.

    Args:
        out: the folder of one run or of several shards.

    Returns:
        The table; None if no failures are left, in which case there is no such file.

    Raises:
        InputError: a file of failures is damaged; names file and line.
        OSError: a file cannot be read or written.
    """
    path = out / "failures.jsonl"
    finished = {files.name: files.path("done").stat().st_mtime_ns for files in _finished_targets(out)}
    entries: dict[str, str] = {}
    # the newest file last: its entry of a target replaces those of earlier runs
    modified = sorted((file.stat().st_mtime_ns, file) for file in out.glob("failures*.jsonl"))
    for time, file in modified:
        for name, entry in _read_failures(file).items():
            if finished.get(name, 0) <= time:
                entries[name] = json.dumps(entry)
    if not entries:
        path.unlink(missing_ok=True)
        return None
    with atomic_write(path) as stream:
        stream.writelines(f"{entries[name]}\n" for name in sorted(entries))
    return MergedTable(path, len(entries), len(entries))


def _finished_targets(out: Path) -> list[TargetFiles]:
    """Return the targets of a run with a done.json, by name."""
    done = set(find_done_files(out))
    names = {path.parent.name for path in done}
    targets = [TargetFiles(name, out, layout) for name in names for layout in LAYOUTS]
    return sorted((files for files in targets if files.path("done") in done), key=lambda files: files.name)


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
