"""The files of an MMseqs2 database, and what its type says that they hold.

A database named DB is a file DB, or DB.0, DB.1, … that count as one; DB.index, a line for each entry with
its key, its first byte and its bytes; DB.dbtype, four bytes that say what it holds; and the headers, DB_h
with the same files. An entry is text that ends in a line end and a NUL byte. In a padded database
(`makepaddedseqdb`, `createdb --gpu`) it is a number for each residue, padded to four bytes, without an end.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msa.errors import InputError

AMINO_ACIDS, PROFILES = 0, 2
_PADDED, _COMPRESSED = 8 << 16, 1 << 31
_NEWLINE = 10

PADDED_LETTERS = "ACDEFGHIKLMNPQRSTVWYX"
"""Residues by their number in a padded database; 32 more marks one as masked."""
PADDED_MASK = 32

_REFUSED = {
    1: "holds nucleotides: translate them to proteins (mmseqs extractorfs, mmseqs translatenucs)",
    2: "holds profiles: give the sequence database, or one of their consensus (mmseqs profile2consensus)",
    5: "holds alignments: give the sequence database that was searched",
    6: "holds clusters: give the sequence database, or one of the representatives (mmseqs createsubdb)",
    7: "holds results of a prefilter: give the sequence database that was searched",
    9: "is an index: give the database that it was made of, without .idx",
    12: "holds texts such as headers: give the sequence database",
}


def is_mmseqs(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the name of an MMseqs2 database, whole or not."""
    name = os.fspath(path)
    indices = [Path(f"{name}.index"), Path(f"{name}_h.index")]
    return Path(f"{name}.dbtype").is_file() or all(index.is_file() for index in indices)


@dataclass(frozen=True)
class Layout:
    """How entries lie in their files.

    Attributes:
        ending: bytes that an index counts for each entry beyond its content.
        mark: the first of these, which has to be there; None where there are none in the file.
    """

    ending: int
    mark: int | None


TEXT, PADDED, PROFILE = Layout(2, _NEWLINE), Layout(2, None), Layout(1, 0)


def kind_of(path: str | os.PathLike[str]) -> int:
    """What a database holds, such as AMINO_ACIDS or PROFILES.

    Raises:
        InputError: no .dbtype, or a damaged one.
    """
    return _dbtype(os.fspath(path)) & 0xFFFF


def layout_of(name: str, wanted: int) -> Layout:
    """How the entries of a database lie in its files, if it holds what is wanted.

    Args:
        name: the database's.
        wanted: AMINO_ACIDS, plain or padded, or PROFILES.

    Raises:
        InputError: it holds something else, or in compressed form; says what to do.
    """
    kind = _dbtype(name)
    holds, flags = kind & 0xFFFF, kind & 0x7FFF_0000
    if holds != wanted:
        what = _REFUSED.get(holds, f"of type {holds} holds no sequences: give the sequence database")
        raise InputError(f"this MMseqs2 database {what}", name)
    if flags & ~(_PADDED if wanted == AMINO_ACIDS else 0):
        raise InputError(f"an MMseqs2 database of an unknown kind (flags {flags >> 16:#x} in .dbtype)", name)
    headers_kind = _dbtype(f"{name}_h")
    if (kind | headers_kind) & _COMPRESSED:
        raise InputError(f"a compressed MMseqs2 database: {_how_to_decompress(name, headers_kind)}", name)
    return PROFILE if wanted == PROFILES else PADDED if flags & _PADDED else TEXT


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files that the sequences and headers of a database are in.

    Raises:
        InputError: some are missing.
    """
    names = os.fspath(path), f"{os.fspath(path)}_h"
    return [
        file for name in names for file in (*data_files(name), Path(f"{name}.index"), Path(f"{name}.dbtype"))
    ]


def _how_to_decompress(name: str, headers_kind: int) -> str:
    plain, headers = f"{name}_plain", "decompress" if headers_kind & _COMPRESSED else "lndb"
    return f"run `mmseqs decompress {name} {plain} && mmseqs {headers} {name}_h {plain}_h` and give {plain}"


def _dbtype(name: str) -> int:
    path = Path(f"{name}.dbtype")
    with present(path):
        content = path.read_bytes()
    if len(content) != 4:
        raise InputError(f"damaged: {len(content)} bytes, 4 are due", path)
    return int.from_bytes(content, "little")


def data_files(name: str) -> list[Path]:
    """The files that count as the one that holds the entries.

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
def present(path: Path) -> Iterator[None]:
    """Say of a file that is missing that it is."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("incomplete MMseqs2 database: this file is missing", path) from None
