"""The file of a cache entry: one target's features, what they were made from, and a checksum over all of it.

A safetensors file of two blocks of bytes (`features.encoding`). Its header begins with the checksum, which
covers every other byte of the file, so that reading checks it before anything is unpacked.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import xxhash

from features.encoding import decode, encode
from features.schema import CACHED, FORMAT_VERSION
from msa.errors import InputError

# names the metadata that makes a safetensors file an entry, in every version of the format
FORMAT = "foldcli.features"
# the header's length is eight bytes; then, in entries of this version, this and the checksum's digits
_START = b'{"__metadata__":{"%s":"{\\"xxh3_128\\": \\"' % FORMAT.encode()
_DIGITS = slice(8 + len(_START), 8 + len(_START) + 32)


class CorruptEntryError(InputError):
    """A cache entry that is truncated, altered, foreign, or of another format version."""


def encode_entry(key: str, features: Mapping[str, np.ndarray], sources: Sequence[str | None]) -> bytes:
    """The content of an entry's file; the same arguments give the same bytes.

    Args:
        key: from `features.cache.cache_key`.
        features: all of `features.schema.CACHED`.
        sources: the files the features were made from.

    Raises:
        ValueError: a feature is missing, or not in the schema.
    """
    if missing := CACHED.keys() ^ features.keys():
        raise ValueError(f"features do not match the schema: {', '.join(sorted(missing))}")
    blocks, layout = encode(features)
    said = {
        "xxh3_128": "0" * 32,
        "version": FORMAT_VERSION,
        "key": key,
        "name": features["domain_name"][0].decode(errors="replace"),
        "sources": [_place(source) for source in sources],
        **layout,
    }
    stored = {name: np.frombuffer(block, np.uint8) for name, block in blocks.items()}
    # one value for all: safetensors writes several in an order that differs from run to run
    data = bytearray(safetensors.numpy.save(stored, {FORMAT: json.dumps(said)}))
    data[_DIGITS] = _checksum(data)
    return bytes(data)


def read_entry(
    path: str | os.PathLike[str], key: str | None = None, verify: bool = True
) -> dict[str, np.ndarray]:
    """The features in an entry's file, wherever it lies.

    Args:
        path: the file.
        key: the key it must have been stored under; None takes any.
        verify: compare every byte with the checksum. Without, damage that leaves a readable entry goes
            unnoticed; all else is found still.

    Raises:
        CorruptEntryError: truncated, altered, foreign, of another format version, or of another key.
        OSError: it cannot be read.
    """
    data = Path(path).read_bytes()
    try:
        header, said = _read_header(data)
        if verify and data[_DIGITS] != _checksum(data):
            raise CorruptEntryError("damaged cache entry (checksum does not match)")
        if key is not None and said["key"] != key:
            raise CorruptEntryError(f"cache entry holds another key, {said['key']}")
        blocks = memoryview(data)[8 + int.from_bytes(data[:8], "little") :]
        return decode({name: blocks[slice(*header[name]["data_offsets"])] for name in header}, said)
    except CorruptEntryError as error:
        raise CorruptEntryError(error.reason, path) from None
    except Exception as error:  # whatever a parser stumbles on, the entry is at fault
        raise CorruptEntryError(f"damaged cache entry ({type(error).__name__}: {error})", path) from error


def entry_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What an entry says about itself: version, key, name (the query's
    header), sources, tensors; the file is not checked.

    Raises:
        CorruptEntryError: the header cannot be read, or is of another format version.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as stream:
        data = stream.read(8)
        # a damaged length may be any number
        length = min(int.from_bytes(data, "little"), os.fstat(stream.fileno()).st_size)
        data += stream.read(length)
    try:
        return _read_header(data)[1]
    except CorruptEntryError as error:
        raise CorruptEntryError(error.reason, path) from None
    except Exception as error:  # as above
        raise CorruptEntryError(f"damaged cache entry ({type(error).__name__}: {error})", path) from error


def _read_header(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header of a safetensors file without its metadata, and the metadata that makes it an entry.

    Raises:
        CorruptEntryError: there is none, or it is of another format version.
        ValueError: it is no JSON.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise CorruptEntryError("damaged cache entry (truncated)")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    if FORMAT not in metadata:
        raise CorruptEntryError("not an entry of the feature cache")
    said: dict[str, Any] = json.loads(metadata[FORMAT])
    # the first version said "schema" where later ones say "version"
    version = said.get("version", said.get("schema"))
    if version != FORMAT_VERSION:
        raise CorruptEntryError(
            f"cache entry of format version {version}; this program reads {FORMAT_VERSION}"
        )
    if data[8 : _DIGITS.start] != _START:
        raise CorruptEntryError("damaged cache entry (no checksum)")
    return header, said


def _checksum(data: bytes | bytearray) -> bytes:
    """xxh3 (128 bits, hexadecimal) of a file but for the digits of its checksum."""
    whole = memoryview(data)
    digest = xxhash.xxh3_128(whole[: _DIGITS.start])
    digest.update(whole[_DIGITS.stop :])
    return digest.hexdigest().encode()


def _place(source: str | None) -> str | None:
    """A source's full path; standard input and input that was never a file have none."""
    return source if source in (None, "-") else str(Path(source).absolute())
