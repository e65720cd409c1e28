"""Targets that are in a feature cache, by name.

An entry's target has the name that its sources give it: the files that it was made from, which the entry's
header lists. Names are looked up by reading all headers, for there is no index that processes could disagree
about. An entry made of standard input has its key as its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldcli.inputs.alignments import (
    ALIGNMENT_SUFFIXES,
    ENTRY_SUFFIX,
    AlignmentTarget,
    alignment_targets,
    name_of_files,
)
from foldcli.inputs.targets import FASTA_SUFFIXES, unique_names
from foldcli.logs import logger
from foldcli.pipeline.failures import Failures
from msa.errors import InputError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class CachedTarget:
    """An entry of a feature cache.

    Args:
        name: file-safe.
        path: of the entry.
        key: of the entry; stands for all that its features depend on.
        sources: the files it was made from; None and `-` are no files.
    """

    name: str
    path: Path
    key: str
    sources: tuple[str | None, ...]

    @property
    def identity(self) -> dict[str, Any]:
        """What the features depend on, for a target's fingerprint."""
        return {"input": self.key}

    def residues(self) -> int:
        """Of the query; raises what `features.cache.read_entry` does."""
        from features.cache import read_entry

        return int(read_entry(self.path, self.key)["msa"].shape[1])

    def features(self, verify: bool = True) -> "dict[str, np.ndarray]":
        """The deterministic features, made anew where the entry is damaged and its sources are as they were.

        Args:
            verify: compare it with its checksum.

        Raises:
            CorruptEntryError: damaged, and the sources are gone or have changed.
            OSError: it cannot be read.
        """
        from features.cache import CorruptEntryError, FeatureCache, cache_key, read_entry

        try:
            return read_entry(self.path, self.key, verify)
        except CorruptEntryError as error:
            files = tuple(source for source in self.sources if source not in (None, "-"))
            if not files or not all(Path(file).is_file() for file in files):
                raise
            alignments = AlignmentTarget(self.name, files).read()
            if cache_key(alignments) != self.key:
                raise
            logger.warning("%s: %s; made anew", self.name, error)
            return FeatureCache(self.path.parents[1]).load_or_make(alignments, overwrite=True)[0]


class CacheIndex:
    """The targets of a feature cache.

    Args:
        cache: the cache's folder.

    Attributes:
        targets: entries by name; of a name that several alignments have, several.
        unreadable: entries whose header cannot be read, with the reason.
    """

    def __init__(self, cache: Path) -> None:
        from features.cache import FeatureCache, entry_metadata

        self.cache = cache
        self.targets: dict[str, list[CachedTarget]] = {}
        self.unreadable: list[tuple[Path, Exception]] = []
        entries = FeatureCache(cache)
        keys = entries.keys()
        for key in keys:
            path = entries.path(key)
            try:
                sources = tuple(entry_metadata(path).get("sources", ()))
                name = name_of_files(sources) or key
            except (InputError, OSError, TypeError, AttributeError) as error:
                self.unreadable.append((path, error))
                continue
            self.targets.setdefault(name, []).append(CachedTarget(name, path, key, sources))

    def find(self, name: str) -> CachedTarget:
        """The target of a name.

        Raises:
            InputError: there is none, or there are several.
        """
        found = self.targets.get(name)
        if found is None:
            reason = f"no such file, and no target of this name in the feature cache {self.cache}"
            if close := get_close_matches(name, self.targets, n=1):
                reason += f"; did you mean {close[0]}?"
            if self.unreadable:
                reason += f" ({len(self.unreadable)} entries cannot be read: see `foldcli cache verify`)"
            raise InputError(reason, name)
        if len(found) > 1:
            places = " and ".join(str(target.path) for target in found)
            raise InputError(f"several targets of the feature cache have this name: {places}", name)
        return found[0]


def named_targets(
    given: Sequence[str], cache: Path, failures: Failures
) -> "tuple[list[str], list[CachedTarget]]":
    """What was given, as files and folders, and as targets of a cache.

    What is no file, and does not look like one, is a name. One that is not in the cache goes to `failures`.

    Args:
        given: files, folders, `-`, names.
        cache: folder of the feature cache.
        failures: of the run.
    """
    names = [text for text in given if _may_be_name(text)]
    files = [text for text in given if text not in names]
    index = CacheIndex(cache) if names else None
    found = []
    for name in names:
        assert index is not None
        try:
            found.append(index.find(name))
        except InputError as error:
            failures.add(name, error)
    return files, found


def all_targets(cache: Path, failures: Failures) -> list[CachedTarget]:
    """All targets of a cache; those that cannot be told apart or read go to `failures`.

    Raises:
        InputError: there is none.
    """
    index = CacheIndex(cache)
    if not index.targets and not index.unreadable:
        raise InputError("no feature cache, or an empty one", cache)
    for path, error in index.unreadable:
        failures.add(str(path), error)
    found = []
    for name in index.targets:
        try:
            found.append(index.find(name))
        except InputError as error:
            failures.add(name, error)
    return found


def predict_targets(
    given: Sequence[str], everything: bool, cache: Path, failures: Failures
) -> list[tuple[str, AlignmentTarget | CachedTarget]]:
    """The targets of `foldcli predict`, with their names.

    Args:
        given: files, folders, `-`, names of cached targets.
        everything: all targets of the cache instead.
        cache, failures: see `named_targets`.

    Raises:
        InputError: two targets have one name; a folder or the cache is empty.
    """
    if everything:
        return [(target.name, target) for target in all_targets(cache, failures)]
    files, cached = named_targets(given, cache, failures)
    suffixes = (*ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES, ENTRY_SUFFIX)
    aligned = alignment_targets(files, suffixes)
    unique_names(
        [(target.name, target.files[0]) for target in aligned] + [(t.name, str(t.path)) for t in cached]
    )
    return [*((target.name, target) for target in aligned), *((target.name, target) for target in cached)]


def _may_be_name(text: str) -> bool:
    known = (*ALIGNMENT_SUFFIXES, *FASTA_SUFFIXES, ENTRY_SUFFIX)
    return text != "-" and "/" not in text and not text.endswith(known) and not Path(text).exists()
