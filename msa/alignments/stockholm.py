"""Stockholm files, read and written.

The rows of a Stockholm file may be split over several blocks of lines. Every row has the same length, so
insertions have separate columns.
"""

import io
import re
import string
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from msa.alignments import query_columns
from msa.alignments.alignment_rows import a3m_rows
from msa.alignments.query_columns import QueryColumns, ragged_reason
from msa.base.errors import InputError
from msa.hits.hits import Hit, Hits
from msa.io.fasta import FastaRecord, unique_names

START = b"# STOCKHOLM"

_UPPER, _LOWER = string.ascii_uppercase.encode(), string.ascii_lowercase.encode()
_TO_RESIDUES = bytes.maketrans(_LOWER + b".", _UPPER + b"-")

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
    rows: dict[bytes, bytearray] = {}
    first_lines: list[int] = []
    in_block: set[bytes] = set()  # blocks of lines end at blank lines
    for number, words in _rows(data, source):
        if not words:
            in_block.clear()
            continue
        if len(words) != 2:
            raise InputError("expected a name and a piece of sequence", source, number)
        name, piece = words
        if name in in_block:
            reason = f"a second row has the name {name.decode('utf-8', 'replace')}"
            raise InputError(reason, source, number)
        in_block.add(name)
        if name not in rows:
            rows[name] = bytearray()
            first_lines.append(number)
        rows[name] += piece
    if not rows:
        raise InputError("no sequences", source)
    names, texts = tuple(name.decode("utf-8", "replace") for name in rows), list(rows.values())
    width = len(texts[0])
    for row, text in enumerate(texts):
        if len(text) != width:
            raise InputError(ragged_reason(row, names[row], len(text), width), source, first_lines[row])
    for name, text in rows.items():
        if invalid := text.translate(None, _UPPER + _LOWER + b"-."):
            reason = f"{chr(invalid[0])!r} in {name.decode('utf-8', 'replace')} is not a residue letter"
            raise InputError(reason, source, _line_of(data, name, text.index(invalid[0])))
    result = QueryColumns(len(names), np.frombuffer(texts[0].translate(_TO_RESIDUES), np.uint8))
    step, no_insertions = max(1, query_columns.BLOCK_BYTES // width), np.zeros(0, np.int64)
    for first in range(0, len(names), step):
        block = b"".join(text.translate(_TO_RESIDUES) for text in texts[first : first + step])
        letters = np.frombuffer(block, np.uint8).reshape(-1, width)
        result.add_rows(first, letters, no_insertions, no_insertions)
    return names, result.letters, result.deletions


def _rows(data: bytes, source: str | None) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the numbers, from 1, and the words of the rows and blank lines of the only alignment.

    Raises:
        InputError: a second alignment, or text after the end of the first.
    """
    has_begun = has_ended = False
    for number, line in enumerate(io.BytesIO(data), 1):
        if has_begun and line.startswith(START):
            raise InputError("a second alignment begins here: put each in a separate file", source, number)
        words = line.split()
        if words and words[0].startswith(b"#"):
            has_begun |= line.lstrip().startswith(START)
            continue
        if has_ended and words:
            raise InputError("text after the end of the alignment (`//`)", source, number)
        has_ended |= words[:1] == [b"//"]
        if not has_ended:
            yield number, words


def _line_of(data: bytes, name: bytes, column: int) -> int:
    """Return the number of the line with a column of a row."""
    for number, words in _rows(data, None):
        if words[:1] == [name]:
            if column < len(words[1]):
                return number
            column -= len(words[1])
    raise AssertionError("the column was found in this file")


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
