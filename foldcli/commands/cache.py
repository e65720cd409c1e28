"""`foldcli cache`: what a feature cache holds, whether it is whole, and what to remove from it."""

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foldcli.options import common as options

if TYPE_CHECKING:
    from features.entry import CacheEntry

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class AgeType(click.ParamType):
    """click type of an age such as 30d, in seconds."""

    name = "AGE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", value)
        if found is None:
            self.fail(f"expected an age such as 90m, 12h, 30d or 4w, got {value!r}", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


cache_argument = click.argument("cache", type=click.Path(path_type=Path))


@click.group("cache")
def command() -> None:
    """List, check and prune a feature cache."""


@command.command("ls")
@cache_argument
@options.json_option
@options.logging_options
def ls(cache: Path, as_json: bool) -> None:
    """List the entries: key, residues, rows, bytes, when written, the query's name, sources.

    Only headers are read; `foldcli cache verify` reads all of every entry.
    """
    found = [_told(entry) for entry in _entries(cache)]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for entry in found:
        size = "{residues:>6} {rows:>7} {bytes:>10}".format(**entry)
        told = entry["problem"] or " ".join([entry["name"], *(source or "?" for source in entry["sources"])])
        click.echo(f"{entry['key'][:12]} {size}  {entry['written']}  {told}")


@command.command("stats")
@cache_argument
@options.json_option
@options.logging_options
def stats(cache: Path, as_json: bool) -> None:
    """Count entries, their bytes, and what `foldcli cache prune` could remove."""
    from features.temporaries import find_abandoned

    entries = _entries(cache)
    temporary = find_abandoned(cache, include_legacy=True)
    found = {
        "entries": len(entries),
        "bytes": sum(entry.size for entry in entries),
        "residues": sum(entry.shape[1] for entry in entries),
        "rows": sum(entry.shape[0] for entry in entries),
        "unreadable": sum(entry.problem is not None for entry in entries),
        "without_source": sum(entry.sources_are_gone for entry in entries),
        "abandoned_temporary_files": len(temporary),
        "oldest": min((_date(entry.written) for entry in entries), default=None),
        "newest": max((_date(entry.written) for entry in entries), default=None),
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        click.echo(f"{name.replace('_', ' '):26} {'-' if value is None else value}")


@command.command("verify")
@cache_argument
@options.json_option
@options.logging_options
def verify(cache: Path, as_json: bool) -> None:
    """Read every entry and compare it with its checksum; exit code 5 names the broken ones.

    Broken are entries that are truncated, altered, foreign, under another's name, or of another format
    version.
    """
    from features.cache import find_problem
    from foldcli.errors import SomeTargetsFailed
    from foldcli.logs import logger
    from foldcli.progress import progress_bar

    entries = _entries(cache)
    broken = []
    with progress_bar("verifying", "entries") as progress:
        for done, entry in enumerate(entries, start=1):
            problem = entry.problem or find_problem(entry)
            if problem is not None:
                logger.error("%s: %s", entry.path, problem)
                broken.append(_told(entry) | {"problem": problem})
            progress(done, len(entries))
    if as_json:
        click.echo(json.dumps({"entries": len(entries), "broken": broken}, indent=2))
    if broken:
        raise SomeTargetsFailed(
            f"{len(broken)} of {len(entries)} entries are broken; `foldcli cache prune --broken` removes them"
        )
    logger.info("entries: %d, all whole", len(entries))


@command.command("prune")
@cache_argument
@click.option("--older-than", type=AgeType(), help="Remove entries written longer ago, such as 30d or 12h.")
@click.option(
    "--max-size",
    type=options.SizeType(),
    help="Remove the oldest entries until all have at most so many bytes together, such as 20G.",
)
@click.option("--absent-source", is_flag=True, help="Remove entries of which no source file is left.")
@click.option("--broken", is_flag=True, help="Remove entries that `foldcli cache verify` names.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
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
    """Remove entries by age, size, or lost source, and what killed writers left.

    Each option names entries of its own accord. Temporary files are removed in any case: at once when their
    writer was on this machine and has ended, otherwise an hour after they changed last. Entries made from
    standard input have no source that could be lost. Other processes may use the cache meanwhile: what they
    miss they make anew.
    """
    from features.cache import PruneSettings, entries_to_prune, remove_entry
    from features.temporaries import find_abandoned, remove_abandoned
    from foldcli.logs import logger

    entries = _entries(cache)
    before = None if older_than is None else time.time() - older_than
    chosen = entries_to_prune(entries, PruneSettings(before, max_size, absent_source, broken))
    gone = [(entry, reason) for entry, reason in chosen if dry_run or remove_entry(entry)]
    temporary = (find_abandoned if dry_run else remove_abandoned)(cache, include_legacy=True)
    word = "would be removed" if dry_run else "removed"
    for entry, reason in gone:
        logger.info("%s: %s: %s", entry.path, word, reason)
    for path in temporary:
        logger.info("%s: %s: its writer was killed", path, word)
    freed = sum(entry.size for entry, _ in gone)
    if as_json:
        removed = [_told(entry) | {"reason": reason} for entry, reason in gone]
        told = {
            "dry_run": dry_run,
            "removed": removed,
            "removed_bytes": freed,
            "temporary_files": [str(path) for path in temporary],
            "kept": len(entries) - len(gone),
        }
        click.echo(json.dumps(told, indent=2))
    logger.info(
        "%d entries (%d bytes) and %d temporary files %s, %d entries kept",
        len(gone), freed, len(temporary), word, len(entries) - len(gone),
    )  # fmt: skip


def _entries(cache: Path) -> "list[CacheEntry]":
    """The entries of a cache.

    Raises:
        InputError: it is no folder.
    """
    from features.entry import list_entries
    from msa.errors import InputError

    if not cache.is_dir():
        raise InputError("no such folder" if not cache.exists() else "not a folder", cache)
    return list(list_entries(cache))


def _told(entry: "CacheEntry") -> dict[str, Any]:
    """An entry for people and for --json."""
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
    """UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
