"""The files and types of MMseqs2 databases.

A database DB consists of
- DB, or DB.0, DB.1, …, which are read as one file: the entries;
- DB.index: key, offset and length of every entry, one per line;
- DB.dbtype: four bytes that give the type of the entries;
- DB_h with the same files: the headers.

A text entry ends in a line end and a NUL byte. In a padded database (`makepaddedseqdb`, `createdb --gpu`) an
entry has one number per residue, is padded to a multiple of four bytes and has no terminator.

This module does not import numba, so `is_mmseqs` is cheap for commands that only read FASTA files.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msa.base.errors import InputError

AMINO_ACIDS, PROFILES = 0, 2
_PADDED, _COMPRESSED = 8 << 16, 1 << 31
_NEWLINE = 10

PADDED_LETTERS = "ACDEFGHIKLMNPQRSTVWYX"
"""Letters in the order of their numbers in a padded database."""
PADDED_MASK = 32
"""Added to the number of a masked residue."""

_UNSUPPORTED_TYPES = {
    1: "holds nucleotides: translate them to proteins (mmseqs extractorfs, mmseqs translatenucs)",
    2: "holds profiles: give the sequence database, or one of their consensus (mmseqs profile2consensus)",
    5: "holds alignments: give the sequence database that was searched",
    6: "holds clusters: give the sequence database, or one of the representatives (mmseqs createsubdb)",
    7: "holds results of a prefilter: give the sequence database that was searched",
    9: "is an index: give the indexed database, without .idx",
    12: "holds text such as headers: give the sequence database",
}


@dataclass(frozen=True)
class EntryFormat:
    """The format of entries in their files.

    Attributes:
        terminator_length: bytes that the index counts for each entry in addition to its content.
        terminator: first byte of the terminator; None if the file has no terminators.
    """

    terminator_length: int
    terminator: int | None


TEXT, PADDED, PROFILE = EntryFormat(2, _NEWLINE), EntryFormat(2, None), EntryFormat(1, 0)


def is_mmseqs(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the name of an MMseqs2 database, complete or not."""
    name = os.fspath(path)
    indices = [Path(f"{name}.index"), Path(f"{name}_h.index")]
    return Path(f"{name}.dbtype").is_file() or all(index.is_file() for index in indices)


def entry_type(path: str | os.PathLike[str]) -> int:
    """Return the type of a database's entries, such as AMINO_ACIDS or PROFILES.

    Raises:
        InputError: no .dbtype, or a damaged one.
    """
    return _read_dbtype(os.fspath(path)) & 0xFFFF


def read_entry_format(name: str, expected_type: int) -> EntryFormat:
    """Return the format of a database's entries if they have the expected type.

    Raises:
        InputError: the database has another type or is compressed; the message suggests a remedy.
    """
    dbtype = _read_dbtype(name)
    entries, flags = dbtype & 0xFFFF, dbtype & 0x7FFF_0000
    if entries != expected_type:
        reason = f"of type {entries} holds no sequences: give the sequence database"
        raise InputError(f"this MMseqs2 database {_UNSUPPORTED_TYPES.get(entries, reason)}", name)
    if flags & ~(_PADDED if expected_type == AMINO_ACIDS else 0):
        raise InputError(f"an MMseqs2 database of an unknown kind (flags {flags >> 16:#x} in .dbtype)", name)
    headers_dbtype = _read_dbtype(f"{name}_h")
    if (dbtype | headers_dbtype) & _COMPRESSED:
        remedy = _decompress_command(name, headers_dbtype)
        raise InputError(f"a compressed MMseqs2 database: {remedy}", name)
    return PROFILE if expected_type == PROFILES else PADDED if flags & _PADDED else TEXT


def list_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return all files of a database: those of its sequences, then those of its headers.

    Raises:
        InputError: some are missing.
    """
    names = os.fspath(path), f"{os.fspath(path)}_h"
    return [
        file for name in names for file in (*data_files(name), Path(f"{name}.index"), Path(f"{name}.dbtype"))
    ]


def _decompress_command(name: str, headers_dbtype: int) -> str:
    plain, headers = f"{name}_plain", "decompress" if headers_dbtype & _COMPRESSED else "lndb"
    return f"run `mmseqs decompress {name} {plain} && mmseqs {headers} {name}_h {plain}_h` and give {plain}"


def _read_dbtype(name: str) -> int:
    path = Path(f"{name}.dbtype")
    with missing_file_as_input_error(path):
        content = path.read_bytes()
    if len(content) != 4:
        raise InputError(f"damaged: {len(content)} bytes instead of 4", path)
    return int.from_bytes(content, "little")


def data_files(name: str) -> list[Path]:
    """Return the files that hold the entries: one, or several numbered ones.

    Raises:
        InputError: there is none.
    """
    whole = Path(name)
    if whole.is_file():
        return [whole]
    parts: list[Path] = []
    while (part := Path(f"{name}.{len(parts)}")).is_file():
        parts.append(part)
    if not parts:
        raise InputError("incomplete MMseqs2 database: this file is missing", whole)
    return parts


@contextlib.contextmanager
def missing_file_as_input_error(path: Path) -> Iterator[None]:
    """Turn FileNotFoundError into an InputError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("incomplete MMseqs2 database: this file is missing", path) from None
