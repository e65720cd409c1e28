"""Removal of files from a feature cache: entries by age, size or source, and abandoned temporary files.

An entry is written as `CACHE/tmp/KEY.PROCESS.….tmp` and then renamed. PROCESS identifies the writer (see
`msa.base.temporary_names`): its file is removed once it has ended. A writer that cannot be checked counts as
ended if its file has not changed for an hour. A writer whose file was removed by mistake writes it again.

This module does not import numba, so that commands that only remove files start quickly.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from features.cache.entry import CacheEntry
from msa.base.temporary_names import file_system_time, is_abandoned, process_tag

# age in seconds at which the file of a writer that cannot be checked is removed; writing takes seconds
ABANDONED_AFTER = 3600

_TEMPORARY_FOLDER = "tmp"


@dataclass(frozen=True)
class PruneSettings:
    """Conditions for removing entries; an entry that meets any of them is removed.

    Args:
        written_before: remove entries written before this time, in seconds since 1970.
        max_size: remove the oldest entries until the others have at most this size in bytes.
        absent_source: remove entries computed from files that are all gone.
        find_problem: remove entries for which this function returns a reason, such as
            `features.cache.cache.find_problem`.
    """

    written_before: float | None = None
    max_size: int | None = None
    absent_source: bool = False
    find_problem: Callable[[CacheEntry], str | None] | None = None


def entries_to_prune(entries: Iterable[CacheEntry], settings: PruneSettings) -> list[tuple[CacheEntry, str]]:
    """Select the entries to remove, each with the reason, oldest first for each condition."""
    selected, kept = [], []
    for entry in sorted(entries, key=lambda entry: (entry.written, entry.key)):
        reason = _reason_to_prune(entry, settings)
        if reason is None:
            kept.append(entry)
        else:
            selected.append((entry, reason))
    if settings.max_size is not None:
        excess = sum(entry.size for entry in kept) - settings.max_size
        for entry in kept:
            if excess <= 0:
                break
            excess -= entry.size
            selected.append((entry, "oldest of a cache that is too large"))
    return selected


def _reason_to_prune(entry: CacheEntry, settings: PruneSettings) -> str | None:
    if settings.find_problem is not None and (problem := settings.find_problem(entry)):
        return problem
    if settings.absent_source and entry.sources_are_gone:
        return "its sources are gone"
    if settings.written_before is not None and entry.written < settings.written_before:
        return "older than requested"
    return None


def remove_entry(entry: CacheEntry) -> bool:
    """Remove an entry unless it was rewritten since it was listed; return whether it was removed."""
    try:
        if entry.path.stat().st_mtime != entry.written:
            return False
        entry.path.unlink()
    except FileNotFoundError:
        return False
    return True


def temporary_prefix(root: Path, key: str) -> Path:
    """Return the start of the path of an entry's temporary file, for `msa.base.atomic.atomic_write`."""
    return root / _TEMPORARY_FOLDER / f"{key}.{process_tag()}."


def find_abandoned(root: Path) -> list[Path]:
    """Find temporary files in a cache whose writers have ended."""
    paths = [*(root / _TEMPORARY_FOLDER).glob("*.tmp"), *root.glob(".failures*.tmp")]
    if not paths:
        return []
    old = file_system_time(root) - ABANDONED_AFTER
    return [path for path in sorted(paths) if is_abandoned(path, old)]


def remove_abandoned(root: Path) -> list[Path]:
    """Remove the files that `find_abandoned` returns, and return them; the cache need not exist.

    Raises:
        OSError: a folder cannot be read, or a file cannot be removed.
    """
    abandoned = find_abandoned(root)
    for path in abandoned:
        path.unlink(missing_ok=True)
    return abandoned


remove_abandoned_once = functools.lru_cache(maxsize=16)(remove_abandoned)
"""Call `remove_abandoned` once per process and cache."""
