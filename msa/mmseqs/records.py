"""Records of MMseqs2 databases: blocks of FASTA for building a target database, and search queries.

Every sequence entry becomes the record that `mmseqs convert2fasta` writes. So unusual input is treated as in
FASTA files, and the target database equals the one built from that FASTA file.

A profile entry has 25 bytes per position: 20 signed scores in eighths of bits, in the order of the residues'
letters; the numbers of the query's and of the consensus residue; the effective number of sequences and two
gap costs. The scores are log odds, from which the original frequencies are recovered.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from msa.alphabet import STANDARD
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, clean_header, read_records
from msa.io.fasta_blocks import MAX_RECORD_BYTES, FastaBlock, ParsedBlock, parse_block
from msa.mmseqs.database import FORBIDDEN, Entries, EntryReader, HeaderLookup, open_mmseqs
from msa.mmseqs.files import PADDED, PADDED_LETTERS, PADDED_MASK, PROFILES, entry_type
from msa.profile.matrices import BLOSUM62, background
from msa.profile.pssm import ProfileRecord, profile_from_frequencies

_HEADER_MARK, _LINE_END, _SPACE = ord(">"), ord("\n"), ord(" ")


def _text_table() -> np.ndarray:
    """Return the table that keeps all bytes, except that line ends become spaces and NUL is forbidden."""
    table = np.arange(256, dtype=np.int16)
    table[_LINE_END] = _SPACE
    table[0] = FORBIDDEN
    return table


_HEADER_TABLE = _text_table()
_SEQUENCE_TABLE = _text_table()
_SEQUENCE_TABLE[_HEADER_MARK] = FORBIDDEN
_PADDED_TABLE = np.full(256, FORBIDDEN, np.int16)
for _number, _letter in enumerate(PADDED_LETTERS.encode()):
    _PADDED_TABLE[_number] = _PADDED_TABLE[_number + PADDED_MASK] = _letter
_IDENTITY_TABLE = np.arange(256, dtype=np.int16)

# layout of a position in a profile entry
_POSITION_BYTES, _SCORES, _QUERY = 25, 20, 20
_SCORES_PER_BIT = 8
_QUERY_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class EntryBlock(FastaBlock):
    """A block of records converted from entries, two lines each.

    Attributes:
        keys: int64 [records], keys of the entries.
    """

    keys: np.ndarray


class MmseqsSource:
    """The records of a sequence database in the order of its keys, with progress.

    Attributes:
        name: name of the database.
        bytes_read, bytes_total: size of the entries read so far, and of all.

    Raises:
        InputError: see `open_mmseqs`.
    """

    def __init__(self, path: str | os.PathLike[str], block_bytes: int) -> None:
        self._sequences, self._headers = open_mmseqs(path)
        self.name: str | None = os.fspath(path)
        self._name, self._block_bytes = os.fspath(path), block_bytes
        self.bytes_read = 0
        self.bytes_total: int | None = self._sequences.bytes + self._headers.bytes
        self._fasta_bytes = 0

    @property
    def description(self) -> list[dict[str, Any]]:
        """The manifest's entry for this input; the size is that of the equivalent FASTA file."""
        kind = "padded MMseqs2 database" if self._sequences.entry_format == PADDED else "MMseqs2 database"
        return [{"name": Path(self._name).name, "bytes": self._fasta_bytes, "format": kind}]

    def blocks(self) -> Iterator[FastaBlock]:
        """Yield blocks of whole records.

        Raises:
            InputError: an entry is damaged or has no header.
        """
        lookup = HeaderLookup(self._headers)
        try:
            for sequences in self._sequences.chunks():
                headers = lookup.find(sequences.keys)
                # a record: `>`, header, line end, sequence, line end
                sizes = headers.lengths + sequences.lengths + 3
                cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // self._block_bytes)) + 1
                for first, end in zip([0, *cuts], [*cuts, len(sizes)], strict=True):
                    yield self._block(sequences[first:end], headers[first:end], sizes[first:end])
        finally:
            self._sequences.close()
            self._headers.close()

    def _block(self, sequences: Entries, headers: Entries, sizes: np.ndarray) -> EntryBlock:
        if sizes.max() > MAX_RECORD_BYTES:
            key = sequences.keys[int(sizes.argmax())]
            raise InputError(
                f"an entry of more than {MAX_RECORD_BYTES >> 20} MiB is not a protein (its key is {key})",
                self._name,
            )
        text = np.full(int(sizes.sum()), _LINE_END, np.uint8)
        starts = np.cumsum(sizes) - sizes
        text[starts] = _HEADER_MARK
        self._headers.copy(headers, text, starts + 1, _HEADER_TABLE)
        table = _PADDED_TABLE if self._sequences.entry_format == PADDED else _SEQUENCE_TABLE
        self._sequences.copy(sequences, text, starts + headers.lengths + 2, table)
        self._fasta_bytes += len(text)
        self.bytes_read += int(sequences.lengths.sum() + headers.lengths.sum())
        return EntryBlock(self._name, 1, text.tobytes(), sequences.keys)

    def parse(self, block: FastaBlock) -> ParsedBlock:
        """Parse a block of this source.

        Raises:
            InputError: a character that is not a letter; names the entry's key.
        """
        try:
            return parse_block(block)
        except InputError as error:
            assert isinstance(block, EntryBlock) and error.line is not None
            key = block.keys[(error.line - 1) // 2]
            raise InputError(f"{error.reason} (in the entry with key {key})", self._name) from None


def read_mmseqs_queries(
    path: str | os.PathLike[str], comp_bias_corr: bool = True, matrix: str = BLOSUM62
) -> Iterator[FastaRecord]:
    """Read the entries of a database as queries, in the order of their keys.

    Args:
        path: name of the database.
        comp_bias_corr: used for profiles; see `profile_from_frequencies`.
        matrix: used for profiles; see `profile_from_frequencies`.

    Returns:
        FastaRecord for a sequence, ProfileRecord for a profile.

    Raises:
        InputError: the database holds neither, or is incomplete, truncated or damaged; names file and key.
    """
    if entry_type(path) == PROFILES:
        return _profile_queries(os.fspath(path), comp_bias_corr, matrix)
    return _sequence_queries(os.fspath(path))


def _sequence_queries(name: str) -> Iterator[FastaRecord]:
    source = MmseqsSource(name, _QUERY_BLOCK_BYTES)
    for block in source.blocks():
        source.parse(block)  # for its errors, which name the entry's key
        yield from read_records(BytesIO(block.data), name)


def _profile_queries(name: str, comp_bias_corr: bool, matrix: str) -> Iterator[FastaRecord]:
    profiles, headers = open_mmseqs(name, PROFILES)
    lookup = HeaderLookup(headers)
    for chunk in profiles.chunks():
        header_entries = lookup.find(chunk.keys)
        for k in range(len(chunk)):
            content = _read_entry(profiles, chunk[k : k + 1], _IDENTITY_TABLE)
            header = _read_entry(headers, header_entries[k : k + 1], _HEADER_TABLE).tobytes()
            if len(content) == 0 or len(content) % _POSITION_BYTES:
                raise InputError(
                    f"the profile with key {chunk.keys[k]} has {len(content)} bytes, not a multiple of "
                    f"{_POSITION_BYTES}: written by a version of MMseqs2 that is too old",
                    name,
                )
            positions = content.reshape(-1, _POSITION_BYTES)
            if positions[:, _QUERY].max() >= len(PADDED_LETTERS):
                raise InputError(f"damaged: an invalid residue in the entry with key {chunk.keys[k]}", name)
            sequence = "".join(PADDED_LETTERS[number] for number in positions[:, _QUERY].tolist())
            frequencies = _frequencies(positions[:, :_SCORES])
            profile = profile_from_frequencies(frequencies, comp_bias_corr, matrix)
            text = clean_header(header.decode("utf-8", "replace"))
            yield ProfileRecord(text, sequence, profile, f"an entry of {name}", location=(name, None))


def _read_entry(reader: EntryReader, entry: Entries, table: np.ndarray) -> np.ndarray:
    """Return the content of one entry, uint8."""
    content = np.empty(int(entry.lengths[0]), np.uint8)
    reader.copy(entry, content, np.zeros(1, np.int64), table)
    return content


def _frequencies(scores: np.ndarray) -> np.ndarray:
    """Return frequencies, float64 [length, 20] in `STANDARD` order, from scores, uint8 [length, 20]."""
    odds = np.exp2(scores.view(np.int8) / _SCORES_PER_BIT)
    order = [PADDED_LETTERS.index(letter) for letter in STANDARD]
    return np.asarray(odds[:, order] * background()[: len(STANDARD)])
