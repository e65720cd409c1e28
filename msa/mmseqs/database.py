"""The entries of MMseqs2 databases, in the order of their keys; see `msa.mmseqs.files` for the format."""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msa.base.cpu_kernels.jit import kernel
from msa.base.errors import InputError
from msa.mmseqs.files import (
    AMINO_ACIDS,
    TEXT,
    EntryFormat,
    data_files,
    missing_file_as_input_error,
    read_entry_format,
)

FORBIDDEN = -1
_NEWLINE, _TAB = 10, 9
_INDEX_CHUNK_BYTES = 1 << 22
_RELEASE_PAGES_EVERY = 64 << 20


@dataclass(frozen=True)
class Entries:
    """Keys, offsets and lengths of entries, usually in the order of their keys.

    Attributes:
        keys: int64 [n].
        offsets: int64 [n], the first byte of each entry in the data.
        lengths: int64 [n], bytes of each entry, without its terminator.
    """

    keys: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, indices: slice | np.ndarray) -> "Entries":
        return Entries(self.keys[indices], self.offsets[indices], self.lengths[indices])


def _concatenate(chunks: "list[Entries]") -> Entries:
    columns = ("keys", "offsets", "lengths")
    return Entries(*(np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in columns))


class EntryReader:
    """A reader of the entries of one database: of sequences, headers or profiles.

    Attributes:
        index: path of the index.
        files: paths of the data files.
        count: number of entries.
        bytes: size of all entries, without their terminators.

    Raises:
        InputError: files are missing, truncated or unreadable; names file and reason.
    """

    def __init__(self, name: str, entry_format: EntryFormat) -> None:
        self.name, self.entry_format = name, entry_format
        self.index = Path(f"{name}.index")
        self.files = data_files(name)
        self._starts = np.cumsum([0, *(path.stat().st_size for path in self.files)])
        self._maps: list[mmap.mmap | None] = []
        self._unreleased_bytes = 0
        self.count = self.bytes = 0
        self._ascending, last = True, -1
        for chunk in _read_index(self.index, self.entry_format.terminator_length):
            self._ascending &= bool(chunk.keys[0] >= last and np.all(chunk.keys[1:] >= chunk.keys[:-1]))
            last = int(chunk.keys[-1])
            self.count += len(chunk)
            self.bytes += int(chunk.lengths.sum())
            self._check_ends(chunk)
        if self.count == 0:
            raise InputError("no entries", self.index)

    def _check_ends(self, chunk: Entries) -> None:
        """Raise InputError if an entry or the first byte of its terminator is beyond the end of the data."""
        ends = chunk.offsets + chunk.lengths + (self.entry_format.terminator is not None)
        beyond = np.flatnonzero(ends > self._starts[-1])
        if len(beyond):
            raise InputError(
                f"truncated: {self._starts[-1]} bytes, but the entry with key {chunk.keys[beyond[0]]} ends "
                f"at byte {ends[beyond[0]]}",
                self.files[-1],
            )

    def chunks(self) -> Iterator[Entries]:
        """Yield all entries in the order of their keys.

        A chunk has about 200,000 entries, or all of them if the index is not sorted by key.
        """
        if self._ascending:
            yield from _read_index(self.index, self.entry_format.terminator_length)
            return
        entries = _concatenate(list(_read_index(self.index, self.entry_format.terminator_length)))
        yield entries[np.argsort(entries.keys, kind="stable")]

    def copy(self, entries: Entries, out: np.ndarray, out_offsets: np.ndarray, table: np.ndarray) -> None:
        """Copy entries, without their terminators, into an array.

        Args:
            entries: entries of this database.
            out: uint8, the destination.
            out_offsets: int64 [n], offset of each entry in `out`.
            table: int16 [256], the byte that replaces each byte; FORBIDDEN if it must not occur.

        Raises:
            InputError: an entry contains a forbidden byte, or does not end where the index says.
        """
        file_of_entry = np.searchsorted(self._starts, entries.offsets, side="right") - 1
        for number in np.unique(file_of_entry[entries.lengths > 0]).tolist():
            indices = np.flatnonzero((file_of_entry == number) & (entries.lengths > 0))
            in_file = entries[indices]
            data = self._mapped(number)
            starts = in_file.offsets - self._starts[number]
            ends = starts + in_file.lengths
            limit = len(data) - (self.entry_format.terminator is not None)
            wrong = ends > limit
            if self.entry_format.terminator is not None:
                wrong |= data[np.minimum(ends, limit)] != self.entry_format.terminator
            if wrong.any():
                key = in_file.keys[int(wrong.argmax())]
                raise InputError(
                    f"damaged: the entry with key {key} does not end where the index says", self.name
                )
            invalid = _copy(data, starts, in_file.lengths, out, out_offsets[indices], table)
            if invalid >= 0:
                content = data[starts[invalid] : ends[invalid]]
                byte = int(content[table[content] == FORBIDDEN][0])
                raise InputError(
                    f"damaged: the entry with key {in_file.keys[invalid]} contains the byte {byte:#04x}",
                    self.name,
                )
            self._release_pages(int(in_file.lengths.sum()))

    def close(self) -> None:
        """Drop the memory maps; each is unmapped with the last array that refers to it."""
        self._maps = []

    def _mapped(self, number: int) -> np.ndarray:
        """Return the content of a data file, uint8."""
        self._maps += [None] * (number + 1 - len(self._maps))
        mapped = self._maps[number]
        if mapped is None:
            with self.files[number].open("rb") as stream:
                mapped = self._maps[number] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, np.uint8)

    def _release_pages(self, count: int) -> None:
        """Count bytes read; release the mapped pages, which count as this process's memory, every 64 MiB."""
        self._unreleased_bytes += count
        if self._unreleased_bytes >= _RELEASE_PAGES_EVERY:
            self._unreleased_bytes = 0
            for mapped in self._maps:
                if mapped is not None:
                    mapped.madvise(mmap.MADV_DONTNEED)


class HeaderLookup:
    """A lookup of headers by key, for keys that ascend from call to call."""

    def __init__(self, headers: EntryReader) -> None:
        self._headers, self._chunks = headers, headers.chunks()
        empty = np.empty(0, np.int64)
        self._loaded = Entries(empty, empty, empty)

    def find(self, keys: np.ndarray) -> Entries:
        """Return the headers with these keys (int64 [n ≥ 1], ascending).

        Raises:
            InputError: a key has no header.
        """
        first, last = keys[0], keys[-1]
        chunks = [self._loaded[np.searchsorted(self._loaded.keys, first) :]]
        while len(chunks[-1]) == 0 or chunks[-1].keys[-1] < last:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            chunks.append(chunk[np.searchsorted(chunk.keys, first) :])
        self._loaded = _concatenate(chunks)
        indices = np.searchsorted(self._loaded.keys, keys)
        found = indices < len(self._loaded)
        found[found] = self._loaded.keys[indices[found]] == keys[found]
        if not found.all():
            key = keys[int(np.argmin(found))]
            raise InputError(f"no header for the sequence with key {key}", self._headers.index)
        return self._loaded[indices]


def open_mmseqs(
    path: str | os.PathLike[str], expected_type: int = AMINO_ACIDS
) -> tuple[EntryReader, EntryReader]:
    """Open the entries and the headers of a database.

    Args:
        path: name of the database.
        expected_type: AMINO_ACIDS, plain or padded, or PROFILES.

    Raises:
        InputError: the database has another type, or its files are missing or truncated.
    """
    name = os.fspath(path)
    return EntryReader(name, read_entry_format(name, expected_type)), EntryReader(f"{name}_h", TEXT)


def _read_index(path: Path, terminator_length: int) -> Iterator[Entries]:
    """Yield the entries of an index in the order of its lines, a chunk at a time.

    Raises:
        InputError: the file is missing, or a line is malformed; names file and line.
    """
    with missing_file_as_input_error(path), path.open("rb") as stream:
        line, rest = 1, b""
        while data := stream.read(_INDEX_CHUNK_BYTES):
            text = rest + data
            cut = text.rfind(b"\n") + 1
            rest = text[cut:]
            if not cut:
                continue
            values = np.empty((text.count(b"\n", 0, cut), 3), np.int64)
            parsed = _parse_lines(np.frombuffer(text, np.uint8)[:cut], values)
            if parsed < len(values):
                raise InputError("not an index line (key, offset, length)", path, line + parsed)
            line += parsed
            yield Entries(values[:, 0], values[:, 1], np.maximum(values[:, 2] - terminator_length, 0))
        if rest:
            raise InputError("truncated: the last line does not end in a newline", path, line)


@kernel
def _parse_lines(text, values):  # type: ignore[no-untyped-def]
    """Fill one row of `values` per line; return the number of lines before the first malformed one."""
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
def _copy(data, starts, lengths, out, out_offsets, table):  # type: ignore[no-untyped-def]
    """Copy items, replacing bytes by a table; return the first item with a forbidden byte, or -1."""
    for item in range(len(starts)):
        source = data[starts[item] : starts[item] + lengths[item]]
        target = out[out_offsets[item] : out_offsets[item] + lengths[item]]
        invalid = False
        for i in range(len(source)):
            byte = table[source[i]]
            invalid |= byte == FORBIDDEN
            target[i] = byte
        if invalid:
            return item
    return -1
