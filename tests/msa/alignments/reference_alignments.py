"""A simple alignment reader; `msa.alignments.files` must return the same arrays and errors.

It processes all bytes, then all rows, then all columns, and needs a lot of memory.
"""

import re
from itertools import pairwise

import numpy as np

from msa.alignments.files import Alignment
from msa.base.errors import InputError
from msa.io.fasta import clean_header

GAP = ord("-")
_SKIP, _MATCH, _INSERT, _INVALID = range(4)
STOCKHOLM_START = b"# STOCKHOLM"
# ColabFold's first line: the lengths of the chains, then the number of copies of each
_COLABFOLD_START = re.compile(rb"#(\d+(?:,\d+)*)[ \t]+(\d+(?:,\d+)*)[ \t\r]*$")
_NUMBERS = re.compile(rb"#\s*\d+(?:[,;\s]+\d+)+\s*$")

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


# in A3M a dot only pads insertions to equal length; in aligned FASTA it is a gap
_A3M_CLASSES = _classes(lower=_INSERT, dot=_SKIP)
_ALIGNED_CLASSES = _classes(lower=_MATCH, dot=_MATCH)
_UPPER_CASE_ALIGNED_CLASSES = _classes(lower=_INVALID, dot=_MATCH)


def parse_alignment(data: bytes, source: str | None = None) -> Alignment:
    """Parse the content of a file."""
    # MMseqs2 separates the entries of a result database by NUL, which stays at the end of its A3M files
    if b"\0" in data[-4:]:
        data = data.rstrip(b"\0\r\n")
    for before, after in pairwise(data.split(b"\0")):
        if after.lstrip().startswith((b">", b"#")):
            reason = "a second alignment begins here, after a NUL byte: put each in a separate file"
            start = data.index(before + b"\0" + after) + len(before + b"\0" + after) - len(after.lstrip())
            raise InputError(reason, source, data[:start].count(b"\n") + 1)
    start = data[:4096].lstrip()
    if not data.strip():
        raise InputError("empty file", source)
    if start.startswith(STOCKHOLM_START):
        return _parse_stockholm(data, source)
    if start.startswith((b">", b"#")):
        return _parse_fasta_like(data, source)
    raise InputError("not an alignment: neither A3M or aligned FASTA (`>`) nor Stockholm", source, 1)


def _declared_length(data: bytes, source: str | None) -> int | None:
    """Return the query length declared by ColabFold's header line; None without such a line."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip() and not line.startswith(b"#"):
            return None
        if (match := _COLABFOLD_START.match(line)) is not None:
            return _length_of_one_chain(match, source, number)
        if _NUMBERS.match(line):
            reason = "expected the lengths of the chains, a tab, and their copies, such as #76,56<TAB>1,1"
            raise InputError(reason, source, number)
    return None


def _length_of_one_chain(match: re.Match[bytes], source: str | None, number: int) -> int:
    lengths, counts = ([int(number) for number in group.split(b",")] for group in match.groups())
    if len(lengths) != len(counts):
        raise InputError("lengths and counts of the header line do not match", source, number)
    if len(lengths) > 1 or counts != [1]:
        line = f"#{','.join(map(str, lengths))}\\t{','.join(map(str, counts))}"
        raise InputError(
            f"alignment of a complex ({sum(counts)} chains, header line '{line}'): "
            "only `foldcli predict` and `cache-features` take it",
            source,
            1,
        )
    return lengths[0]


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
        self.comments = np.flatnonzero(first == ord("#"))
        if len(headers) == 0:
            raise InputError("no sequences", source)
        self.starts = self.line_starts[headers]
        self.body_starts = self.line_ends[headers]
        self.ends = np.append(self.starts[1:], len(data))
        self._check_text_before_first_header()

    def __len__(self) -> int:
        return len(self.starts)

    def _check_text_before_first_header(self) -> None:
        first_header = int(self.starts[0])
        for start, end in zip(self.line_starts.tolist(), self.line_ends.tolist(), strict=True):
            if start >= first_header:
                return
            line = self.data[start:end]
            if line.strip() and not line.startswith(b"#"):
                raise InputError("text before the first header line ('>')", self.source, self.line_of(start))

    def line_of(self, offset: int) -> int:
        """Return the 1-based number of the line that contains a byte."""
        return int(np.searchsorted(self.line_starts, offset, side="right"))

    def names(self) -> tuple[str, ...]:
        spans = zip(self.starts.tolist(), self.body_starts.tolist(), strict=True)
        return tuple(self.data[a + 1 : b].decode("utf-8", "replace").strip() for a, b in spans)

    def classes(self, table: np.ndarray, first: int, last: int) -> np.ndarray:
        """Classify every byte of records [first, last); headers and comments get `_SKIP`.

        Raises:
            InputError: a character that is not a letter.
        """
        base, end = int(self.starts[first]), int(self.ends[last - 1])
        found = table[self.bytes[base:end]]
        for a, b in zip(self.starts[first:last].tolist(), self.body_starts[first:last].tolist(), strict=True):
            found[a - base : b - base] = _SKIP
        for comment in self.comments.tolist():
            if base <= self.line_starts[comment] < end:
                found[self.line_starts[comment] - base : self.line_ends[comment] - base] = _SKIP
        invalid = found == _INVALID
        if invalid.any():
            offset = base + int(invalid.argmax())
            line = self.line_of(offset)
            column = offset - int(self.line_starts[line - 1]) + 1
            character = chr(self.bytes[offset])
            shown = repr(character) if character.isprintable() else f"byte {self.bytes[offset]:#04x}"
            raise InputError(f"{shown} is not a residue letter", self.source, line, column)
        return found


class _RaggedError(Exception):
    """Rows of different length under one interpretation of the file."""

    def __init__(self, row: int, length: int, expected: int) -> None:
        self.row, self.length, self.expected = row, length, expected


def _parse_fasta_like(data: bytes, source: str | None) -> Alignment:
    declared = _declared_length(data, source)
    records = _RecordOffsets(data, source)
    names = records.names()
    try:
        letters, deletions = _fill(records, _A3M_CLASSES)
    except _RaggedError as as_a3m:
        # lower case next to an upper-case query means insertions, so the file can only be A3M
        lower_case = as_a3m.row == 0
        try:
            letters, deletions = _fill(
                records, _ALIGNED_CLASSES if lower_case else _UPPER_CASE_ALIGNED_CLASSES
            )
        except (_RaggedError, InputError):
            raise _ragged_input(as_a3m, names, records) from None
    letters, deletions = _restrict_to_query(letters, deletions, source)
    if declared is not None and declared != letters.shape[1]:
        raise InputError(
            f"the header line declares {declared} residues, the query has {letters.shape[1]}", source, 1
        )
    return Alignment(tuple(map(clean_header, names)), letters, deletions, source)


def _ragged_input(error: _RaggedError, names: tuple[str, ...], records: _RecordOffsets) -> InputError:
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
    return InputError(_ragged_reason(error.row, name, error.length, error.expected), records.source, line)


def _ragged_reason(row: int, name: str, length: int, expected: int) -> str:
    return f"row {row + 1} ({name}) has {length} columns, the query has {expected}"


def _fill(records: _RecordOffsets, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return letters and deletions [rows, columns] under one interpretation of the characters.

    Raises:
        _RaggedError: rows differ in length, or the query is empty or has insertions.
    """
    letters = np.empty((0, 0), np.uint8)
    indices, sizes = [], []  # the non-zero deletions: flat index, count
    for first, last in [(0, len(records))]:
        classes = records.classes(table, first, last)
        base = int(records.starts[first])
        row_starts = records.starts[first:last] - base
        match = classes == _MATCH
        lengths = np.add.reduceat(match, row_starts, dtype=np.int64)
        inserted = np.flatnonzero(classes == _INSERT)
        if first == 0:
            columns = int(lengths[0])
            if columns == 0 or np.any(inserted < records.ends[0] - base):
                raise _RaggedError(0, columns, columns)
            letters = np.empty((len(records), columns), np.uint8)
        if np.any(lengths != columns):
            ragged = int(np.argmax(lengths != columns))
            raise _RaggedError(first + ragged, int(lengths[ragged]), columns)
        block = records.bytes[base : base + len(classes)]
        letters[first:last] = _UPPER[block[match]].reshape(last - first, columns)
        if len(inserted):
            row = np.searchsorted(row_starts, inserted, side="right") - 1
            following = np.cumsum(match, dtype=np.int32)[inserted]
            # an insertion after the last column has no column to follow it and is not counted
            following = following[following < (row + 1) * columns] + first * columns
            index, count = np.unique(following, return_counts=True)
            indices.append(index)
            sizes.append(count)
    largest = max((int(count.max(initial=0)) for count in sizes), default=0)
    deletions = np.zeros(letters.shape, np.min_scalar_type(largest))
    for index, count in zip(indices, sizes, strict=True):
        deletions.reshape(-1)[index] = count
    return letters, deletions


def _restrict_to_query(
    letters: np.ndarray, deletions: np.ndarray, source: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """Keep the columns in which the query has a residue; residues in the others become deletions."""
    kept = np.flatnonzero(letters[0] != GAP)
    if len(kept) == 0:
        raise InputError("the query (first row) has no residues", source)
    if len(kept) == letters.shape[1]:
        return letters, deletions
    counts = (letters != GAP).astype(deletions.dtype if deletions.any() else np.uint8)
    counts[:, kept] = 0
    # sum over each kept column and the dropped ones before it; those after the last are not counted
    segment_starts = np.append(0, kept[:-1] + 1)
    summed = np.add.reduceat(counts[:, : kept[-1] + 1], segment_starts, axis=1, dtype=np.int64)
    summed += np.add.reduceat(deletions[:, : kept[-1] + 1], segment_starts, axis=1, dtype=np.int64)
    return np.ascontiguousarray(letters[:, kept]), summed.astype(np.min_scalar_type(int(summed.max())))


def _parse_stockholm(data: bytes, source: str | None) -> Alignment:
    """Parse the first alignment of a Stockholm file; its first sequence is the query.

    As in AlphaFold's parser, except that here `.` is a gap too and lower case equals upper case.
    """
    parts: dict[bytes, list[bytes]] = {}
    first_lines: dict[bytes, int] = {}
    block: set[bytes] = set()
    has_begun = has_ended = False
    for number, line in enumerate(data.split(b"\n"), start=1):
        words = line.split()
        if has_begun and line.startswith(STOCKHOLM_START):
            reason = "a second alignment begins here: put each in a separate file"
            raise InputError(reason, source, number)
        has_begun |= line.lstrip().startswith(STOCKHOLM_START)
        if not words:
            block = set()
            continue
        if words[0].startswith(b"#"):
            continue
        if has_ended:
            raise InputError("text after the end of the alignment (`//`)", source, number)
        if words[0] == b"//":
            has_ended = True
            continue
        if len(words) != 2:
            raise InputError("expected a name and a piece of sequence", source, number)
        if words[0] in block:
            name = words[0].decode("utf-8", "replace")
            raise InputError(f"a second row has the name {name}", source, number)
        block.add(words[0])
        parts.setdefault(words[0], []).append(words[1])
        first_lines.setdefault(words[0], number)
    if not parts:
        raise InputError("no sequences", source)
    rows = [b"".join(pieces) for pieces in parts.values()]
    for row, name in enumerate(parts):
        if len(rows[row]) != len(rows[0]):
            reason = _ragged_reason(row, name.decode("utf-8", "replace"), len(rows[row]), len(rows[0]))
            raise InputError(reason, source, first_lines[name])
    raw = np.frombuffer(b"".join(rows), np.uint8)
    invalid = _ALIGNED_CLASSES[raw] != _MATCH
    if invalid.any():
        offset = int(invalid.argmax())
        name = list(parts)[offset // len(rows[0])]
        raise InputError(
            f"{chr(raw[offset])!r} in {name.decode('utf-8', 'replace')} is not a residue letter",
            source,
            _stockholm_line(data, name, offset % len(rows[0])),
        )
    letters = _UPPER[raw].reshape(len(rows), -1)
    letters, deletions = _restrict_to_query(letters, np.zeros_like(letters), source)
    names = tuple(clean_header(name.decode("utf-8", "replace")) for name in parts)
    return Alignment(names, letters, deletions, source)


def _stockholm_line(data: bytes, name: bytes, column: int) -> int:
    """Return the 1-based line of the piece of `name` that contains an alignment column."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        words = line.split()
        if len(words) == 2 and words[0] == name:
            if column < len(words[1]):
                return number
            column -= len(words[1])
    raise AssertionError("the column was found in this file")
