"""The feature cache: one file per target, named by the content it was made from.

An entry is a file at `CACHE/ab/abcdef….safetensors` (`features.entry`). It is written under a temporary name,
fsynced and renamed, so that readers on any file system see it whole or not at all, and any number of writers
may race: they all write the same tensors. `features.temporaries` says what becomes of killed writers' files.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from features.deterministic import make_features
from features.entry import FORMAT, CorruptEntryError, encode_entry, entry_metadata, read_entry
from features.schema import SCHEMA_VERSION
from features.temporaries import temporary_prefix, tidy_once
from msa.io.alignments import Alignment
from msa.io.atomic import atomic_write

__all__ = ["CorruptEntryError", "FeatureCache", "cache_key", "entry_metadata", "read_entry"]

_SUFFIX = ".safetensors"
# what a writer meets whose temporary file another one took for that of a killed writer
_REMOVED = (errno.ENOENT, errno.ESTALE)


def cache_key(alignments: Sequence[Alignment]) -> str:
    """SHA-256 (hexadecimal) of the schema version and the canonical input.

    Canonical input is, per alignment in order, the query's header, the aligned letters, and the position and
    size of every deletion: not the file's format, compression, line lengths, or the headers of other rows.
    """
    digest = hashlib.sha256(f"{FORMAT}\0{SCHEMA_VERSION}\0{len(alignments)}\0".encode())
    for alignment in alignments:
        header = alignment.names[0].encode()
        rows, columns = alignment.letters.shape
        places = np.flatnonzero(alignment.deletions)
        digest.update(f"{rows}\0{columns}\0{len(places)}\0{len(header)}\0".encode())
        digest.update(header)
        digest.update(np.ascontiguousarray(alignment.letters).data)
        digest.update(places.astype("<i8").tobytes())
        digest.update(alignment.deletions.reshape(-1)[places].astype("<u4").tobytes())
    return digest.hexdigest()


class FeatureCache:
    """Deterministic features by content.

    Args:
        root: the cache's folder; made when the first entry is stored.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def path(self, key: str) -> Path:
        """Where the entry of a key lies, or would."""
        return self.root / key[:2] / f"{key}{_SUFFIX}"

    def store(self, key: str, features: Mapping[str, np.ndarray], sources: Sequence[str | None] = ()) -> Path:
        """Write an entry, whole or not at all; one that is there is replaced.

        Args:
            key: from `cache_key`.
            features: all of `features.schema.CACHED`.
            sources: the files the features were made from, for people to read.

        Raises:
            OSError: the cache cannot be written.
        """
        path, content = self.path(key), encode_entry(key, features, sources)
        tidy_once(self.root)
        try:
            self._write(path, content)
        except OSError as error:
            if error.errno not in _REMOVED:
                raise
            self._write(path, content)
        return path

    def _write(self, path: Path, content: bytes) -> None:
        with atomic_write(path, "wb", temporary_prefix(self.root, path.stem)) as stream:
            stream.write(content)

    def load(self, key: str, verify: bool = True) -> dict[str, np.ndarray]:
        """The features of an entry.

        Args:
            key: from `cache_key`.
            verify: as for `features.entry.read_entry`.

        Raises:
            FileNotFoundError: there is none.
            CorruptEntryError: it is damaged, or not what its name says.
        """
        return read_entry(self.path(key), key, verify)

    def load_or_make(
        self, alignments: Sequence[Alignment], overwrite: bool = False, verify: bool = True
    ) -> tuple[dict[str, np.ndarray], bool]:
        """The features of an input, and whether the cache had them; made and stored if not.

        Args:
            alignments: as for `make_features`.
            overwrite: make and store them even when they are there.
            verify: as for `features.entry.read_entry`.

        Raises:
            InputError: alignments of different queries.
            CorruptEntryError: the entry is damaged; `overwrite` replaces it.
            OSError: the cache cannot be read or written.
        """
        key = cache_key(alignments)
        if not overwrite:
            with contextlib.suppress(FileNotFoundError):
                return self.load(key, verify), True
        features = make_features(alignments)
        self.store(key, features, [alignment.source for alignment in alignments])
        return features, False

    def keys(self) -> Iterator[str]:
        """The keys of all entries, sorted."""
        for path in sorted(self.root.glob(f"[0-9a-f][0-9a-f]/*{_SUFFIX}")):
            yield path.stem
