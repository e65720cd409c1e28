"""Reader of Stockholm files: where the pieces of every row lie, then the rows, block by block."""

from array import array
from collections.abc import Iterator

import numpy as np

from msa.errors import InputError
from msa.io import query_columns
from msa.io.query_columns import GAP, QueryColumns

START = b"# STOCKHOLM"

# upper-case letters and gaps as they will stand in the alignment; 0 is no residue letter
_RESIDUE = np.zeros(256, np.uint8)
for _letter in range(ord("A"), ord("Z") + 1):
    _RESIDUE[_letter] = _RESIDUE[_letter + 32] = _letter
_RESIDUE[[GAP, ord(".")]] = GAP


def stockholm_rows(data: bytes, source: str | None) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names, letters and deletions of the first alignment, its columns those of the first sequence.

    As DeepMind's AlphaFold reads it, except that `.` is a gap too and lower case counts as upper.

    Raises:
        InputError: a line that is no piece of a sequence, rows of different length, a character that is no
            letter, no sequences.
    """
    pieces = _Pieces(data, source)
    pieces.refuse_ragged_rows()
    result: QueryColumns | None = None
    nothing = np.zeros(0, np.int64)
    for first, wide in pieces.blocks():
        if result is None:
            result = QueryColumns(len(pieces.names), wide[0])
        result.put(first, wide, nothing, nothing)
    assert result is not None  # no sequences were refused
    names = tuple(name.decode("utf-8", "replace") for name in pieces.names)
    return names, result.letters, result.deletions


class _Pieces:
    """Where the pieces of the rows lie in a Stockholm file, ordered by row, then place in the file."""

    def __init__(self, data: bytes, source: str | None) -> None:
        self.data, self.source = data, source
        rows: dict[bytes, int] = {}
        fields = [array("q") for _ in range(4)]  # row, start, size, line
        for number, start, line in _lines(data):
            words = line.split()
            if not words or words[0].startswith(b"#"):
                continue
            if words[0] == b"//":
                break
            if len(words) != 2:
                raise InputError("expected a name and a piece of sequence", source, number)
            name, piece = words
            where = (rows.setdefault(name, len(rows)), start + line.rindex(piece), len(piece), number)
            for field, value in zip(fields, where, strict=True):
                field.append(value)
        if not rows:
            raise InputError("no sequences", source)
        self.names = list(rows)
        found = [np.frombuffer(field, np.int64) for field in fields]
        order = np.argsort(found[0], kind="stable")
        row, self.starts, self.sizes, self.lines = (field[order] for field in found)
        # of row r are the pieces bounds[r] … bounds[r + 1]
        self.bounds = np.searchsorted(row, np.arange(len(rows) + 1))

    def refuse_ragged_rows(self) -> None:
        """Raise InputError for the first row that is longer or shorter than the query."""
        lengths = np.add.reduceat(self.sizes, self.bounds[:-1])
        if np.any(lengths != lengths[0]):
            row = int(np.argmax(lengths != lengths[0]))
            raise InputError(
                ragged_reason(row, self._name(row), int(lengths[row]), int(lengths[0])),
                self.source,
                int(self.lines[self.bounds[row]]),
            )

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """First row, and letters uint8 [rows, width], of blocks of rows in order.

        Raises:
            InputError: a character that is no letter.
        """
        width = int(self.sizes[: self.bounds[1]].sum())
        step = max(1, query_columns.BLOCK // width)
        view = memoryview(self.data)
        for first in range(0, len(self.names), step):
            pieces = slice(*self.bounds[[first, min(first + step, len(self.names))]].tolist())
            spans = zip(self.starts[pieces].tolist(), self.sizes[pieces].tolist(), strict=True)
            raw = np.frombuffer(b"".join(view[start : start + size] for start, size in spans), np.uint8)
            letters = _RESIDUE[raw]
            if not letters.all():
                self._refuse_letter(first, width, raw, int(np.argmin(letters != 0)))
            yield first, letters.reshape(-1, width)

    def _refuse_letter(self, first: int, width: int, raw: np.ndarray, offset: int) -> None:
        row, column = first + offset // width, offset % width
        pieces = slice(*self.bounds[[row, row + 1]].tolist())
        piece = int(np.searchsorted(np.cumsum(self.sizes[pieces]), column, side="right"))
        reason = f"{chr(raw[offset])!r} in {self._name(row)} is no residue letter"
        raise InputError(reason, self.source, int(self.lines[pieces][piece]))

    def _name(self, row: int) -> str:
        return self.names[row].decode("utf-8", "replace")


def _lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """1-based number, offset and content of every line, one at a time."""
    start, number = 0, 1
    while start <= len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield number, start, data[start:end]
        start, number = end + 1, number + 1


def ragged_reason(row: int, name: str, length: int, expected: int) -> str:
    """What is wrong with a row (from 0) whose length is not the query's."""
    return f"row {row + 1} ({name}) has {length} columns, the query has {expected}"
