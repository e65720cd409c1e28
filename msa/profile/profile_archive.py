"""Files of search profiles, written by --save-profile and read as queries.

A file is a NumPy archive (.npz) without pickled objects. Profile k has `residues_k` (uint8 [length], letter
codes of the query) and `profile_k` (int16 [length, 32], in the unit of the substitution matrix). `about`
(uint8) is JSON: format, version, alphabet, substitution matrix and, for each profile, its query's header, its
length, whether it is the profile of a family, and a SHA-256 of these values and the arrays.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Annotated, Final, Literal

import msgspec
import numpy as np

from msa.alphabet import LETTERS, decode
from msa.base.errors import InputError
from msa.base.json_files import parse_json, to_record
from msa.io.arrays import read_array, write_array
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord, clean_header
from msa.profile.matrices import BLOSUM62, PROFILE_COLUMNS
from msa.profile.pssm import ProfileRecord, QueryProfile

FORMAT = "foldcli profiles"
VERSION: Final = 1
_MAGIC = b"PK\x03\x04"
_MAX_LENGTH = 1 << 24
_NOT_PROFILES = "not a file of profiles saved by --save-profile"


def is_profile_archive(data: bytes) -> bool:
    """Return whether this is the content of a NumPy archive."""
    return data.startswith(_MAGIC)


class _Entry(msgspec.Struct):
    """A profile in the description of a file."""

    header: str
    length: Annotated[int, msgspec.Meta(ge=1, le=_MAX_LENGTH)]
    of_family: bool
    sha256: str

    def checksum(self, codes: np.ndarray, profile: np.ndarray) -> str:
        """Return the SHA-256 of the other values and the arrays."""
        values = {"header": self.header, "length": self.length, "of_family": self.of_family}
        text = json.dumps(values, sort_keys=True).encode()
        return hashlib.sha256(text + codes.tobytes() + profile.tobytes()).hexdigest()


class _Description(msgspec.Struct, tag_field="format", tag=FORMAT):
    """The content of `about`."""

    version: Literal[1]
    alphabet: str
    matrix: str
    profiles: Annotated[list[_Entry], msgspec.Meta(min_length=1)]


class ProfileWriter:
    """A writer of profiles, one at a time; leaving the `with` block completes the file.

    Args:
        stream: binary stream; the file is invalid until the end of the block.
        matrix: substitution matrix that defines the unit of the scores.
    """

    def __init__(self, stream: IO[bytes], matrix: str = BLOSUM62) -> None:
        self._matrix = matrix
        self._archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED)
        self._entries: list[_Entry] = []

    def __enter__(self) -> "ProfileWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            about = msgspec.to_builtins(_Description(VERSION, LETTERS, self._matrix, self._entries))
            write_array(self._archive, "about", np.frombuffer(json.dumps(about).encode(), np.uint8))
        self._archive.close()

    def add(self, query: FastaRecord, profile: QueryProfile, of_family: bool = True) -> None:
        """Write the profile of a query.

        Args:
            query: the query.
            profile: codes and scores that the query was searched with.
            of_family: whether the profile was computed from a family of sequences.
        """
        number = len(self._entries)
        entry = _Entry(query.header, len(profile.codes), of_family, "")
        scores = profile.profile.astype("<i2")
        write_array(self._archive, f"residues_{number}", profile.codes)
        write_array(self._archive, f"profile_{number}", scores)
        entry.sha256 = entry.checksum(profile.codes, scores)
        self._entries.append(entry)


def read_profiles(path: str | os.PathLike[str], matrix: str = BLOSUM62) -> list[ProfileRecord]:
    """Read the profiles of a file.

    Args:
        path: the file; `-` is standard input.
        matrix: substitution matrix of the search.

    Raises:
        InputError: not a file of profiles, saved with another matrix or by a newer version, or damaged.
        OSError: the file cannot be read.
    """
    data = read_bytes(path)
    if not is_profile_archive(data):
        raise InputError(_NOT_PROFILES, path)
    return list(parse_profiles(data, os.fspath(path), matrix))


def parse_profiles(data: bytes, name: str, matrix: str = BLOSUM62) -> Iterator[ProfileRecord]:
    """Parse the content of a file, called `name` in errors; see `read_profiles`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            about = _read_about(archive, name)
            if about.matrix != matrix:
                raise InputError(f"saved by a search with --matrix {about.matrix}; use the same matrix", name)
            for number, entry in enumerate(about.profiles):
                yield _read_profile(archive, number, entry, name)
    except InputError as error:
        if error.path is not None:
            raise
        raise InputError(f"damaged profiles: {error.reason}", name) from None
    except Exception as error:  # zipfile, zlib, numpy and json raise many classes for damaged data
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"damaged profiles: {reason:.200}", name) from None


def _read_about(archive: zipfile.ZipFile, name: str) -> _Description:
    if "about.npy" not in archive.namelist():
        raise InputError(_NOT_PROFILES, name)
    about = parse_json(read_array(archive, "about", np.uint8, (-1,)).tobytes())
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(_NOT_PROFILES, name)
    version = about.get("version")
    if isinstance(version, int) and version > VERSION:
        raise InputError(
            f"version {version} is newer than this foldcli reads ({VERSION}): update foldcli", name
        )
    description = to_record(about, _Description)
    if description.alphabet != LETTERS:
        raise ValueError("unknown residue alphabet")
    return description


def _read_profile(archive: zipfile.ZipFile, number: int, entry: _Entry, name: str) -> ProfileRecord:
    codes = read_array(archive, f"residues_{number}", np.uint8, (entry.length,))
    profile = read_array(archive, f"profile_{number}", np.dtype("<i2"), (entry.length, PROFILE_COLUMNS))
    header = clean_header(entry.header)
    if entry.sha256 != entry.checksum(codes, profile):
        raise ValueError(f"the SHA-256 of the profile of {header[:40]!r} does not match")
    if np.any(codes >= len(LETTERS)):
        raise ValueError(f"the profile of {header[:40]!r} has an invalid residue")
    source = f"an earlier search, saved in {name}"
    scores = profile.astype(np.int16)
    return ProfileRecord(header, decode(codes), scores, source, entry.of_family, location=(name, None))
