"""Reports of results that exist, and the merged tables summary.tsv and failures.jsonl of array jobs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldcli.errors import SomeTargetsFailed, describe
from foldcli.logs import logger
from foldcli.outputs.done import write_archive
from foldcli.outputs.layout import LAYOUTS, TargetFiles, find_done_files
from foldcli.outputs.summary import (
    finished_models,
    order_models,
    remove_run_leftovers,
    write_screen_table,
    write_table,
)
from foldcli.report import ReportSettings
from foldcli.report.data.result import finished_targets, read_done
from foldcli.report.make import make_index, make_report
from foldcli.units import format_count
from msa.base.atomic import atomic_write
from msa.base.errors import InputError
from msa.base.json_files import parse_json


def make_again(folders: Sequence[Path], settings: ReportSettings, tables_only: bool) -> None:
    """Merge the tables of folders of results, and make the reports again.

    Args:
        folders: see `foldcli report`.
        settings: contents of the reports.
        tables_only: make no reports.

    Raises:
        InputError: a folder has no results.
        SomeTargetsFailed: not all reports could be made.
    """
    num_failed = num_reports = 0
    for out in folders:
        remove_run_leftovers(out)
        targets = finished_targets(out)
        if (summary := merge_summaries(out)) is not None:
            models, of_targets = format_count(summary.rows, "model"), format_count(summary.targets, "target")
            logger.info("%s: %s of %s", summary.path, models, of_targets)
        if (failures := merge_failures(out)) is not None:
            logger.warning("%s: %d failed targets", failures.path, failures.targets)
        if not targets and failures is None:
            raise InputError("no finished target here: no NAME_scores_rank_*.json", out)
        for files in [] if tables_only else targets:
            if files.lock_path.exists() or files.work_folder.exists():
                # its files may come from two different runs
                logger.warning("%s: no report, because its run has not ended or was interrupted", files.name)
                continue
            num_reports += 1
            try:
                written = make_report(files, read_done(files), settings)
                if files.path("archive").is_file():
                    write_archive(files, files.path("done").read_text())
                    written.append(files.path("archive"))
                logger.info("%s: %s", files.name, ", ".join(map(str, written)))
            except (InputError, OSError) as error:
                num_failed += 1
                logger.error("%s: %s", files.name, describe(error))
        make_index(out, settings)
    if num_failed:
        raise SomeTargetsFailed(f"{num_failed} of {num_reports} reports could not be made")


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
