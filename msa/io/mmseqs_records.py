"""The sequences of an MMseqs2 database as blocks of FASTA records: the way from there into a target database.

Every entry becomes the record that `mmseqs convert2fasta` would write of it, so that the rules for odd input
are FASTA's, and the target database is the one that the FASTA file would have become.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msa.errors import InputError
from msa.io.fasta_blocks import LONGEST_RECORD, Block, Records, parse_block
from msa.io.mmseqs_database import FORBIDDEN, Entries, MmseqsFiles, joined, open_mmseqs
from msa.io.mmseqs_files import PADDED, PADDED_LETTERS, PADDED_MASK

_HEADER_MARK, _LINE_END, _BLANK = ord(">"), ord("\n"), ord(" ")


def _text_table() -> np.ndarray:
    """What becomes of a byte of text: it stays, but for what would begin another line or ends an entry."""
    table = np.arange(256, dtype=np.int16)
    table[_LINE_END] = _BLANK
    table[0] = FORBIDDEN
    return table


HEADER_TABLE = _text_table()
_SEQUENCE_TABLE = _text_table()
_SEQUENCE_TABLE[_HEADER_MARK] = FORBIDDEN
_PADDED_TABLE = np.full(256, FORBIDDEN, np.int16)
for _number, _letter in enumerate(PADDED_LETTERS.encode()):
    _PADDED_TABLE[_number] = _PADDED_TABLE[_number + PADDED_MASK] = _letter


@dataclass(frozen=True)
class EntryBlock(Block):
    """Some whole records made of entries, two lines each.

    Attributes:
        keys: int64 [records], their keys.
    """

    keys: np.ndarray


class MmseqsSource:
    """The records of a database in the order of its keys, and how far they have been read.

    Args:
        path: the database's name.
        block_bytes: of a block, about.

    Raises:
        InputError: see `open_mmseqs`.
    """

    def __init__(self, path: str | os.PathLike[str], block_bytes: int) -> None:
        self._sequences, self._headers = open_mmseqs(path)
        self.name: str | None = os.fspath(path)
        self._name, self._block_bytes = os.fspath(path), block_bytes
        self.bytes_read = 0
        self.bytes_total: int | None = self._sequences.bytes + self._headers.bytes
        self._written = 0

    @property
    def described(self) -> list[dict[str, Any]]:
        """For the manifest: bytes are those of the FASTA file that the entries make."""
        kind = "padded MMseqs2 database" if self._sequences.layout == PADDED else "MMseqs2 database"
        return [{"name": Path(self._name).name, "bytes": self._written, "format": kind}]

    def blocks(self) -> Iterator[Block]:
        """Whole records; raises InputError where an entry is damaged or has no header."""
        headers = Lookup(self._headers)
        try:
            for sequences in self._sequences.pieces():
                named = headers.find(sequences.keys)
                # a record: its mark, header, line end, sequence, line end
                sizes = named.lengths + sequences.lengths + 3
                cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // self._block_bytes)) + 1
                for first, end in zip([0, *cuts], [*cuts, len(sizes)], strict=True):
                    yield self._block(sequences[first:end], named[first:end], sizes[first:end])
        finally:
            self._sequences.close()
            self._headers.close()

    def _block(self, sequences: Entries, headers: Entries, sizes: np.ndarray) -> EntryBlock:
        if sizes.max() > LONGEST_RECORD:
            key = sequences.keys[int(sizes.argmax())]
            raise InputError(
                f"an entry of more than {LONGEST_RECORD >> 20} MiB is no protein (its key is {key})",
                self._name,
            )
        text = np.full(int(sizes.sum()), _LINE_END, np.uint8)
        starts = np.cumsum(sizes) - sizes
        text[starts] = _HEADER_MARK
        self._headers.copy(headers, text, starts + 1, HEADER_TABLE)
        table = _PADDED_TABLE if self._sequences.layout == PADDED else _SEQUENCE_TABLE
        self._sequences.copy(sequences, text, starts + headers.lengths + 2, table)
        self._written += len(text)
        self.bytes_read += int(sequences.lengths.sum() + headers.lengths.sum())
        return EntryBlock(self._name, 1, text.tobytes(), sequences.keys)

    def parse(self, block: Block) -> Records:
        """The records of a block.

        Raises:
            InputError: a character that is no letter; names the entry's key.
        """
        try:
            return parse_block(block)
        except InputError as error:
            assert isinstance(block, EntryBlock) and error.line is not None
            key = block.keys[(error.line - 1) // 2]
            raise InputError(f"{error.reason} (in the entry with key {key})", self._name) from None


class Lookup:
    """Finds entries by keys that ascend from one question to the next."""

    def __init__(self, files: MmseqsFiles) -> None:
        self._files, self._pieces = files, files.pieces()
        none = np.empty(0, np.int64)
        self._held = Entries(none, none, none)

    def find(self, keys: np.ndarray) -> Entries:
        """The entries with these keys (int64 [n ≥ 1], ascending).

        Raises:
            InputError: there is none for a key.
        """
        first, last = keys[0], keys[-1]
        held = [self._held[np.searchsorted(self._held.keys, first) :]]
        while len(held[-1]) == 0 or held[-1].keys[-1] < last:
            piece = next(self._pieces, None)
            if piece is None:
                break
            held.append(piece[np.searchsorted(piece.keys, first) :])
        self._held = joined(held)
        places = np.searchsorted(self._held.keys, keys)
        there = places < len(self._held)
        there[there] = self._held.keys[places[there]] == keys[there]
        if not there.all():
            key = keys[int(np.argmin(there))]
            raise InputError(f"no header for the sequence with key {key}", self._files.index)
        return self._held[places]
