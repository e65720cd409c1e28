"""Files of profiles that were searched with, to search with them again.

A file is a NumPy archive (.npz) without pickled objects. For the k-th profile it has `residues_k` (uint8
[length], letter codes of the query) and `profile_k` (int16 [length, 32], in the matrix's unit); `about`
(uint8) is JSON: format, version, alphabet, substitution matrix, and of each profile its query's header, its
length, whether it is that of a family, and a SHA-256 of it all.
"""

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any

import numpy as np

from msa.alphabet import LETTERS, decode
from msa.errors import InputError
from msa.io.compression import read_bytes
from msa.io.fasta import FastaRecord
from msa.profile.matrices import DEFAULT_MATRIX, PROFILE_COLUMNS
from msa.profile.pssm import ProfileQuery
from msa.search.engine import QueryProfile

FORMAT, VERSION = "foldcli profiles", 1
_MAGIC = b"PK\x03\x04"
_ARRAY_HEADER = 256
_MOST_ABOUT = 1 << 28


def is_saved(data: bytes) -> bool:
    """Whether this is the content of a NumPy archive."""
    return data.startswith(_MAGIC)


class ProfileWriter:
    """Writes profiles to a stream as they come; `with` ends the file.

    Args:
        stream: binary; nothing is whole before the end of the block.
        matrix: the substitution matrix in whose unit the scores are.
    """

    def __init__(self, stream: IO[bytes], matrix: str = DEFAULT_MATRIX) -> None:
        self._matrix = matrix
        self._archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED)
        self._about: list[dict[str, Any]] = []

    def __enter__(self) -> "ProfileWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            about = {
                "format": FORMAT,
                "version": VERSION,
                "alphabet": LETTERS,
                "matrix": self._matrix,
                "profiles": self._about,
            }
            self._add("about", np.frombuffer(json.dumps(about).encode(), np.uint8))
        self._archive.close()

    def add(self, query: FastaRecord, used: QueryProfile, of_family: bool = True) -> None:
        """Write one more: what a query was searched with, and whether that is the profile of a family."""
        number = len(self._about)
        about = {"header": query.header, "length": len(used.codes), "of_family": of_family}
        profile = used.profile.astype("<i2")
        self._add(f"residues_{number}", used.codes)
        self._add(f"profile_{number}", profile)
        self._about.append(about | {"sha256": _checksum(about, used.codes, profile)})

    def _add(self, name: str, array: np.ndarray) -> None:
        content = io.BytesIO()
        np.lib.format.write_array(content, np.ascontiguousarray(array), allow_pickle=False)
        # a date of its own would make equal profiles unequal files
        entry = zipfile.ZipInfo(f"{name}.npy")
        self._archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED)


def read_profiles(path: str | os.PathLike[str], matrix: str = DEFAULT_MATRIX) -> list[ProfileQuery]:
    """The profiles of a file; `-` is standard input.

    Args:
        path: the file.
        matrix: that of the search.

    Raises:
        InputError: not such a file, of another matrix, from a newer version, or damaged.
        OSError: the file cannot be read.
    """
    data = read_bytes(path)
    if not is_saved(data):
        raise InputError("no profiles saved by --save-profile", path)
    return list(parse_profiles(data, os.fspath(path), matrix))


def parse_profiles(data: bytes, name: str, matrix: str = DEFAULT_MATRIX) -> Iterator[ProfileQuery]:
    """Like `read_profiles`, from the file's content; errors call it `name`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            about = _about(archive, name)
            if about["matrix"] != matrix:
                raise InputError(
                    f"saved by a search with --matrix {about['matrix']}: search with that, too", name
                )
            for number, entry in enumerate(about["profiles"]):
                yield _profile(archive, number, entry, name)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"damaged or truncated profiles ({error})", name) from None
    except (KeyError, TypeError, ValueError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, InputError) and error.path is not None:
            raise
        raise InputError(f"damaged profiles: {error}", name) from None


def _about(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    if "about.npy" not in archive.namelist():
        raise InputError("no profiles saved by --save-profile", name)
    about = json.loads(_array(archive, "about", np.uint8, (-1,)).tobytes())
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError("no profiles saved by --save-profile", name)
    version = about.get("version")
    if isinstance(version, int) and version > VERSION:
        raise InputError(
            f"version {version} is newer than this foldcli reads ({VERSION}): update foldcli", name
        )
    if version != VERSION or about.get("alphabet") != LETTERS or not about.get("profiles"):
        raise ValueError("what they say of themselves makes no sense")
    return about


def _profile(archive: zipfile.ZipFile, number: int, entry: dict[str, Any], name: str) -> ProfileQuery:
    length = int(entry["length"])
    codes = _array(archive, f"residues_{number}", np.uint8, (length,))
    profile = _array(archive, f"profile_{number}", np.dtype("<i2"), (length, PROFILE_COLUMNS))
    header = str(entry["header"])
    of_family = entry["of_family"] is True
    about = {"header": header, "length": length, "of_family": of_family}
    if entry["sha256"] != _checksum(about, codes, profile):
        raise ValueError(f"the SHA-256 of the profile of {header[:40]!r} is not the one that was written")
    if np.any(codes >= len(LETTERS)):
        raise ValueError(f"a residue of the profile of {header[:40]!r} is no letter")
    made_from = f"an earlier search, saved in {name}"
    return ProfileQuery(header, decode(codes), profile.astype(np.int16), made_from, of_family)


def _array(
    archive: zipfile.ZipFile, name: str, dtype: "np.dtype[Any] | type", shape: tuple[int, ...]
) -> np.ndarray:
    """One array, of which no more is unpacked than it may have."""
    dtype = np.dtype(dtype)
    entry = archive.getinfo(f"{name}.npy")
    most = _MOST_ABOUT if shape == (-1,) else int(np.prod(shape)) * dtype.itemsize
    if not 0 <= entry.file_size <= most + _ARRAY_HEADER:
        raise ValueError(f"{name} has {entry.file_size} bytes")
    array = np.lib.format.read_array(io.BytesIO(archive.read(entry)), allow_pickle=False)
    if array.dtype != dtype or (array.shape != shape and (shape != (-1,) or array.ndim != 1)):
        raise ValueError(f"{name} is {array.dtype} {list(array.shape)}")
    return np.ascontiguousarray(array)


def _checksum(about: dict[str, Any], codes: np.ndarray, profile: np.ndarray) -> str:
    text = json.dumps(about, sort_keys=True).encode()
    return hashlib.sha256(text + codes.tobytes() + profile.tobytes()).hexdigest()
