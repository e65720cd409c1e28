"""MMseqs2's sequence databases: what their files say, checked, and their entries in the order of their keys.

A database named DB is a file DB, or DB.0, DB.1, … that count as one; DB.index, a line for each entry with
its key, its first byte and its bytes; DB.dbtype, four bytes that say what it holds; and the headers, DB_h
with the same files. An entry is text that ends in a line end and a NUL byte. In a padded database
(`makepaddedseqdb`, `createdb --gpu`) it is a number for each residue, padded to four bytes, without an end.
"""

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msa.errors import InputError
from msa.jit import kernel

AMINO_ACIDS = 0
_PADDED, _COMPRESSED = 8 << 16, 1 << 31
_NEWLINE, _TAB = 10, 9

PADDED_LETTERS = "ACDEFGHIKLMNPQRSTVWYX"
"""Residues by their number in a padded database; 32 more marks one as masked."""
PADDED_MASK = 32

_ENDING = 2
"""Bytes that an index counts for each entry beyond its text."""
_INDEX_PIECE = 1 << 22
_LET_GO_EVERY = 64 << 20

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
class Entries:
    """Some entries of a database, in the order of their keys.

    Attributes:
        keys: int64 [n], ascending.
        offsets: int64 [n], the first byte of each.
        lengths: int64 [n], bytes of each, without its ending.
    """

    keys: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, chosen: slice | np.ndarray) -> "Entries":
        return Entries(self.keys[chosen], self.offsets[chosen], self.lengths[chosen])


def joined(pieces: "list[Entries]") -> Entries:
    """Pieces of an index as one."""
    columns = ("keys", "offsets", "lengths")
    return Entries(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in columns))


class MmseqsFiles:
    """The data files and the index of one database: of sequences, or of headers.

    Attributes:
        name: the database's.
        padded: whether entries are numbers and have no ending.
        count: entries.
        bytes: of all entries, endings apart.

    Raises:
        InputError: files are missing or truncated, or hold what cannot be read; names file and reason.
    """

    def __init__(self, name: str, padded: bool = False) -> None:
        self.name, self.padded = name, padded
        self.index = Path(f"{name}.index")
        self.files = _data_files(name)
        self._starts = np.cumsum([0, *(path.stat().st_size for path in self.files)])
        self._maps: list[mmap.mmap | None] = []
        self._touched = 0
        self.count = self.bytes = 0
        self._ascending, last = True, -1
        for piece in _read_index(self.index):
            self._ascending &= bool(piece.keys[0] >= last and np.all(piece.keys[1:] >= piece.keys[:-1]))
            last = int(piece.keys[-1])
            self.count += len(piece)
            self.bytes += int(piece.lengths.sum())
            self._check_ends(piece)
        if self.count == 0:
            raise InputError("no entries", self.index)

    def _check_ends(self, piece: Entries) -> None:
        """Refuse entries that end after the data: padded ones need no ending, others at least a line end."""
        ends = piece.offsets + piece.lengths + (0 if self.padded else 1)
        beyond = np.flatnonzero(ends > self._starts[-1])
        if len(beyond):
            raise InputError(
                f"truncated: {self._starts[-1]} bytes, and the entry with key {piece.keys[beyond[0]]} ends "
                f"at byte {ends[beyond[0]]}",
                self.files[-1],
            )

    def pieces(self) -> Iterator[Entries]:
        """The entries in the order of their keys, some 200,000 at a time where the index has that order."""
        if self._ascending:
            yield from _read_index(self.index)
            return
        entries = joined(list(_read_index(self.index)))
        yield entries[np.argsort(entries.keys, kind="stable")]

    def copy(self, entries: Entries, out: np.ndarray, places: np.ndarray, table: np.ndarray) -> None:
        """Copy entries without their endings.

        Args:
            entries: of this database.
            out: uint8, where to.
            places: int64 [n], first byte of each entry in `out`.
            table: uint8 [256], what each byte becomes; 255 if it may not occur.

        Raises:
            InputError: an entry has such a byte, or no line end where its index says that it ends.
        """
        of_file = np.searchsorted(self._starts, entries.offsets, side="right") - 1
        for number in np.unique(of_file[entries.lengths > 0]).tolist():
            chosen = np.flatnonzero((of_file == number) & (entries.lengths > 0))
            mine = entries[chosen]
            data = self._mapped(number)
            starts = mine.offsets - self._starts[number]
            ends = starts + mine.lengths
            limit = len(data) - (0 if self.padded else 1)
            wrong = ends > limit
            if not self.padded:
                wrong |= data[np.minimum(ends, limit)] != _NEWLINE
            if wrong.any():
                key = mine.keys[int(wrong.argmax())]
                raise InputError(
                    f"damaged: the entry with key {key} does not end where the index says", self.name
                )
            bad = _copy(data, starts, mine.lengths, out, places[chosen], table)
            if bad >= 0:
                found = data[starts[bad] : ends[bad]]
                byte = int(found[table[found] == 255][0])
                raise InputError(
                    f"damaged: the entry with key {mine.keys[bad]} has a byte {byte:#04x}", self.name
                )
            self._let_go(number, int(mine.lengths.sum()))

    def close(self) -> None:
        """Let go of the data; mappings end with the last array on them."""
        self._maps = []

    def _mapped(self, number: int) -> np.ndarray:
        self._maps += [None] * (number + 1 - len(self._maps))
        held = self._maps[number]
        if held is None:
            with self.files[number].open("rb") as stream:
                held = self._maps[number] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(held, np.uint8)

    def _let_go(self, number: int, count: int) -> None:
        """Pages that were read count as this process's memory until they are given back."""
        self._touched += count
        held = self._maps[number]
        if self._touched >= _LET_GO_EVERY and held is not None:
            held.madvise(mmap.MADV_DONTNEED)
            self._touched = 0


def open_mmseqs(path: str | os.PathLike[str]) -> tuple[MmseqsFiles, MmseqsFiles]:
    """The sequences and the headers of a database.

    Raises:
        InputError: it holds no plain or padded protein sequences, or its files are missing or truncated.
    """
    name = os.fspath(path)
    kind = _dbtype(name)
    holds, flags = kind & 0xFFFF, kind & 0x7FFF_0000
    if holds != AMINO_ACIDS:
        what = _REFUSED.get(holds, f"of type {holds} holds no sequences: give the sequence database")
        raise InputError(f"this MMseqs2 database {what}", name)
    if flags & ~_PADDED:
        raise InputError(f"an MMseqs2 database of an unknown kind (flags {flags >> 16:#x} in .dbtype)", name)
    headers_kind = _dbtype(f"{name}_h")
    if (kind | headers_kind) & _COMPRESSED:
        raise InputError(f"a compressed MMseqs2 database: {_how_to_decompress(name, headers_kind)}", name)
    return MmseqsFiles(name, bool(flags & _PADDED)), MmseqsFiles(f"{name}_h")


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files that the sequences and headers of a database are in.

    Raises:
        InputError: some are missing.
    """
    names = os.fspath(path), f"{os.fspath(path)}_h"
    return [
        file for name in names for file in (*_data_files(name), Path(f"{name}.index"), Path(f"{name}.dbtype"))
    ]


def _how_to_decompress(name: str, headers_kind: int) -> str:
    plain, headers = f"{name}_plain", "decompress" if headers_kind & _COMPRESSED else "lndb"
    return f"run `mmseqs decompress {name} {plain} && mmseqs {headers} {name}_h {plain}_h` and give {plain}"


def _dbtype(name: str) -> int:
    path = Path(f"{name}.dbtype")
    with _present(path):
        content = path.read_bytes()
    if len(content) != 4:
        raise InputError(f"damaged: {len(content)} bytes, 4 are due", path)
    return int.from_bytes(content, "little")


def _data_files(name: str) -> list[Path]:
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
def _present(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError("incomplete MMseqs2 database: this file is missing", path) from None


def _read_index(path: Path) -> Iterator[Entries]:
    """The lines of an index, in their order, some at a time.

    Raises:
        InputError: missing, or a line that is none; names it.
    """
    with _present(path), path.open("rb") as stream:
        line, rest = 1, b""
        while piece := stream.read(_INDEX_PIECE):
            text = rest + piece
            cut = text.rfind(b"\n") + 1
            rest = text[cut:]
            if not cut:
                continue
            values = np.empty((text.count(b"\n", 0, cut), 3), np.int64)
            read = _parse_lines(np.frombuffer(text, np.uint8)[:cut], values)
            if read < len(values):
                raise InputError("no line of an index (key, offset, length)", path, line + read)
            line += read
            yield Entries(values[:, 0], values[:, 1], np.maximum(values[:, 2] - _ENDING, 0))
        if rest:
            raise InputError("truncated: the last line has no end", path, line)


@kernel
def _parse_lines(text, values):  # type: ignore[no-untyped-def]
    """Fill one row of `values` for each line; how many are lines of three numbers."""
    position = 0
    for row in range(len(values)):
        for column in range(3):
            value, digits = np.int64(0), 0
            while 48 <= text[position] <= 57:
                value = value * 10 + text[position] - 48
                digits += 1
                position += 1
            if digits == 0 or digits > 18 or text[position] != (_NEWLINE if column == 2 else _TAB):
                return row
            values[row, column] = value
            position += 1
    return len(values)


@kernel
def _copy(data, starts, lengths, out, places, table):  # type: ignore[no-untyped-def]
    """Copy items through a table; the first item with a byte that may not occur, or -1."""
    for item in range(len(starts)):
        source = data[starts[item] : starts[item] + lengths[item]]
        target = out[places[item] : places[item] + lengths[item]]
        bad = False
        for place in range(len(source)):
            byte = table[source[place]]
            bad |= byte == 255
            target[place] = byte
        if bad:
            return item
    return -1
