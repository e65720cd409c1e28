"""The feature cache: one file per target, named by the content it was made from.

An entry is a safetensors file at `CACHE/ab/abcdef….safetensors`, its tensors as `features.encoding` makes
them; the header's metadata says how each is stored, what the entry was made from, and a SHA-256 over all of
that. An entry is written under a temporary name, fsynced and renamed, so that readers on any file system
see it whole or not at all, and any number of writers may race: they all write the same tensors.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from features.deterministic import make_features
from features.encoding import decode, encode
from features.schema import CACHED, FORMAT_VERSION, SCHEMA_VERSION
from msa.alignments import Alignment
from msa.atomic import atomic_write
from msa.errors import InputError

_SUFFIX = ".safetensors"
# names the metadata that makes a safetensors file an entry
_FORMAT = "foldcli.features"
# bytes; those of real entries are some five thousand and the paths of their sources
_LONGEST_HEADER = 16 << 20


class CorruptEntryError(InputError):
    """A cache entry that is truncated, altered, foreign, or of another format version."""


def cache_key(alignments: Sequence[Alignment]) -> str:
    """SHA-256 (hexadecimal) of the schema version and the canonical input.

    Canonical input is, per alignment in order, the query's header, the aligned letters, and the position and
    size of every deletion: not the file's format, compression, line lengths, or the headers of other rows.
    """
    digest = hashlib.sha256(f"{_FORMAT}\0{SCHEMA_VERSION}\0{len(alignments)}\0".encode())
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
        path = self.path(key)
        with atomic_write(path, "wb") as stream:
            stream.write(_encode(key, features, sources))
        return path

    def load(self, key: str) -> dict[str, np.ndarray]:
        """The features of an entry.

        Raises:
            FileNotFoundError: there is none.
            CorruptEntryError: it is damaged, or not what its name says.
        """
        return read_entry(self.path(key), key)

    def load_or_make(
        self, alignments: Sequence[Alignment], overwrite: bool = False
    ) -> tuple[dict[str, np.ndarray], bool]:
        """The features of an input, and whether the cache had them; made and stored if not.

        Args:
            alignments: as for `make_features`.
            overwrite: make and store them even when they are there.

        Raises:
            InputError: alignments of different queries.
            CorruptEntryError: the entry is damaged; `overwrite` replaces it.
            OSError: the cache cannot be read or written.
        """
        key = cache_key(alignments)
        if not overwrite:
            with contextlib.suppress(FileNotFoundError):
                return self.load(key), True
        features = make_features(alignments)
        self.store(key, features, [alignment.source for alignment in alignments])
        return features, False

    def keys(self) -> Iterator[str]:
        """The keys of all entries, sorted."""
        for path in sorted(self.root.glob(f"??/*{_SUFFIX}")):
            yield path.stem


def read_entry(path: str | os.PathLike[str], key: str | None = None) -> dict[str, np.ndarray]:
    """The features in an entry's file, wherever it lies; every byte is checked.

    Args:
        path: the file.
        key: the key it must have been stored under; None takes any.

    Raises:
        CorruptEntryError: truncated, altered, foreign, of another format version, or of another key.
        OSError: it cannot be read.
    """
    data = Path(path).read_bytes()
    try:
        said = _read_header(data)
        stored = safetensors.numpy.load(data)
        _check(said, stored, key)
        return {name: decode(stored[name], how) for name, how in said["encoding"].items()}
    except CorruptEntryError as error:
        raise CorruptEntryError(error.reason, path) from None
    except Exception as error:  # whatever a parser stumbles on, the entry is at fault
        raise CorruptEntryError(f"damaged cache entry ({type(error).__name__}: {error})", path) from error


def entry_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What an entry says about itself: version, key, sources, encoding, sha256; the checksum is not checked.

    Raises:
        CorruptEntryError: the header cannot be read.
        OSError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            start = stream.read(8)
            return _read_header(start + stream.read(min(int.from_bytes(start, "little"), _LONGEST_HEADER)))
    except CorruptEntryError as error:
        raise CorruptEntryError(error.reason, path) from None
    except ValueError as error:
        raise CorruptEntryError(f"damaged cache entry ({error})", path) from error


def _encode(key: str, features: Mapping[str, np.ndarray], sources: Sequence[str | None]) -> bytes:
    if missing := CACHED.keys() ^ features.keys():
        raise ValueError(f"features do not match the schema: {', '.join(sorted(missing))}")
    stored, encoding = {}, {}
    for name in sorted(features):
        stored[name], encoding[name] = encode(features[name])
    said: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "key": key,
        "sources": [_place(source) for source in sources],
        "encoding": encoding,
    }
    said["sha256"] = _digest(said, stored)
    # one value for all: safetensors writes several in an order that differs from run to run
    return safetensors.numpy.save(stored, {_FORMAT: json.dumps(said, sort_keys=True)})


def _place(source: str | None) -> str | None:
    """A source's full path; standard input and input that was never a file have none."""
    return source if source in (None, "-") else str(Path(source).absolute())


def _digest(said: Mapping[str, Any], stored: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over everything an entry says and holds, but for the digest itself."""
    digest = hashlib.sha256()
    rest = {name: value for name, value in said.items() if name != "sha256"}
    digest.update(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(stored):
        value = stored[name]
        digest.update(f"\0{name}\0{value.dtype.str}\0{value.shape}\0".encode())
        digest.update(value.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _read_header(data: bytes) -> dict[str, Any]:
    """What an entry says about itself, from a safetensors file: eight bytes of header length, then JSON."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise CorruptEntryError("damaged cache entry (truncated)")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    if _FORMAT not in metadata:
        raise CorruptEntryError("not an entry of the feature cache")
    said: dict[str, Any] = json.loads(metadata[_FORMAT])
    return said


def _check(said: Mapping[str, Any], stored: Mapping[str, np.ndarray], key: str | None) -> None:
    # the first version said "schema" where later ones say "version"
    version = said.get("version", said.get("schema"))
    if version != FORMAT_VERSION:
        raise CorruptEntryError(
            f"cache entry of format version {version}; this program reads {FORMAT_VERSION}"
        )
    if said["sha256"] != _digest(said, stored):
        raise CorruptEntryError("damaged cache entry (checksum does not match)")
    if key is not None and said["key"] != key:
        raise CorruptEntryError(f"cache entry holds another key, {said['key']}")
