"""Removal of entries from a feature cache.

This module does not import numba, so that a cache can be pruned quickly.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from features.entry import CacheEntry


@dataclass(frozen=True)
class PruneSettings:
    """Conditions for removing entries; an entry that meets any of them is removed.

    Args:
        written_before: remove entries written before this time, in seconds since 1970.
        max_size: remove the oldest entries until the others have at most this size in bytes.
        absent_source: remove entries computed from files that are all gone.
        find_problem: remove entries for which this function returns a reason, such as
            `features.cache.find_problem`.
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
    """Remove an entry unless it was rewritten since it was listed; return whether it was removed.

    Raises:
        OSError: the file cannot be removed.
    """
    try:
        if entry.path.stat().st_mtime != entry.written:
            return False
        entry.path.unlink()
    except FileNotFoundError:
        return False
    return True
