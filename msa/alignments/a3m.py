"""A3M files, read and written, and aligned FASTA files, read.

In A3M every row has one column per query residue, upper case or `-`; residues that a row inserts between two
columns are lower case. In aligned FASTA all rows have the same length, in either case. HH-suite's rows with
the secondary structure are skipped.
"""

import io
import re
import string
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import IO, NamedTuple

import numpy as np

from msa.alignments import query_columns
from msa.alignments.alignment_rows import a3m_rows
from msa.alignments.query_columns import QueryColumns, ragged_reason
from msa.alignments.taxonomy import organism_fields
from msa.base.errors import InputError
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord, first_word
from msa.io.molecules import is_annotation

# ColabFold's first line: the lengths of the distinct chains, then the number of copies of each
_CHAIN_LINE = re.compile(rb"#(\d{1,18}(?:,\d{1,18})*)[ \t]+(\d{1,18}(?:,\d{1,18})*)[ \t\r]*$")
# several numbers in a comment, which are meant to be such a line
_NUMBERS = re.compile(rb"#\s*\d+(?:[,;\s]+\d+)+\s*$")

_UPPER, _LOWER, _SPACE = (
    each.encode() for each in (string.ascii_uppercase, string.ascii_lowercase, " \t\r\n")
)
_TO_RESIDUES = bytes.maketrans(_LOWER + b".", _UPPER + b"-")
_HEADER = re.compile(rb"^>(.*)$", re.MULTILINE)
_COMMENT = re.compile(rb"^#.*$", re.MULTILINE)


class _Kind(NamedTuple):
    """An interpretation of the characters of rows: residues and gaps, insertions, and others to skip."""

    residues: bytes
    insertions: bytes
    skipped: bytes


# in A3M a dot only pads insertions to equal length; in aligned FASTA it is a gap
_A3M = _Kind(_UPPER + b"-", _LOWER, _SPACE + b".")
_ALIGNED = _Kind(_UPPER + _LOWER + b"-.", b"", _SPACE)
_UPPER_CASE_ALIGNED = _Kind(_UPPER + b"-.", b"", _SPACE)


def parse_chain_line(data: bytes, source: str | None) -> tuple[list[int], list[int]] | None:
    """Return the lengths and the copies of the distinct chains in ColabFold's first line.

    Returns:
        Two lists of the same length; None if there is no such line before the first record.

    Raises:
        InputError: the numbers of lengths and copies differ, or other numbers stand in a line of their own.
    """
    for number, line in enumerate(io.BytesIO(data), 1):
        if line.strip() and not line.startswith(b"#"):
            return None
        if (match := _CHAIN_LINE.match(line)) is not None:
            lengths, copies = ([int(value) for value in group.split(b",")] for group in match.groups())
            if len(lengths) != len(copies):
                raise InputError("lengths and counts of the header line do not match", source, number)
            return lengths, copies
        if _NUMBERS.match(line):
            reason = "expected the lengths of the chains, a tab, and their copies, such as #76,56<TAB>1,1"
            raise InputError(reason, source, number)
    return None


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
    records = _Records(data, source)
    try:
        return records.names, *_fill(records, _A3M)
    except _RaggedError as error:
        as_a3m = error.with_traceback(None)  # its traceback would keep half-filled arrays in memory
    # lower case next to an upper-case query means insertions, so the file can only be A3M
    lower_case = as_a3m.row == 0
    try:
        return records.names, *_fill(records, _ALIGNED if lower_case else _UPPER_CASE_ALIGNED)
    except (_RaggedError, InputError):
        raise _ragged_input(as_a3m, records) from None


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
    records = _Records(data, source)
    starts = [start for start, _, _ in records.spans]
    pieces = (data.count(b"\n", first, end) for first, end in pairwise([0, *starts]))
    lines = 1 + np.array(list(accumulate(pieces)))
    try:
        return records.names, *_fill(records, _A3M, width), lines
    except _RaggedError as error:
        ragged = error.with_traceback(None)
    name = first_word(records.names[ragged.row]) or "unnamed"
    reason = f"row {ragged.row + 1} ({name}) has {ragged.length} columns, the header line declares {width}"
    raise InputError(reason, source, int(lines[ragged.row]))


class _Records:
    """The records of a FASTA-like file without annotations, which are skipped like comments.

    Attributes:
        names: their headers.
        spans: offsets of the first byte of each record, of the end of its header, and of its end.
    """

    def __init__(self, data: bytes, source: str | None) -> None:
        self.data, self.source = data, source
        headers = list(_HEADER.finditer(data))
        self._check_text_before(headers[0].start() if headers else 0)
        ends = [header.start() for header in headers[1:]] + [len(data)]
        texts = [header[1].decode("utf-8", "replace") for header in headers]
        rows = [k for k, text in enumerate(texts) if not is_annotation(text)]
        if not rows:
            raise InputError("no sequences", source)
        self.names = tuple(texts[k].strip() for k in rows)
        self.spans = [(*headers[k].span(), ends[k]) for k in rows]

    def __len__(self) -> int:
        return len(self.spans)

    def body(self, row: int) -> bytes:
        """Return the lines of a record after its header, without comments."""
        _, start, end = self.spans[row]
        body = self.data[start:end]
        return _COMMENT.sub(b"", body) if b"#" in body else body

    def line_of(self, offset: int) -> int:
        """Return the 1-based number of the line that contains a byte."""
        return self.data.count(b"\n", 0, offset) + 1

    def _check_text_before(self, end: int) -> None:
        """Raise InputError if a line before this offset is neither blank nor a comment."""
        for number, line in enumerate(self.data[:end].split(b"\n"), 1):
            if line.strip() and not line.startswith(b"#"):
                raise InputError("text before the first header line ('>')", self.source, number)

    def check_letters(self, kind: _Kind) -> None:
        """Raise InputError for the first character that is not a letter."""
        allowed = b"".join(kind)
        for row, (_, start, end) in enumerate(self.spans):
            if not (invalid := self.body(row).translate(None, allowed)):
                continue
            comments = [comment.span() for comment in _COMMENT.finditer(self.data, start, end)]
            offset = start
            while self.data[offset] != invalid[0] or any(a <= offset < b for a, b in comments):
                offset += 1
            character = chr(invalid[0])
            shown = repr(character) if character.isprintable() else f"byte {invalid[0]:#04x}"
            column = offset - self.data.rfind(b"\n", 0, offset)
            raise InputError(f"{shown} is not a residue letter", self.source, self.line_of(offset), column)


class _RaggedError(Exception):
    """Rows of different length under one interpretation of the file."""

    def __init__(self, row: int, length: int, expected: int) -> None:
        self.row, self.length, self.expected = row, length, expected


def _ragged_input(error: _RaggedError, records: _Records) -> InputError:
    """Return the user's error for a row of the wrong length."""
    line = records.line_of(records.spans[error.row][0])
    if error.row == 0:
        reason = "the query (first row) is empty"
        if error.length:
            reason = (
                "the query (first row) has insertions (lower case): its columns must be the query's residues"
            )
        return InputError(reason, records.source, line)
    name = first_word(records.names[error.row]) or "unnamed"
    return InputError(ragged_reason(error.row, name, error.length, error.expected), records.source, line)


def _fill(records: _Records, kind: _Kind, width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return letters and deletions [rows, columns] under one interpretation of the characters.

    Args:
        records: the rows.
        kind: the interpretation.
        width: number of columns, all of which are kept; by default only those in which the first row, the
            query, has a residue are kept.

    Raises:
        _RaggedError: rows differ in length, or the query is empty or has insertions.
        InputError: a character that is not a letter.
    """
    records.check_letters(kind)
    dropped = kind.insertions + kind.skipped
    query = records.body(0).translate(_TO_RESIDUES, dropped)
    if width is None:
        width = len(query)
        if not width or len(records.body(0).translate(None, kind.skipped)) > width:
            raise _RaggedError(0, width, width)
    else:
        query = b"X" * width
    result = QueryColumns(len(records), np.frombuffer(query, np.uint8))
    step = max(1, query_columns.BLOCK_BYTES // width)
    for first in range(0, len(records), step):
        bodies = [records.body(row) for row in range(first, min(first + step, len(records)))]
        rows = [body.translate(_TO_RESIDUES, dropped) for body in bodies]
        for row, letters in enumerate(rows, first):
            if len(letters) != width:
                raise _RaggedError(row, len(letters), width)
        block = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, width)
        following = counts = np.zeros(0, np.int64)
        # an insertion after the last column has no column to follow it and is not counted
        text = b"".join(body.translate(None, kind.skipped).rstrip(kind.insertions) for body in bodies)
        if len(text) > block.size:
            is_inserted = np.frombuffer(text, np.uint8) >= _LOWER[0]
            following = np.cumsum(~is_inserted, dtype=np.int64)[is_inserted]
            following, counts = np.unique(following, return_counts=True)
        result.add_rows(first, block, following, counts)
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
