"""`foldcli cache`: list, check and prune a feature cache."""

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.errors import SomeTargetsFailed
from foldcli.logs import logger
from foldcli.options import common as options
from foldcli.options import types
from foldcli.paths import default_feature_cache
from foldcli.progress import progress_bar
from msa.base.errors import InputError

if TYPE_CHECKING:
    from features.cache.entry import CacheEntry

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _parse_age(text: str) -> float:
    """Return the seconds of an age such as 30d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if match is None:
        raise ValueError(f"expected an age such as 90m, 12h, 30d or 4w, got {text!r}")
    return float(match[1]) * _SECONDS_PER_UNIT[match[2]]


def _default_cache(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    """Return the cache on the command line, or the one that `fold` uses by default."""
    return value or default_feature_cache()


cache_argument = click.argument(
    "cache", required=False, type=click.Path(path_type=Path), metavar="[CACHE]", callback=_default_cache
)


@click.group("cache")
def command() -> None:
    """List, check and prune a feature cache.

    CACHE is the folder of the cache, by default the one that `fold` uses: $FOLDCLI_CACHE/features.
    """


@command.command("ls")
@cache_argument
@options.json_option
@options.logging_options
def ls(cache: Path, as_json: bool) -> None:
    """List the entries.

    Prints a header, then key, residues, rows, bytes, time of writing, name of the query, and source files of
    each entry. Only the headers of entries are read; `foldcli cache verify` reads every byte.
    """
    entries = [_as_json(entry) for entry in _entries(cache)]
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    if entries:
        click.echo(f"{'key':12} residues    rows      bytes  {'written':20}  name and sources")
    for entry in entries:
        size = "{residues:>8} {rows:>7} {bytes:>10}".format(**entry)
        # a damaged entry has no name
        text = entry["problem"] or " ".join([entry["name"], *(source or "?" for source in entry["sources"])])
        click.echo(f"{entry['key'][:12]} {size}  {entry['written']}  {text}")


@command.command("stats")
@cache_argument
@options.json_option
@options.logging_options
def stats(cache: Path, as_json: bool) -> None:
    """Show the size of the cache, and how much `foldcli cache prune` could remove."""
    from features.cache.cleanup import find_abandoned

    entries = _entries(cache)
    temporary_files = find_abandoned(cache)
    statistics = {
        "entries": len(entries),
        "bytes": sum(entry.size for entry in entries),
        "residues": sum(entry.shape[1] for entry in entries),
        "rows": sum(entry.shape[0] for entry in entries),
        "unreadable": sum(entry.problem is not None for entry in entries),
        "without_source": sum(entry.sources_are_gone for entry in entries),
        "abandoned_temporary_files": len(temporary_files),
        "oldest": min((_date(entry.written) for entry in entries), default=None),
        "newest": max((_date(entry.written) for entry in entries), default=None),
    }
    if as_json:
        click.echo(json.dumps(statistics, indent=2))
        return
    for name, value in statistics.items():
        click.echo(f"{name.replace('_', ' '):26} {'-' if value is None else value}")


@command.command("verify")
@cache_argument
@options.json_option
@options.logging_options
def verify(cache: Path, as_json: bool) -> None:
    """Read every entry and compare it with its checksum.

    An entry is broken if it is truncated or altered, has another key than its name says, or is not a cache
    entry of this format version. Broken entries are listed, and the exit code is then 5.
    """
    from features.cache.cache import find_problem

    entries = _entries(cache)
    broken = []
    with progress_bar("verifying", "entries") as progress:
        for done, entry in enumerate(entries, start=1):
            problem = find_problem(entry)
            if problem is not None:
                logger.error("%s: %s", entry.path, problem)
                broken.append(_as_json(entry) | {"problem": problem})
            progress(done, len(entries))
    if as_json:
        click.echo(json.dumps({"entries": len(entries), "broken": broken}, indent=2))
    if broken:
        raise SomeTargetsFailed(
            f"{len(broken)} of {len(entries)} entries are broken; `foldcli cache prune --broken` removes them"
        )
    logger.info("entries: %d, all valid", len(entries))


@command.command("prune")
@cache_argument
@click.option(
    "--older-than",
    type=types.ParsedType("AGE", _parse_age),
    help="Remove entries older than AGE, such as 30d or 12h.",
)
@click.option(
    "--max-size",
    type=types.size_type,
    help="Remove the oldest entries until the cache is at most SIZE, such as 20G.",
)
@options.flag("--absent-source", help="Remove entries whose source files are all gone.")
@options.flag("--broken", help="Remove broken entries, as `foldcli cache verify` finds them.")
@options.flag("--dry-run", help="Show what would be removed, without removing it.")
@options.json_option
@options.logging_options
def prune(
    cache: Path,
    older_than: float | None,
    max_size: int | None,
    absent_source: bool,
    broken: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove entries by age, size or missing source, and temporary files of killed processes.

    An entry is removed if any of the options applies to it. --absent-source does not apply to entries made
    from standard input. Temporary files are always removed: at once if their process ran on this machine and
    has ended, otherwise an hour after their last change. Other processes may use the cache meanwhile; they
    recompute missing entries.
    """
    from features.cache import cache as feature_cache
    from features.cache import cleanup

    entries = _entries(cache)
    cutoff = None if older_than is None else time.time() - older_than
    find_problem = feature_cache.find_problem if broken else None
    settings = cleanup.PruneSettings(cutoff, max_size, absent_source, find_problem)
    selected = cleanup.entries_to_prune(entries, settings)
    removed = [(entry, reason) for entry, reason in selected if dry_run or cleanup.remove_entry(entry)]
    find = cleanup.find_abandoned if dry_run else cleanup.remove_abandoned
    temporary_files = find(cache)
    action = "would be removed" if dry_run else "removed"
    for entry, reason in removed:
        logger.info("%s: %s: %s", entry.path, action, reason)
    for path in temporary_files:
        logger.info("%s: %s: its writer was killed", path, action)
    removed_bytes = sum(entry.size for entry, _ in removed)
    if as_json:
        report = {
            "dry_run": dry_run,
            "removed": [_as_json(entry) | {"reason": reason} for entry, reason in removed],
            "removed_bytes": removed_bytes,
            "temporary_files": [str(path) for path in temporary_files],
            "kept": len(entries) - len(removed),
        }
        click.echo(json.dumps(report, indent=2))
    logger.info(
        "%d entries (%d bytes) and %d temporary files %s, %d entries kept",
        len(removed), removed_bytes, len(temporary_files), action, len(entries) - len(removed),
    )  # fmt: skip


def _entries(cache: Path) -> "list[CacheEntry]":
    """Return the entries of a cache; none if it is the default one and does not exist yet."""
    from features.cache.entry import list_entries

    if cache == default_feature_cache() and not cache.exists():
        logger.info("%s: no features are cached yet", cache)
        return []
    if not cache.is_dir():
        raise InputError("no such folder" if not cache.exists() else "not a folder", cache)
    return list(list_entries(cache))


def _as_json(entry: "CacheEntry") -> dict[str, Any]:
    rows, residues = entry.shape
    return {
        "key": entry.key,
        "path": str(entry.path),
        "name": entry.metadata.get("name"),
        "residues": residues,
        "rows": rows,
        "bytes": entry.size,
        "written": _date(entry.written),
        "sources": entry.metadata.get("sources", []),
        "problem": entry.problem,
    }


def _date(seconds: float) -> str:
    """Return a time in UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
