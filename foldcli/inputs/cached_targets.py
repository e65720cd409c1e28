"""Targets in a feature cache, selected by name.

A target is named after the files from which its entry was computed, which the entry's header lists. An entry
computed from standard input is named after its key. Every lookup reads the headers of all entries. There is
no index file, because it could disagree with the entries while several processes write to the cache.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from features.cache.cache import FeatureCache, cache_key
from features.cache.entry import (
    CorruptEntryError,
    corrupt_entry_errors,
    entry_keys,
    entry_path,
    is_complex_entry,
    read_entry,
    read_entry_metadata,
)
from features.complexes.cache import add_rows, complex_key, features_to_rows
from foldcli.inputs.alignment_targets import AlignmentTarget, common_target_name, target_of_file
from foldcli.inputs.names import ALIGNMENT_SUFFIXES, ENTRY_SUFFIX, FASTA_SUFFIXES, JOB_SUFFIXES
from foldcli.logs import logger
from msa.base.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from features.complexes.rows import ComplexRows
    from foldcli.inputs.failures import Failures

_FILE_SUFFIXES = (*ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES, *JOB_SUFFIXES, ENTRY_SUFFIX)


@dataclass(frozen=True)
class CachedTarget:
    """A target with an entry in a feature cache.

    Args:
        key: key of the entry, a hash of everything that its features depend on.
        sources: files from which the entry was computed; `-` is standard input, None is unknown.
        is_complex: whether the target is a complex.
    """

    name: str
    path: Path
    key: str
    sources: tuple[str | None, ...]
    is_complex: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """The values that the features depend on, for the target's fingerprint."""
        return {"input": self.key}

    def residues(self) -> int:
        """Return the number of residues in all chains; raises the exceptions of `read_entry`."""
        if self.is_complex:
            return read_complex_entry(self.path, self.key).residues
        return int(read_entry(self.path, self.key)["msa"].shape[1])

    def load_features(self, verify: bool = True) -> "dict[str, np.ndarray]":
        """Return the deterministic features; recompute a damaged entry if its sources have not changed.

        Raises:
            CorruptEntryError: the entry is damaged, and its sources are missing or have changed.
        """
        try:
            return read_entry(self.path, self.key, verify)
        except CorruptEntryError as error:
            target = self._source_target()
            if target is None or cache_key(alignments := target.read()) != self.key:
                raise
            logger.warning("%s: %s; computed again", self.name, error)
            return FeatureCache(self.path.parents[1]).load_or_make(alignments, overwrite=True)[0]

    def load_complex_rows(self, verify: bool = True) -> "ComplexRows":
        """Return the rows of a complex; same arguments and exceptions as `load_features`."""
        try:
            return read_complex_entry(self.path, self.key, verify)
        except CorruptEntryError as error:
            if (target := self._source_target()) is None:
                raise
            target = target_of_file(target.files[0])
            rows = target.parse_complex(target.read_contents())
            if rows is None or complex_key(self.name, rows) != self.key:
                raise
            logger.warning("%s: %s; computed again", self.name, error)
            add_rows(FeatureCache(self.path.parents[1]), self.name, rows, self.sources, overwrite=True)
            return rows

    def _source_target(self) -> AlignmentTarget | None:
        """Return the target in the files that the entry was computed from; None if one is not there."""
        files = tuple(source for source in self.sources if source not in (None, "-"))
        has_all = bool(files) and all(Path(file).is_file() for file in files)
        return AlignmentTarget(self.name, files) if has_all else None


def read_complex_entry(path: str | Path, key: str | None = None, verify: bool = True) -> "ComplexRows":
    """Return the rows in an entry of a complex; same arguments and exceptions as `read_entry`."""
    features = read_entry(path, key, verify)
    with corrupt_entry_errors(path):
        return features_to_rows(features)


class CacheIndex:
    """The targets of a feature cache, by name.

    Attributes:
        targets: entries of each name; several if different alignments have the same name.
        unreadable: paths of entries whose header cannot be read, with the error.
    """

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.targets: dict[str, list[CachedTarget]] = {}
        self.unreadable: list[tuple[Path, Exception]] = []
        for key in entry_keys(cache):
            path = entry_path(cache, key)
            try:
                metadata = read_entry_metadata(path)
                sources, is_complex = tuple(metadata.get("sources", ())), is_complex_entry(metadata)
                name = common_target_name(sources) or key
            except (InputError, OSError, TypeError, AttributeError) as error:
                self.unreadable.append((path, error))
                continue
            self.targets.setdefault(name, []).append(CachedTarget(name, path, key, sources, is_complex))

    def find(self, name: str) -> CachedTarget:
        """Return the only target with a name.

        Raises:
            InputError: there is none, or there are several.
        """
        targets = self.targets.get(name)
        if targets is None:
            reason = f"no such file, and no target of this name in the feature cache {self.cache}"
            if close := get_close_matches(name, self.targets, n=1):
                reason += f"; did you mean {close[0]}?"
            if self.unreadable:
                reason += f" ({len(self.unreadable)} entries cannot be read: see `foldcli cache verify`)"
            raise InputError(reason, name)
        if len(targets) > 1:
            paths = " and ".join(str(target.path) for target in targets)
            raise InputError(f"several targets of the feature cache have this name: {paths}", name)
        return targets[0]

    def find_all(self, names: Iterable[str], failures: "Failures") -> list[CachedTarget]:
        """Return the targets with these names; missing and ambiguous names are added to `failures`."""
        targets = []
        for name in names:
            try:
                targets.append(self.find(name))
            except InputError as error:
                failures.add(name, error)
        return targets


def split_cached_names(
    inputs: Sequence[str], cache: Path, failures: "Failures"
) -> tuple[list[str], list[CachedTarget]]:
    """Separate files and folders from names of cached targets.

    An input that is not a file, and does not look like one, is a name. Names that are not in the cache are
    added to `failures`.

    Args:
        inputs: files, folders, `-`, names.
        cache: folder of the feature cache.
        failures: failures of the run.

    Returns:
        The files and folders, and the cached targets.
    """
    names = [text for text in inputs if looks_like_name(text)]
    files = [text for text in inputs if text not in names]
    return files, CacheIndex(cache).find_all(names, failures) if names else []


def find_all_cached_targets(cache: Path, failures: "Failures") -> list[CachedTarget]:
    """Return all targets of a cache; unreadable entries and ambiguous names are added to `failures`.

    Raises:
        InputError: the cache is empty or missing.
    """
    index = CacheIndex(cache)
    if not index.targets and not index.unreadable:
        raise InputError("missing or empty feature cache", cache)
    for path, error in index.unreadable:
        failures.add(str(path), error)
    return index.find_all(index.targets, failures)


def looks_like_name(text: str) -> bool:
    """Return True if an input may be the name of a cached target: it is no file, and looks like none."""
    return text != "-" and "/" not in text and not text.endswith(_FILE_SUFFIXES) and not Path(text).exists()
