"""A3M files, read and written, and aligned FASTA files, read.

In A3M every row has one column per query residue, upper case or `-`; residues that a row inserts between two
columns are lower case. In aligned FASTA all rows have the same length, in either case. HH-suite's rows with
the secondary structure are skipped.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import IO

import numpy as np

from msa.alignments import query_columns
from msa.alignments.alignment_rows import a3m_rows
from msa.alignments.query_columns import GAP, QueryColumns, ragged_reason
from msa.alignments.taxonomy import organism_fields
from msa.base.errors import InputError
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord, first_word
from msa.io.molecules import is_annotation

_SKIP, _MATCH, _INSERT, _INVALID = range(4)

# ColabFold's first line: the lengths of the distinct chains, then the number of copies of each
_CHAIN_LINE = re.compile(rb"#(\d{1,18}(?:,\d{1,18})*)[ \t]+(\d{1,18}(?:,\d{1,18})*)[ \t\r]*$")
# several numbers in a comment, which are meant to be such a line
_NUMBERS = re.compile(rb"#\s*\d+(?:[,;\s]+\d+)+\s*$")

# first letters of the names that `is_annotation` recognises
_ANNOTATION_LETTERS = np.frombuffer(b"sSaA", np.uint8)

_UPPER = np.arange(256, dtype=np.uint8)
_UPPER[ord("a") : ord("z") + 1] -= 32
_UPPER[ord(".")] = GAP


def _classes(lower: int, dot: int) -> np.ndarray:
    """Return the class of every byte value, given the classes of lower-case letters and of the dot."""
    table = np.full(256, _INVALID, np.uint8)
    table[ord("A") : ord("Z") + 1] = _MATCH
    table[ord("a") : ord("z") + 1] = lower
    table[GAP] = _MATCH
    table[ord(".")] = dot
    table[list(b" \t\r\n")] = _SKIP
    return table


# in A3M a dot only pads insertions to equal length; in aligned FASTA it is a gap
_A3M_CLASSES = _classes(lower=_INSERT, dot=_SKIP)
_ALIGNED_CLASSES = _classes(lower=_MATCH, dot=_MATCH)
_UPPER_CASE_ALIGNED_CLASSES = _classes(lower=_INVALID, dot=_MATCH)


def parse_chain_line(data: bytes, source: str | None) -> tuple[list[int], list[int]] | None:
    """Return the lengths and the copies of the distinct chains in ColabFold's first line.

    Returns:
        Two lists of the same length; None if there is no such line before the first record.

    Raises:
        InputError: the numbers of lengths and copies differ, or other numbers stand in a line of their own.
    """
    for number, line in enumerate(_lines_before_records(data), 1):
        if (match := _CHAIN_LINE.match(line)) is not None:
            lengths, copies = ([int(value) for value in group.split(b",")] for group in match.groups())
            if len(lengths) != len(copies):
                raise InputError("lengths and counts of the header line do not match", source, number)
            return lengths, copies
        if _NUMBERS.match(line):
            reason = "expected the lengths of the chains, a tab, and their copies, such as #76,56<TAB>1,1"
            raise InputError(reason, source, number)
    return None


def _lines_before_records(data: bytes) -> Iterator[bytes]:
    """Yield the blank lines and comments before the first record."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        line = data[start : len(data) if end < 0 else end]
        if line.strip() and not line.startswith(b"#"):
            return
        yield line
        start += len(line) + 1


def parse_rows(data: bytes, source: str | None) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Parse A3M or aligned FASTA.

    Args:
        data: decompressed content that starts with `>` or `#`.
        source: file name for errors.

    Returns:
        names, letters and deletions; see `msa.alignments.files.Alignment`.

    Raises:
        InputError: rows of different length, a character that is not a letter, no sequences, text before the
            first header, or a query that is empty or has insertions.
    """
    records = _RecordOffsets(data, source)
    names = records.names()
    try:
        return names, *_fill(records, _A3M_CLASSES)
    except _RaggedError as error:
        as_a3m = error.with_traceback(None)  # its traceback would keep half-filled arrays in memory
    # lower case next to an upper-case query means insertions, so the file can only be A3M
    lower_case = as_a3m.row == 0
    try:
        return names, *_fill(records, _ALIGNED_CLASSES if lower_case else _UPPER_CASE_ALIGNED_CLASSES)
    except (_RaggedError, InputError):
        raise _ragged_input(as_a3m, names, records) from None


def parse_columns(
    data: bytes, source: str | None, width: int
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]:
    """Parse A3M with a known number of columns, and keep all of them, even where the first row has a gap.

    Args:
        data: decompressed content that starts with `>` or `#`.
        source: file name for errors.
        width: number of columns of every row.

    Returns:
        names, letters and deletions (see `files.Alignment`), and the line of each row's header.

    Raises:
        InputError: a row has another number of columns, a character that is not a letter, no sequences, or
            text before the first header.
    """
    records = _RecordOffsets(data, source)
    names = records.names()
    lines = np.searchsorted(records.line_starts, records.starts, side="right")
    try:
        return names, *_fill(records, _A3M_CLASSES, width), lines
    except _RaggedError as error:
        ragged = error.with_traceback(None)
    name = first_word(names[ragged.row]) or "unnamed"
    reason = f"row {ragged.row + 1} ({name}) has {ragged.length} columns, the header line declares {width}"
    raise InputError(reason, source, int(lines[ragged.row]))


class _RecordOffsets:
    """Byte offsets of the lines and records of a FASTA-like file."""

    def __init__(self, data: bytes, source: str | None) -> None:
        self.data, self.source = data, source
        self.bytes = np.frombuffer(data, np.uint8)
        self.line_ends = np.append(np.flatnonzero(self.bytes == ord("\n")), len(data))
        self.line_starts = np.append(0, self.line_ends[:-1] + 1)
        self.line_starts = self.line_starts[self.line_starts < len(data)]
        self.line_ends = self.line_ends[: len(self.line_starts)]
        first = self.bytes[self.line_starts]
        headers = np.flatnonzero(first == ord(">"))
        if len(headers):
            self._check_text_before(int(headers[0]))
        # annotations are skipped like comments: lines of both are left out of the rows before them
        skipped = first == ord("#")
        is_row = np.ones(len(headers), bool)
        for index in self._annotations(headers):
            is_row[index] = False
            skipped[headers[index] : headers[index + 1] if index + 1 < len(headers) else None] = True
        self.skipped_starts, self.skipped_ends = self.line_starts[skipped], self.line_ends[skipped]
        headers = headers[is_row]
        if len(headers) == 0:
            raise InputError("no sequences", source)
        self.starts = self.line_starts[headers]
        self.body_starts = self.line_ends[headers]
        self.ends = np.append(self.starts[1:], len(data))

    def __len__(self) -> int:
        return len(self.starts)

    def _annotations(self, headers: np.ndarray) -> Iterator[int]:
        """Yield the indices of the records, among those with headers at these lines, that are annotations."""
        letters = self.bytes[np.minimum(self.line_starts[headers] + 1, len(self.bytes) - 1)]
        for index in np.flatnonzero(np.isin(letters, _ANNOTATION_LETTERS)).tolist():
            line = headers[index]
            header = self.data[self.line_starts[line] + 1 : self.line_ends[line]]
            if is_annotation(header.decode("utf-8", "replace")):
                yield index

    def _check_text_before(self, line_index: int) -> None:
        """Raise InputError if a line before this one is neither blank nor a comment."""
        starts, ends = self.line_starts[:line_index], self.line_ends[:line_index]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            line = self.data[start:end]
            if line.strip() and not line.startswith(b"#"):
                raise InputError("text before the first header line ('>')", self.source, self.line_of(start))

    def line_of(self, offset: int) -> int:
        """Return the 1-based number of the line that contains a byte."""
        return int(np.searchsorted(self.line_starts, offset, side="right"))

    def names(self) -> tuple[str, ...]:
        """Return the headers of all records."""
        names: list[str] = []
        for first, last in self.blocks():
            spans = zip(self.starts[first:last].tolist(), self.body_starts[first:last].tolist(), strict=True)
            names += [self.data[a + 1 : b].decode("utf-8", "replace").strip() for a, b in spans]
        return tuple(names)

    def blocks(self) -> list[tuple[int, int]]:
        """Return ranges [first, last) of records, each of about `BLOCK_BYTES` bytes."""
        size = query_columns.BLOCK_BYTES
        cuts = np.searchsorted(self.starts, np.arange(size, len(self.data), size))
        edges = np.unique(np.concatenate([[0], cuts, [len(self)]])).tolist()
        return list(pairwise(edges))

    def classes(self, table: np.ndarray, first: int, last: int) -> np.ndarray:
        """Classify every byte of records [first, last); headers and comments get `_SKIP`.

        Raises:
            InputError: a character that is not a letter.
        """
        base, end = int(self.starts[first]), int(self.ends[last - 1])
        classes = table[self.bytes[base:end]]
        for a, b in zip(self.starts[first:last].tolist(), self.body_starts[first:last].tolist(), strict=True):
            classes[a - base : b - base] = _SKIP
        inside = slice(*np.searchsorted(self.skipped_starts, [base, end]).tolist())
        spans = (self.skipped_starts[inside] - base, self.skipped_ends[inside] - base)
        for a, b in zip(*(edges.tolist() for edges in spans), strict=True):
            classes[a:b] = _SKIP
        invalid = classes == _INVALID
        if invalid.any():
            offset = base + int(invalid.argmax())
            line = self.line_of(offset)
            column = offset - int(self.line_starts[line - 1]) + 1
            character = chr(self.bytes[offset])
            shown = repr(character) if character.isprintable() else f"byte {self.bytes[offset]:#04x}"
            raise InputError(f"{shown} is not a residue letter", self.source, line, column)
        return classes


class _RaggedError(Exception):
    """Rows of different length under one interpretation of the file."""

    def __init__(self, row: int, length: int, expected: int) -> None:
        self.row, self.length, self.expected = row, length, expected


def _ragged_input(error: _RaggedError, names: tuple[str, ...], records: _RecordOffsets) -> InputError:
    """Return the user's error for a row of the wrong length."""
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


def _fill(
    records: _RecordOffsets, table: np.ndarray, width: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return letters and deletions [rows, columns] under one interpretation of the characters.

    Args:
        records: the rows.
        table: class of every byte value.
        width: number of columns, all of which are kept; by default only those in which the first row, the
            query, has a residue are kept.

    Raises:
        _RaggedError: rows differ in length, or the query is empty or has insertions.
        InputError: a character that is not a letter.
    """
    blocks = iter(records.blocks())
    try:
        return _fill_blocks(records, table, blocks, width)
    except _RaggedError:
        # an invalid character anywhere in the rest of the file is the clearer error
        for first, last in blocks:
            records.classes(table, first, last)
        raise


def _fill_blocks(
    records: _RecordOffsets, table: np.ndarray, blocks: Iterator[tuple[int, int]], width: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Fill in the alignment one block at a time; see `_fill`."""
    result: QueryColumns | None = None
    keep_all = width is not None
    for first, last in blocks:
        classes = records.classes(table, first, last)
        base = int(records.starts[first])
        row_starts = records.starts[first:last] - base
        match = classes == _MATCH
        lengths = np.add.reduceat(match, row_starts, dtype=np.int64)
        inserted = np.flatnonzero(classes == _INSERT)
        if width is None:
            width = int(lengths[0])
            if width == 0 or np.any(inserted < records.ends[0] - base):
                raise _RaggedError(0, width, width)
        if np.any(lengths != width):
            ragged = int(np.argmax(lengths != width))
            raise _RaggedError(first + ragged, int(lengths[ragged]), width)
        block = records.bytes[base : base + len(classes)]
        letters = _UPPER[block[match]].reshape(last - first, width)
        if result is None:
            result = QueryColumns(len(records), np.full(width, ord("X")) if keep_all else letters[0])
        row = np.searchsorted(row_starts, inserted, side="right") - 1
        following = np.cumsum(match, dtype=np.int64)[inserted]
        # an insertion after the last column has no column to follow it and is not counted
        following = following[following < (row + 1) * width]
        result.add_rows(first, letters, *np.unique(following, return_counts=True))
    assert result is not None  # _RecordOffsets rejects files without records
    return result.letters, result.deletions


def write_a3m(stream: IO[str], query: FastaRecord, hits: Sequence[Hit]) -> None:
    """Write the query and its hits, in the given order.

    The header of a hit has the tab-separated fields of MMseqs2 and ColabFold: id, bits, fraction identical,
    E-value, then 0-based start, 0-based end and length of the query and of the target. If the target's header
    names its organism (TaxID=, RepID=, OX=), these fields follow as one more column, separated by spaces.

    Args:
        stream: text stream.
        query: the query; its whole header is written.
        hits: the rows after the query.
    """
    arrays = Hits.from_sequence(len(query.sequence), hits)
    positions = np.concatenate([arrays.alignments.records[:, 1:3], arrays.target_spans], axis=1)
    columns = (
        arrays.headers, (arrays.bits + 0.5).astype(np.int64).tolist(), arrays.identities.tolist(),
        arrays.evalues.tolist(), *positions.T.tolist(), arrays.target_lengths.tolist(), a3m_rows(arrays),
    )  # fmt: skip
    lines = [f">{query.header}\n{query.sequence}\n"]
    for header, bits, identity, evalue, qstart, qend, tstart, tend, length, row in zip(*columns, strict=True):
        fields = (
            f"{first_word(header)}\t{bits}\t{identity:.3f}\t{evalue:.3E}\t{qstart}\t{qend}"
            f"\t{arrays.query_length}\t{tstart}\t{tend}\t{length}"
        )
        organism = organism_fields(header)
        lines.append(
            f">{fields}\t{organism}\n{row.decode()}\n" if organism else f">{fields}\n{row.decode()}\n"
        )
    stream.write("".join(lines))
