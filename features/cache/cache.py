"""The feature cache: one file per target, named by a hash of its input.

The file of a key is `CACHE/ab/abcdef….safetensors` (`cache.entry`). It is written under a temporary name,
fsynced and renamed, so that readers on any file system see either the complete file or no file. Several
processes may write the same entry at once, because they all write the same content. `features.cache.cleanup`
removes the temporary files of killed processes.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from features.alphafold2.deterministic import make_features
from features.alphafold2.schema import SCHEMA_VERSION
from features.cache.cleanup import remove_abandoned_once, temporary_prefix
from features.cache.entry import (
    FORMAT,
    CacheEntry,
    CorruptEntryError,
    encode_entry,
    entry_path,
    read_entry,
)
from msa.alignments.files import Alignment
from msa.base.atomic import atomic_write, writing_cache

# errors of a writer whose temporary file was removed by another process
_TEMPORARY_REMOVED = (errno.ENOENT, errno.ESTALE)


def cache_key(alignments: Sequence[Alignment]) -> str:
    """Return the SHA-256 (hexadecimal) of the schema version and the canonical input.

    The canonical input is, for each alignment in order, the query's header, the aligned letters, the position
    and size of each deletion, and the species of the other rows if any is known. The file's format,
    compression and line lengths do not matter, nor does anything else in the headers of other rows.
    """
    digest = hashlib.sha256(f"{FORMAT}\0{SCHEMA_VERSION}\0{len(alignments)}\0".encode())
    for alignment in alignments:
        header = alignment.names[0].encode()
        rows, columns = alignment.letters.shape
        positions = np.flatnonzero(alignment.deletions)
        digest.update(f"{rows}\0{columns}\0{len(positions)}\0{len(header)}\0".encode())
        digest.update(header)
        digest.update(np.ascontiguousarray(alignment.letters).data)
        digest.update(positions.astype("<i8").tobytes())
        digest.update(alignment.deletions.reshape(-1)[positions].astype("<u4").tobytes())
        if any(alignment.species[1:]):
            species = "\0".join(alignment.species[1:]).encode()
            digest.update(f"species\0{len(species)}\0".encode())
            digest.update(species)
    return digest.hexdigest()


class FeatureCache:
    """A cache of deterministic features, keyed by their input's content.

    Args:
        root: the cache's folder, which is created when the first entry is stored.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def path(self, key: str) -> Path:
        """Return the path of a key's entry, which need not exist."""
        return entry_path(self.root, key)

    def store(self, key: str, features: Mapping[str, np.ndarray], sources: Sequence[str | None] = ()) -> Path:
        """Write an entry atomically, replacing an existing one, and return its path.

        Args:
            key: result of `cache_key`.
            features: all of `CACHED_FEATURES` or `CACHED_COMPLEX_FEATURES` in `features.alphafold2.schema`.
            sources: files that the features were computed from, recorded for information.

        Raises:
            UnwritableFolder, OSError: the cache cannot be written; see `writing_cache`.
        """
        path, content = self.path(key), encode_entry(key, features, sources)
        with writing_cache(self.root):
            remove_abandoned_once(self.root)
            try:
                self._write(path, content)
            except OSError as error:
                if error.errno not in _TEMPORARY_REMOVED:
                    raise
                self._write(path, content)
        return path

    def _write(self, path: Path, content: bytes) -> None:
        with atomic_write(path, "wb", temporary_prefix(self.root, path.stem)) as stream:
            stream.write(content)

    def load(self, key: str, verify: bool = True) -> dict[str, np.ndarray]:
        """Load the features of an entry.

        Raises:
            FileNotFoundError: the cache has no such entry.
            CorruptEntryError: the entry is damaged or has a different key.
        """
        return read_entry(self.path(key), key, verify)

    def load_or_make(
        self, alignments: Sequence[Alignment], overwrite: bool = False, verify: bool = True
    ) -> tuple[dict[str, np.ndarray], bool]:
        """Load the features of alignments, or compute and store them.

        Returns:
            The features, and whether they were loaded from the cache.

        Raises:
            InputError: the alignments have different queries.
            CorruptEntryError: the entry is damaged; `overwrite` replaces it.
        """
        sources = [alignment.source for alignment in alignments]
        return self.load_or_compute(
            cache_key(alignments), lambda: make_features(alignments), sources, overwrite, verify
        )

    def load_or_compute(
        self,
        key: str,
        compute: Callable[[], dict[str, np.ndarray]],
        sources: Sequence[str | None],
        overwrite: bool,
        verify: bool,
    ) -> tuple[dict[str, np.ndarray], bool]:
        """Load the features of a key, or compute and store them.

        Args:
            key: hash of everything that the features depend on.
            compute: returns the features.
            sources: see `store`.
            overwrite: see `load_or_make`.
            verify: see `load_or_make`.

        Returns:
            See `load_or_make`; raises the same exceptions.
        """
        if not overwrite:
            # if the cache cannot be used at all, storing says so
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                return self.load(key, verify), True
        features = compute()
        self.store(key, features, sources)
        return features, False


def find_problem(entry: CacheEntry) -> str | None:
    """Read a whole entry and return the reason why it is invalid; None if it is valid or was removed."""
    if entry.problem is not None:
        return entry.problem
    with contextlib.suppress(FileNotFoundError):
        try:
            read_entry(entry.path, entry.key)
        except CorruptEntryError as error:
            return error.reason
    return None
