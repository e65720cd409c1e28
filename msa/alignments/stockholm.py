"""Stockholm files, read and written.

The rows of a Stockholm file may be split over several blocks of lines. Every row has the same length, so
insertions have separate columns.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from msa.alignments import query_columns
from msa.alignments.alignment_rows import a3m_rows
from msa.alignments.query_columns import GAP, QueryColumns, ragged_reason
from msa.base.errors import InputError
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord, unique_names

START = b"# STOCKHOLM"

# upper-case letter or gap of every byte; 0 if it is not a residue letter
_RESIDUE = np.zeros(256, np.uint8)
for _letter in range(ord("A"), ord("Z") + 1):
    _RESIDUE[_letter] = _RESIDUE[_letter + 32] = _letter
_RESIDUE[[GAP, ord(".")]] = GAP

# a query column of an A3M row, with the insertion before it
_A3M_COLUMN = re.compile(r"([a-z]*)([A-Z-])")


def parse_rows(data: bytes, source: str | None) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Parse the alignment of a Stockholm file; its first sequence is the query.

    As in AlphaFold's parser, except that here `.` is a gap too and lower case equals upper case.

    Returns:
        names, letters and deletions; see `msa.alignments.files.Alignment`.

    Raises:
        InputError: a line that is not a name and a piece of a sequence, a name that occurs twice in a block
            of lines, rows of different length, a character that is not a letter, no sequences, or a second
            alignment.
    """
    pieces = _Pieces(data, source)
    pieces.check_lengths()
    result: QueryColumns | None = None
    no_insertions = np.zeros(0, np.int64)
    for first, rows in pieces.blocks():
        if result is None:
            result = QueryColumns(len(pieces.names), rows[0])
        result.add_rows(first, rows, no_insertions, no_insertions)
    assert result is not None  # _Pieces rejects files without sequences
    names = tuple(name.decode("utf-8", "replace") for name in pieces.names)
    return names, result.letters, result.deletions


class _Pieces:
    """Byte offsets of the pieces of all rows, sorted by row, then by offset."""

    def __init__(self, data: bytes, source: str | None) -> None:
        self.data, self.source = data, source
        rows: dict[bytes, int] = {}
        fields = [array("q") for _ in range(4)]  # row, start, size, line
        block, last_blocks = 0, array("q")  # blocks of lines end at blank lines
        for number, start, line, words in _rows(data, source):
            if not words:
                block += 1
                continue
            if len(words) != 2:
                raise InputError("expected a name and a piece of sequence", source, number)
            name, piece = words
            index = rows.setdefault(name, len(rows))
            if index == len(last_blocks):
                last_blocks.append(block)
            elif last_blocks[index] == block:
                reason = f"a second row has the name {name.decode('utf-8', 'replace')}"
                raise InputError(reason, source, number)
            last_blocks[index] = block
            values = (index, start + line.rindex(piece), len(piece), number)
            for field, value in zip(fields, values, strict=True):
                field.append(value)
        if not rows:
            raise InputError("no sequences", source)
        self.names = list(rows)
        columns = [np.frombuffer(field, np.int64) for field in fields]
        order = np.argsort(columns[0], kind="stable")
        row, self.starts, self.sizes, self.lines = (column[order] for column in columns)
        # row r has the pieces bounds[r] to bounds[r + 1] - 1
        self.bounds = np.searchsorted(row, np.arange(len(rows) + 1))

    def check_lengths(self) -> None:
        """Raise InputError for the first row whose length differs from the query's."""
        lengths = np.add.reduceat(self.sizes, self.bounds[:-1])
        if np.any(lengths != lengths[0]):
            row = int(np.argmax(lengths != lengths[0]))
            raise InputError(
                ragged_reason(row, self._name(row), int(lengths[row]), int(lengths[0])),
                self.source,
                int(self.lines[self.bounds[row]]),
            )

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield blocks of rows: the index of the first row and letters uint8 [rows, width].

        Raises:
            InputError: a character that is not a letter.
        """
        width = int(self.sizes[: self.bounds[1]].sum())
        step = max(1, query_columns.BLOCK_BYTES // width)
        view = memoryview(self.data)
        for first in range(0, len(self.names), step):
            pieces = slice(*self.bounds[[first, min(first + step, len(self.names))]].tolist())
            spans = zip(self.starts[pieces].tolist(), self.sizes[pieces].tolist(), strict=True)
            raw = np.frombuffer(b"".join(view[start : start + size] for start, size in spans), np.uint8)
            letters = _RESIDUE[raw]
            if not letters.all():
                raise self._letter_error(first, width, raw, int(np.argmin(letters != 0)))
            yield first, letters.reshape(-1, width)

    def _letter_error(self, first: int, width: int, raw: np.ndarray, offset: int) -> InputError:
        """Return the error for the byte at `offset` of a block that starts with row `first`."""
        row, column = first + offset // width, offset % width
        pieces = slice(*self.bounds[[row, row + 1]].tolist())
        piece = int(np.searchsorted(np.cumsum(self.sizes[pieces]), column, side="right"))
        reason = f"{chr(raw[offset])!r} in {self._name(row)} is not a residue letter"
        return InputError(reason, self.source, int(self.lines[pieces][piece]))

    def _name(self, row: int) -> str:
        return self.names[row].decode("utf-8", "replace")


def _rows(data: bytes, source: str | None) -> Iterator[tuple[int, int, bytes, list[bytes]]]:
    """Yield the rows and blank lines of the only alignment, as `_lines` does, with their words.

    Raises:
        InputError: a second alignment, or text after the end of the first.
    """
    has_ended = False
    for number, start, line in _lines(data):
        if line.startswith(START) and start > data.find(START):
            raise InputError("a second alignment begins here: put each in a separate file", source, number)
        words = line.split()
        if words and words[0].startswith(b"#"):
            continue
        if has_ended and words:
            raise InputError("text after the end of the alignment (`//`)", source, number)
        has_ended |= words[:1] == [b"//"]
        if not has_ended:
            yield number, start, line, words


def _lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the 1-based number, the offset and the content of every line."""
    start, number = 0, 1
    while start <= len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield number, start, data[start:end]
        start, number = end + 1, number + 1


def write_stockholm(stream: IO[str], query: FastaRecord, hits: Sequence[Hit]) -> None:
    """Write the query and its hits as Stockholm 1.0, one line per row.

    Rows are named id/first-last; repeated names get _2, _3 and so on. All residues are upper case and all
    gaps `-`; `#=GC RF` marks the query's columns with x.
    """
    arrays = Hits.from_sequence(len(query.sequence), hits)
    aligned, spans = a3m_rows(arrays), (arrays.target_spans + 1).tolist()
    rows = [_A3M_COLUMN.findall(row.decode()) for row in aligned]
    # columns needed before each query column: the length of the longest insertion there
    insertion_widths = [max((len(row[i][0]) for row in rows), default=0) for i in range(len(query.sequence))]

    def line(columns: Sequence[tuple[str, str]]) -> str:
        return "".join(
            inserted.upper().ljust(width, "-") + residue
            for (inserted, residue), width in zip(columns, insertion_widths, strict=True)
        )

    names = unique_names(
        [
            query.id or "query",
            *(f"{hit.id}/{first}-{last}" for hit, (first, last) in zip(hits, spans, strict=True)),
        ]
    )
    name_width = max(len("#=GC RF"), *map(len, names)) + 1
    stream.write("# STOCKHOLM 1.0\n")
    for name, header in zip(names, [query.header, *(hit.header for hit in hits)], strict=True):
        if description := header.partition(" ")[2].strip():
            stream.write(f"#=GS {name} DE {description}\n")
    stream.write("\n")
    texts = [line([("", residue) for residue in query.sequence]), *map(line, rows)]
    for name, text in zip(names, texts, strict=True):
        stream.write(f"{name.ljust(name_width)}{text}\n")
    reference = "".join("." * width + "x" for width in insertion_widths)
    stream.write(f"{'#=GC RF'.ljust(name_width)}{reference}\n//\n")
