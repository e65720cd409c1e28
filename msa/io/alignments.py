"""Readers of multiple sequence alignments: A3M, Stockholm, aligned FASTA, told apart by content.

Whatever the format, an alignment comes out with one column per residue of its query, the first row. What
other rows have between two such columns is an insertion: its letters are dropped and counted in the deletion
matrix (the name AlphaFold2 gave it) at the column that follows.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from msa.errors import InputError
from msa.io import query_columns
from msa.io import stockholm_reader as stockholm
from msa.io.compression import read_bytes
from msa.io.query_columns import GAP, QueryColumns
from msa.io.stockholm_reader import ragged_reason

_SKIP, _MATCH, _INSERT, _INVALID = range(4)
# ColabFold's first line: chain lengths, then how often each chain occurs
_COLABFOLD_START = re.compile(rb"#(\d+(?:,\d+)*)\t(\d+(?:,\d+)*)[ \t\r]*$")

_UPPER = np.arange(256, dtype=np.uint8)
_UPPER[ord("a") : ord("z") + 1] -= 32
_UPPER[ord(".")] = GAP


def _classes(lower: int, dot: int) -> np.ndarray:
    table = np.full(256, _INVALID, np.uint8)
    table[ord("A") : ord("Z") + 1] = _MATCH
    table[ord("a") : ord("z") + 1] = lower
    table[GAP] = _MATCH
    table[ord(".")] = dot
    table[list(b" \t\r\n")] = _SKIP
    return table


# in A3M a dot only pads insertions to equal length; in aligned FASTA it is one more way to write a gap
_A3M_CLASSES = _classes(lower=_INSERT, dot=_SKIP)
_ALIGNED_CLASSES = _classes(lower=_MATCH, dot=_MATCH)
_UPPER_CASE_ALIGNED_CLASSES = _classes(lower=_INVALID, dot=_MATCH)


@dataclass(frozen=True, eq=False)
class Alignment:
    """An alignment with one column per residue of its query.

    Attributes:
        names: header of every row, without its `>`.
        letters: uint8 [rows, columns], upper-case ASCII letters and `-`; row 0 is the query, without gaps.
        deletions: unsigned integers [rows, columns]: residues dropped between the column before and this one.
        source: the file it was read from; `-` is standard input, None is none.
    """

    names: tuple[str, ...]
    letters: np.ndarray = field(repr=False)
    deletions: np.ndarray = field(repr=False)
    source: str | None = None

    def __len__(self) -> int:
        return len(self.letters)

    @property
    def query(self) -> str:
        """The query's residues."""
        return self.letters[0].tobytes().decode("ascii")

    @property
    def sequences(self) -> list[str]:
        """The aligned rows, all of the query's length."""
        return [row.tobytes().decode("ascii") for row in self.letters]


def single_sequence(name: str, sequence: str) -> Alignment:
    """The alignment of a query with nothing but itself.

    Raises:
        InputError: empty, or a character that is no letter.
    """
    return parse_alignment(f">{name}\n{sequence}\n".encode(), source=None)


def read_alignment(path: str | os.PathLike[str]) -> Alignment:
    """Read one alignment file; compression and format are recognised by content, `-` is standard input.

    Raises:
        InputError: not an alignment, rows of different length, a character that is no letter, an alignment of
            several chains; names file, line and column as far as they are known.
        OSError: the file cannot be read.
    """
    return parse_alignment(read_bytes(path), source=os.fspath(path))


def parse_alignment(data: bytes, source: str | None = None) -> Alignment:
    """Like `read_alignment`, from the file's (decompressed) content."""
    # NUL separates the queries of MMseqs2's result databases and is left behind at the end of such A3M files
    data = data.rstrip(b"\0")
    start = data[:4096].lstrip()
    if not start and not data.strip():
        raise InputError("empty file", source)
    declared = None
    if start.startswith(stockholm.START):
        names, letters, deletions = stockholm.stockholm_rows(data, source)
    elif start.startswith((b">", b"#")):
        declared = _declared_length(data, source)
        names, letters, deletions = _fasta_like_rows(data, source)
    else:
        raise InputError("not an alignment: neither A3M or aligned FASTA (`>`) nor Stockholm", source, 1)
    columns = letters.shape[1]
    if columns == 0:
        raise InputError("the query (first row) has no residues", source)
    if declared not in (None, columns):
        raise InputError(f"the header line declares {declared} residues, the query has {columns}", source, 1)
    return Alignment(names, letters, deletions, source)


def _declared_length(data: bytes, source: str | None) -> int | None:
    """The query length that ColabFold's header line declares, None where there is no such line."""
    text = data.lstrip()
    first_line = text[: text.find(b"\n") if b"\n" in text else None]
    match = _COLABFOLD_START.match(first_line)
    if match is None:
        return None
    lengths, counts = ([int(number) for number in group.split(b",")] for group in match.groups())
    if len(lengths) != len(counts):
        raise InputError("lengths and counts of the header line do not match", source, 1)
    if len(lengths) > 1 or counts != [1]:
        raise InputError(
            f"alignment of a complex ({sum(counts)} chains, header line "
            f"{first_line.decode().strip()!r}): only single chains are supported",
            source,
            1,
        )
    return lengths[0]


class _Records:
    """Where the records of a FASTA-like file lie, by byte offset."""

    def __init__(self, data: bytes, source: str | None) -> None:
        self.data, self.source = data, source
        self.bytes = np.frombuffer(data, np.uint8)
        self.line_ends = np.append(np.flatnonzero(self.bytes == ord("\n")), len(data))
        self.line_starts = np.append(0, self.line_ends[:-1] + 1)
        self.line_starts = self.line_starts[self.line_starts < len(data)]
        self.line_ends = self.line_ends[: len(self.line_starts)]
        first = self.bytes[self.line_starts]
        headers = np.flatnonzero(first == ord(">"))
        comments = first == ord("#")
        self.comment_starts, self.comment_ends = self.line_starts[comments], self.line_ends[comments]
        if len(headers) == 0:
            raise InputError("no sequences", source)
        self.starts = self.line_starts[headers]
        self.body_starts = self.line_ends[headers]
        self.ends = np.append(self.starts[1:], len(data))
        self._refuse_text_before_first_header()

    def __len__(self) -> int:
        return len(self.starts)

    def _refuse_text_before_first_header(self) -> None:
        before = slice(int(np.searchsorted(self.line_starts, self.starts[0])))
        for start, end in zip(
            self.line_starts[before].tolist(), self.line_ends[before].tolist(), strict=True
        ):
            line = self.data[start:end]
            if line.strip() and not line.startswith(b"#"):
                raise InputError("text before the first header line ('>')", self.source, self.line_of(start))

    def line_of(self, offset: int) -> int:
        """1-based number of the line that holds a byte."""
        return int(np.searchsorted(self.line_starts, offset, side="right"))

    def names(self) -> tuple[str, ...]:
        names: list[str] = []
        for first, last in self.blocks():
            spans = zip(self.starts[first:last].tolist(), self.body_starts[first:last].tolist(), strict=True)
            names += [self.data[a + 1 : b].decode("utf-8", "replace").strip() for a, b in spans]
        return tuple(names)

    def blocks(self) -> list[tuple[int, int]]:
        """Ranges of records of about `BLOCK` bytes each."""
        size = query_columns.BLOCK
        cuts = np.searchsorted(self.starts, np.arange(size, len(self.data), size))
        edges = np.unique(np.concatenate([[0], cuts, [len(self)]])).tolist()
        return list(pairwise(edges))

    def classes(self, table: np.ndarray, first: int, last: int) -> np.ndarray:
        """Class of every byte of records [first, last), none invalid; headers and comments are skipped.

        Raises:
            InputError: a character that is no letter.
        """
        base, end = int(self.starts[first]), int(self.ends[last - 1])
        found = table[self.bytes[base:end]]
        for a, b in zip(self.starts[first:last].tolist(), self.body_starts[first:last].tolist(), strict=True):
            found[a - base : b - base] = _SKIP
        inside = slice(*np.searchsorted(self.comment_starts, [base, end]).tolist())
        spans = (self.comment_starts[inside] - base, self.comment_ends[inside] - base)
        for a, b in zip(*(edges.tolist() for edges in spans), strict=True):
            found[a:b] = _SKIP
        invalid = found == _INVALID
        if invalid.any():
            offset = base + int(invalid.argmax())
            line = self.line_of(offset)
            column = offset - int(self.line_starts[line - 1]) + 1
            character = chr(self.bytes[offset])
            shown = repr(character) if character.isprintable() else f"byte {self.bytes[offset]:#04x}"
            raise InputError(f"{shown} is no residue letter", self.source, line, column)
        return found


class _RaggedError(Exception):
    """Rows that differ in length, under one reading of the file."""

    def __init__(self, row: int, length: int, expected: int) -> None:
        self.row, self.length, self.expected = row, length, expected


def _fasta_like_rows(data: bytes, source: str | None) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names, letters and deletions of an A3M or an aligned FASTA file."""
    records = _Records(data, source)
    names = records.names()
    try:
        return names, *_fill(records, _A3M_CLASSES)
    except _RaggedError as error:
        as_a3m = error.with_traceback(None)  # it would keep the arrays that were half-way
    # lower case beside a query in upper case means insertions, so that only A3M can be meant
    lower_case = as_a3m.row == 0
    try:
        return names, *_fill(records, _ALIGNED_CLASSES if lower_case else _UPPER_CASE_ALIGNED_CLASSES)
    except (_RaggedError, InputError):
        raise _ragged_input(as_a3m, names, records) from None


def _ragged_input(error: _RaggedError, names: tuple[str, ...], records: _Records) -> InputError:
    line = records.line_of(int(records.starts[error.row]))
    if error.row == 0:
        if error.length == 0:
            return InputError("the query (first row) is empty", records.source, line)
        return InputError(
            "the query (first row) has insertions (lower case): its columns must be the query's residues",
            records.source,
            line,
        )
    name = names[error.row].split(maxsplit=1)[0] if names[error.row] else "unnamed"
    return InputError(ragged_reason(error.row, name, error.length, error.expected), records.source, line)


def _fill(records: _Records, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Letters and deletions [rows, columns] under one reading of the characters.

    Raises:
        _RaggedError: rows differ in length, the query is empty or has insertions.
    """
    blocks = iter(records.blocks())
    try:
        return _fill_blocks(records, table, blocks)
    except _RaggedError:
        # a character that is no letter is the plainer reason, wherever it stands
        for first, last in blocks:
            records.classes(table, first, last)
        raise


def _fill_blocks(
    records: _Records, table: np.ndarray, blocks: Iterator[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    result: QueryColumns | None = None
    for first, last in blocks:
        classes = records.classes(table, first, last)
        base = int(records.starts[first])
        row_starts = records.starts[first:last] - base
        match = classes == _MATCH
        lengths = np.add.reduceat(match, row_starts, dtype=np.int64)
        inserted = np.flatnonzero(classes == _INSERT)
        if result is None:
            width = int(lengths[0])
            if width == 0 or np.any(inserted < records.ends[0] - base):
                raise _RaggedError(0, width, width)
        if np.any(lengths != width):
            odd = int(np.argmax(lengths != width))
            raise _RaggedError(first + odd, int(lengths[odd]), width)
        block = records.bytes[base : base + len(classes)]
        letters = _UPPER[block[match]].reshape(last - first, width)
        if result is None:
            result = QueryColumns(len(records), letters[0])
        row = np.searchsorted(row_starts, inserted, side="right") - 1
        following = np.cumsum(match, dtype=np.int64)[inserted]
        # an insertion after the last column precedes no column of its row and is counted nowhere
        following = following[following < (row + 1) * width]
        result.put(first, letters, *np.unique(following, return_counts=True))
    assert result is not None  # a file without records was refused
    return result.letters, result.deletions
