"""The entries of MMseqs2 databases in the order of their keys; msa/io/mmseqs_files.py tells of the files."""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msa.errors import InputError
from msa.io.mmseqs_files import AMINO_ACIDS, TEXT, Layout, data_files, layout_of, present
from msa.jit import kernel

FORBIDDEN = -1
_NEWLINE, _TAB = 10, 9
_INDEX_PIECE = 1 << 22
_LET_GO_EVERY = 64 << 20


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
    """The data files and the index of one database: of sequences, of headers, or of profiles.

    Attributes:
        name: the database's.
        layout: of its entries.
        count: entries.
        bytes: of all entries, endings apart.

    Raises:
        InputError: files are missing or truncated, or hold what cannot be read; names file and reason.
    """

    def __init__(self, name: str, layout: Layout) -> None:
        self.name, self.layout = name, layout
        self.index = Path(f"{name}.index")
        self.files = data_files(name)
        self._starts = np.cumsum([0, *(path.stat().st_size for path in self.files)])
        self._maps: list[mmap.mmap | None] = []
        self._touched = 0
        self.count = self.bytes = 0
        self._ascending, last = True, -1
        for piece in self._lines():
            self._ascending &= bool(piece.keys[0] >= last and np.all(piece.keys[1:] >= piece.keys[:-1]))
            last = int(piece.keys[-1])
            self.count += len(piece)
            self.bytes += int(piece.lengths.sum())
            self._check_ends(piece)
        if self.count == 0:
            raise InputError("no entries", self.index)

    def _check_ends(self, piece: Entries) -> None:
        """Refuse entries that end after the data, the first byte of the ending included."""
        ends = piece.offsets + piece.lengths + (self.layout.mark is not None)
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
            yield from self._lines()
            return
        entries = joined(list(self._lines()))
        yield entries[np.argsort(entries.keys, kind="stable")]

    def copy(self, entries: Entries, out: np.ndarray, places: np.ndarray, table: np.ndarray) -> None:
        """Copy entries without their endings.

        Args:
            entries: of this database.
            out: uint8, where to.
            places: int64 [n], first byte of each entry in `out`.
            table: int16 [256], what each byte becomes; FORBIDDEN if it may not occur.

        Raises:
            InputError: an entry has such a byte, or does not end where its index says that it ends.
        """
        of_file = np.searchsorted(self._starts, entries.offsets, side="right") - 1
        for number in np.unique(of_file[entries.lengths > 0]).tolist():
            chosen = np.flatnonzero((of_file == number) & (entries.lengths > 0))
            mine = entries[chosen]
            data = self._mapped(number)
            starts = mine.offsets - self._starts[number]
            ends = starts + mine.lengths
            limit = len(data) - (self.layout.mark is not None)
            wrong = ends > limit
            if self.layout.mark is not None:
                wrong |= data[np.minimum(ends, limit)] != self.layout.mark
            if wrong.any():
                key = mine.keys[int(wrong.argmax())]
                raise InputError(
                    f"damaged: the entry with key {key} does not end where the index says", self.name
                )
            bad = _copy(data, starts, mine.lengths, out, places[chosen], table)
            if bad >= 0:
                found = data[starts[bad] : ends[bad]]
                byte = int(found[table[found] == FORBIDDEN][0])
                raise InputError(
                    f"damaged: the entry with key {mine.keys[bad]} has a byte {byte:#04x}", self.name
                )
            self._let_go(int(mine.lengths.sum()))

    def _lines(self) -> Iterator[Entries]:
        return _read_index(self.index, self.layout.ending)

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

    def _let_go(self, count: int) -> None:
        """Pages that were read count as this process's memory until they are given back."""
        self._touched += count
        if self._touched >= _LET_GO_EVERY:
            self._touched = 0
            for held in self._maps:
                if held is not None:
                    held.madvise(mmap.MADV_DONTNEED)


def open_mmseqs(path: str | os.PathLike[str], wanted: int = AMINO_ACIDS) -> tuple[MmseqsFiles, MmseqsFiles]:
    """The entries and the headers of a database.

    Args:
        path: its name.
        wanted: AMINO_ACIDS, plain or padded, or PROFILES.

    Raises:
        InputError: it holds something else, or its files are missing or truncated.
    """
    name = os.fspath(path)
    return MmseqsFiles(name, layout_of(name, wanted)), MmseqsFiles(f"{name}_h", TEXT)


def _read_index(path: Path, ending: int) -> Iterator[Entries]:
    """The lines of an index, in their order, some at a time.

    Raises:
        InputError: missing, or a line that is none; names it.
    """
    with present(path), path.open("rb") as stream:
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
            yield Entries(values[:, 0], values[:, 1], np.maximum(values[:, 2] - ending, 0))
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
            bad |= byte == FORBIDDEN
            target[place] = byte
        if bad:
            return item
    return -1
