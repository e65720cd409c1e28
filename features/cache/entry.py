"""Cache entries: the file format, and the listing of a cache's entries.

An entry is a safetensors file of one block of bytes: all features, compressed by zstd. The metadata in its
header describes the features, and starts with a checksum of all other bytes of the file.

This module does not import numba, so that a cache can be listed quickly.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import xxhash
import zstandard

from features.alphafold2.schema import CACHED_COMPLEX_FEATURES, CACHED_FEATURES, FORMAT_VERSION
from msa.base.errors import InputError

# key of the metadata that identifies a safetensors file as an entry, in every version of the format
FORMAT = "foldcli.features"
SUFFIX = ".safetensors"
_BLOCK, _LEVEL = "features", 9
# the eight bytes of the header's length are followed by this and the digits of the checksum
_HEADER_START = b'{"__metadata__":{"%s":"{\\"xxh3_128\\": \\"' % FORMAT.encode()
_CHECKSUM = slice(8 + len(_HEADER_START), 8 + len(_HEADER_START) + 32)


class CorruptEntryError(InputError):
    """A cache entry that is truncated, altered, foreign, or of another format version."""


def encode_entry(key: str, features: Mapping[str, np.ndarray], sources: Sequence[str | None]) -> bytes:
    """Return the content of an entry's file; the same arguments give the same bytes.

    Args:
        key: result of `features.cache.cache.cache_key`.
        features: all features in `features.alphafold2.schema.CACHED_FEATURES` or `CACHED_COMPLEX_FEATURES`.
        sources: files that the features were computed from; None or "-" for other sources.

    Raises:
        ValueError: a feature is missing, or not in the schema.
    """
    schema = CACHED_COMPLEX_FEATURES if "row_entity" in features else CACHED_FEATURES
    if mismatched := schema.keys() ^ features.keys():
        raise ValueError(f"features do not match the schema: {', '.join(sorted(mismatched))}")
    # the widest types first, so that all tensors are aligned
    names = sorted(features, key=lambda name: (-_alignment(features[name]), name))
    metadata = {
        "xxh3_128": "0" * 32,
        "version": FORMAT_VERSION,
        "key": key,
        "name": features["domain_name"][0].decode(errors="replace"),
        "sources": [_absolute_path(source) for source in sources],
        "tensors": {name: [features[name].dtype.str, list(features[name].shape)] for name in names},
    }
    tensors = b"".join(features[name].tobytes() for name in names)
    block = np.frombuffer(zstandard.ZstdCompressor(_LEVEL).compress(tensors), np.uint8)
    # a single metadata value, because safetensors writes several in random order
    data = bytearray(safetensors.numpy.save({_BLOCK: block}, {FORMAT: json.dumps(metadata)}))
    data[_CHECKSUM] = _checksum(data)
    return bytes(data)


def read_entry(
    path: str | os.PathLike[str], key: str | None = None, verify: bool = True
) -> dict[str, np.ndarray]:
    """Read the features in an entry's file, inside or outside a cache; the arrays are writable.

    Args:
        path: the file.
        key: the key that the entry must have, or None to accept any.
        verify: whether to compare the checksum. Without it, damage that leaves the entry readable is not
            detected.

    Raises:
        CorruptEntryError: the entry is truncated, altered, foreign, or has another format version or key.
    """
    data = Path(path).read_bytes()
    with corrupt_entry_errors(path):
        header, metadata = _parse_header(data)
        if verify and data[_CHECKSUM] != _checksum(data):
            raise CorruptEntryError("damaged cache entry (checksum does not match)")
        if key is not None and metadata["key"] != key:
            raise CorruptEntryError(f"cache entry has a different key, {metadata['key']}")
        start = 8 + int.from_bytes(data[:8], "little")
        first, last = header[_BLOCK]["data_offsets"]
        return _decode(memoryview(data)[start + first : start + last], metadata["tensors"])


def _decode(block: memoryview, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the tensors in a block, given type and shape of each."""
    content = np.empty(zstandard.frame_content_size(block), np.uint8)
    with zstandard.ZstdDecompressor().stream_reader(block) as reader:
        if reader.readinto(content.data) != len(content):
            raise ValueError("the block is truncated")
    features, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        # an object dtype would turn bytes from the file into pointers
        if np.dtype(dtype).kind not in "iufS":
            raise ValueError(f"a tensor has the type {dtype}")
        features[name] = np.ndarray(shape, dtype, content, end)
        end += features[name].nbytes
    if end != len(content):
        raise ValueError("the block does not match the tensors")
    return features


def _alignment(value: np.ndarray) -> int:
    """Return the alignment of a tensor's elements in bytes."""
    return 1 if value.dtype.kind == "S" else value.itemsize


@contextlib.contextmanager
def corrupt_entry_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert exceptions of parsers into errors about the entry's file.

    Raises:
        CorruptEntryError: any exception was raised.
    """
    try:
        yield
    except CorruptEntryError as error:
        raise CorruptEntryError(error.reason, path) from None
    except Exception as error:  # parsers may raise anything if the entry is damaged
        raise CorruptEntryError(f"damaged cache entry ({type(error).__name__}: {error})", path) from error


def read_entry_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read an entry's metadata without checking the rest of the file.

    Returns:
        At least version, key, name (the query's header), sources, and tensors (type and shape by name).

    Raises:
        CorruptEntryError: the header is damaged, or of another format version.
    """
    with Path(path).open("rb") as stream:
        data = stream.read(8)
        # a damaged file may state any length
        length = min(int.from_bytes(data, "little"), os.fstat(stream.fileno()).st_size)
        data += stream.read(length)
    with corrupt_entry_errors(path):
        return _parse_header(data)[1]


def is_complex_entry(metadata: Mapping[str, Any]) -> bool:
    """Return whether an entry with these metadata is of a complex (`schema.CACHED_COMPLEX_FEATURES`)."""
    tensors = metadata.get("tensors")
    return isinstance(tensors, dict) and "row_entity" in tensors


def _parse_header(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header of a safetensors file without its metadata, and the metadata of the entry."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise CorruptEntryError("damaged cache entry (truncated)")
    header = json.loads(data[8 : 8 + length])
    all_metadata = header.pop("__metadata__", {})
    if FORMAT not in all_metadata:
        raise CorruptEntryError("not an entry of the feature cache")
    metadata: dict[str, Any] = json.loads(all_metadata[FORMAT])
    # the first version had "schema" instead of "version"
    version = metadata.get("version", metadata.get("schema"))
    if version != FORMAT_VERSION:
        raise CorruptEntryError(
            f"cache entry of format version {version}; this program reads {FORMAT_VERSION}"
        )
    if data[8 : _CHECKSUM.start] != _HEADER_START:
        raise CorruptEntryError("damaged cache entry (no checksum)")
    return header, metadata


def _checksum(data: bytes | bytearray) -> bytes:
    """Return the xxh3 checksum (128 bits, hexadecimal) of a file without the digits of its checksum."""
    view = memoryview(data)
    digest = xxhash.xxh3_128(view[: _CHECKSUM.start])
    digest.update(view[_CHECKSUM.stop :])
    return digest.hexdigest().encode()


def _absolute_path(source: str | None) -> str | None:
    return source if source in (None, "-") else str(Path(source).absolute())


def entry_path(root: Path, key: str) -> Path:
    """Return the path of a key's entry in a cache."""
    return root / key[:2] / f"{key}{SUFFIX}"


def entry_keys(root: Path) -> Iterator[str]:
    """Yield the keys of all entries of a cache, sorted."""
    for path in sorted(root.glob(f"[0-9a-f][0-9a-f]/*{SUFFIX}")):
        yield path.stem


@dataclass(frozen=True)
class CacheEntry:
    """An entry as described by its file's name, size and header.

    Args:
        size: bytes.
        written: modification time, in seconds since 1970.
        metadata: result of `read_entry_metadata`; empty if the header cannot be read.
        problem: the reason why the header cannot be read, or None.
    """

    path: Path
    size: int
    written: float
    metadata: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def key(self) -> str:
        """The entry's key, by its file name."""
        return self.path.stem

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of the alignment and residues of the query; (0, 0) if the header cannot be read.

        Of a complex, the residues of the distinct chains.
        """
        rows, residues = self.metadata["tensors"]["msa"][1] if self.metadata else (0, 0)
        return rows, residues

    @property
    def sources(self) -> list[str]:
        """The files that the features were computed from."""
        return [source for source in self.metadata.get("sources", []) if source not in (None, "-")]

    @property
    def sources_are_gone(self) -> bool:
        """True if the features were computed from files that are all gone."""
        return bool(self.sources) and not any(Path(source).exists() for source in self.sources)


def list_entries(root: Path) -> Iterator[CacheEntry]:
    """Yield all entries of a cache, sorted by key; only the headers are read."""
    for key in entry_keys(root):
        path = entry_path(root, key)
        # another process may have removed it since the folder was read
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            try:
                yield CacheEntry(path, status.st_size, status.st_mtime, read_entry_metadata(path))
            except CorruptEntryError as error:
                yield CacheEntry(path, status.st_size, status.st_mtime, problem=error.reason)
