"""What a cache holds, which entries are broken, and which to remove."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from features.cache import CorruptEntryError, FeatureCache, entry_metadata, read_entry


@dataclass(frozen=True)
class Entry:
    """An entry as its file's name, size and header show it.

    Args:
        path: its file.
        size: bytes.
        written: when, in seconds since 1970.
        said: what `features.entry.entry_metadata` gives, nothing where it cannot be read.
        problem: why it cannot.
    """

    path: Path
    size: int
    written: float
    said: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def key(self) -> str:
        return self.path.stem

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of the alignment and residues of the query; 0, 0 where they are not known."""
        rows, residues = self.said["tensors"]["msa"][1] if self.said else (0, 0)
        return rows, residues

    @property
    def sources(self) -> list[str]:
        """The files it was made from, those that were files."""
        return [source for source in self.said.get("sources", []) if source not in (None, "-")]

    @property
    def has_no_source_left(self) -> bool:
        """Whether it was made from files of which none is there any more."""
        return bool(self.sources) and not any(Path(source).exists() for source in self.sources)


def list_entries(root: Path) -> Iterator[Entry]:
    """All entries of a cache, by key; their headers are read, and not checked.

    Raises:
        OSError: one cannot be read.
    """
    cache = FeatureCache(root)
    keys = cache.keys()
    for key in keys:
        path = cache.path(key)
        # removed by another process since the folder was read
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            try:
                yield Entry(path, status.st_size, status.st_mtime, entry_metadata(path))
            except CorruptEntryError as error:
                yield Entry(path, status.st_size, status.st_mtime, problem=error.reason)


def problem_of(entry: Entry) -> str | None:
    """Read all of an entry: why it is none of this cache's, or None; one removed meanwhile has no problem.

    Raises:
        OSError: it cannot be read.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            read_entry(entry.path, entry.key)
        except CorruptEntryError as error:
            return error.reason
    return None


@dataclass(frozen=True)
class PruneSettings:
    """Which entries go; each condition is enough.

    Args:
        written_before: seconds since 1970.
        max_size: bytes that all entries may have together; the oldest go first.
        absent_source: those made from files of which none is there any more.
        broken: those that cannot be read, or fail their checksum.
    """

    written_before: float | None = None
    max_size: int | None = None
    absent_source: bool = False
    broken: bool = False


def entries_to_prune(entries: Iterable[Entry], settings: PruneSettings) -> list[tuple[Entry, str]]:
    """The entries that go, each with the reason, by age."""
    gone, kept = [], []
    for entry in sorted(entries, key=lambda entry: (entry.written, entry.key)):
        reason = _reason(entry, settings)
        if reason is None:
            kept.append(entry)
        else:
            gone.append((entry, reason))
    if settings.max_size is not None:
        excess = sum(entry.size for entry in kept) - settings.max_size
        for entry in kept:
            if excess <= 0:
                break
            excess -= entry.size
            gone.append((entry, "oldest of a cache that is too large"))
    return gone


def remove(entry: Entry) -> bool:
    """Remove an entry, unless it has been written anew since it was listed; whether it was there.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        if entry.path.stat().st_mtime != entry.written:
            return False
        entry.path.unlink()
    except FileNotFoundError:
        return False
    return True


def _reason(entry: Entry, settings: PruneSettings) -> str | None:
    if settings.broken and (problem := entry.problem or problem_of(entry)):
        return problem
    if settings.absent_source and entry.has_no_source_left:
        return "its sources are gone"
    if settings.written_before is not None and entry.written < settings.written_before:
        return "older than asked for"
    return None
