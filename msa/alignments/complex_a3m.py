"""ColabFold's A3M files of complexes, read and written.

The first line has the lengths of the distinct chains and the number of copies of each, `#12,9<TAB>1,2`. Every
row has the columns of all distinct chains, one after the other, without copies. A row with residues in
several chains is paired; any other row belongs to the alignment of one chain. A file with one distinct chain
(`#12<TAB>2`) has no paired rows.

Files of foldcli have a further field in the header of the first row, such as `chains=1,2,1`, which lists the
distinct chains in the order of the input. In a file with this field,
- the unpaired rows of each chain are its complete alignment, including the rows that are paired;
- all rows before the unpaired ones are paired. Such a row may have residues in a single chain, if that chain
  has several copies.

ColabFold reads these files like its own.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

import numpy as np

from msa.alignments import a3m
from msa.alignments.files import Alignment
from msa.alignments.query_columns import GAP
from msa.base.errors import InputError
from msa.io.fasta import clean_header, first_word
from msa.io.molecules import is_annotation

# names of the first distinct chains, and of a chain without a row in a paired row, as in ColabFold's files
_FIRST_NAME = 101
NO_ROW = "DUMMY"
_CHAINS_FIELD = "chains="
# more residues than any network can predict; bounds what a damaged first line can allocate
_MAX_RESIDUES = 100_000


class A3mRow(NamedTuple):
    """A row of an A3M file as text, with its insertions."""

    header: str
    text: str


@dataclass(frozen=True, eq=False)
class ComplexAlignment:
    """The alignments of the distinct chains of a complex, in the order of the file.

    Attributes:
        copies: number of copies of each distinct chain.
        paired: the paired rows, divided among the chains: row k of all chains belongs together, and consists
            of gaps for a chain without a partner. Row 0 is the query.
        unpaired: the other rows of each chain in the order of the file, usually the query first; at least
            one.
        source: path of the file; `-` for standard input, None if it was not read from a file.
        order: index of the distinct chain of each chain, in the order of the input; None for files without
            such a list, like ColabFold's. If there is a list, `unpaired` has each chain's complete alignment,
            which repeats the paired rows.
    """

    copies: tuple[int, ...]
    paired: tuple[Alignment, ...]
    unpaired: tuple[Alignment, ...]
    source: str | None = None
    order: tuple[int, ...] | None = None

    @property
    def chain_order(self) -> tuple[int, ...]:
        """The index of the distinct chain of each chain; copies are adjacent if the file does not say."""
        adjacent = (number for number, count in enumerate(self.copies) for _ in range(count))
        return tuple(adjacent) if self.order is None else self.order

    @property
    def queries(self) -> tuple[str, ...]:
        """The residues of each distinct chain."""
        return tuple(alignment.query for alignment in self.paired)


def first_row_name(number: int) -> str:
    """Return the name of the first unpaired row of a distinct chain (from 0), which is its query."""
    return str(_FIRST_NAME + number)


def is_complex_a3m(data: bytes, source: str | None = None) -> bool:
    """Return whether an alignment file starts with ColabFold's line for more than one chain.

    Args:
        data: decompressed content, at least the first line.
        source: file name for errors.

    Raises:
        InputError: the line has different numbers of lengths and copies.
    """
    chains = a3m.parse_chain_line(data, source)
    return chains is not None and (len(chains[0]) > 1 or chains[1] != [1])


def parse_complex_a3m(data: bytes, source: str | None = None) -> ComplexAlignment:
    """Parse the decompressed content of ColabFold's A3M of a complex.

    A row whose header and text equal those of an earlier row is dropped, as in ColabFold.

    Raises:
        InputError: the lengths in the first line do not sum to the number of columns; a chain has no residues
            or no copies, or is listed twice; a chain has no query; the list of chains does not match
            the first line, or the unpaired rows of a chain do not begin with its query, although there is a
            list; a character that is not a letter. Names file, line and column where known.
    """
    data = data.replace(b"\0", b"")
    chains = a3m.parse_chain_line(data, source)
    if chains is None:
        raise InputError("not an A3M file of a complex: no line of lengths and copies", source, 1)
    lengths, copies = chains
    _check_chain_line(lengths, copies, source)
    names, letters, deletions, lines = a3m.parse_columns(data, source, sum(lengths))
    first = {row: number for number, row in reversed(list(enumerate(parse_a3m_rows(data))))}
    kept = sorted(first.values())
    names = tuple(clean_header(names[row]) for row in kept)
    letters, deletions, lines = letters[kept], deletions[kept], lines[kept]

    edges = np.cumsum(lengths)[:-1]
    blocks = list(zip(np.split(letters, edges, axis=1), np.split(deletions, edges, axis=1), strict=True))
    present = np.stack([(block != GAP).any(axis=1) for block, _ in blocks])
    order = _parse_order(names[0], copies, source, int(lines[0]))
    is_paired = present.sum(axis=0) > 1
    if order is not None:
        # the unpaired rows begin with the query of the first chain
        is_paired = np.cumsum([name == first_row_name(0) for name in names]) == 0
    queries = [
        _query_row(number, block, present[number], lines, source) for number, (block, _) in enumerate(blocks)
    ]
    _check_distinct(queries, source)
    pairs = np.flatnonzero(is_paired)
    starts_with_queries = len(pairs) > 0 and np.array_equal(letters[pairs[0]], np.concatenate(queries))
    paired, unpaired = [], []
    for number, (query, (block, counts)) in enumerate(zip(queries, blocks, strict=True)):
        labels = tuple(_chain_label(names[row], number) for row in pairs)
        alignment = Alignment(labels, block[pairs], counts[pairs], source)
        paired.append(alignment if starts_with_queries else _after_query(query, alignment, number))
        rows = np.flatnonzero(present[number] & ~is_paired)
        if order is not None and len(rows) and not np.array_equal(block[rows[0]], query):
            reason = f"the first unpaired row of chain {number + 1} is not its query"
            raise InputError(reason, source, int(lines[rows[0]]))
        alignment = Alignment(tuple(names[row] for row in rows), block[rows], counts[rows], source)
        unpaired.append(alignment if len(rows) else _after_query(query, alignment, number))
    return ComplexAlignment(tuple(copies), tuple(paired), tuple(unpaired), source, order)


def _parse_order(header: str, copies: Sequence[int], source: str | None, line: int) -> tuple[int, ...] | None:
    """Return the list of chains in the header of the first row, from 0; None if it has none.

    Raises:
        InputError: the list does not have the copies of each chain.
    """
    labels = header.split("\t")
    if len(labels) != len(copies) + 1 or not labels[-1].startswith(_CHAINS_FIELD):
        return None
    numbers = labels[-1].removeprefix(_CHAINS_FIELD).split(",")
    expected = [str(number) for number, count in enumerate(copies, 1) for _ in range(count)]
    if sorted(numbers) != sorted(expected):
        reason = f"the list {labels[-1]} does not have each chain as often as the header line"
        raise InputError(reason, source, line)
    return tuple(int(number) - 1 for number in numbers)


def _check_chain_line(lengths: Sequence[int], copies: Sequence[int], source: str | None) -> None:
    """Raise InputError for chains without residues or copies, or with too many."""
    for number, (length, count) in enumerate(zip(lengths, copies, strict=True), 1):
        if length == 0:
            raise InputError(f"chain {number} of the header line has no residues", source, 1)
        if count == 0:
            raise InputError(f"chain {number} of the header line has no copies", source, 1)
    residues = sum(length * count for length, count in zip(lengths, copies, strict=True))
    if residues > _MAX_RESIDUES:
        reason = f"the header line declares {residues:,} residues in all copies, more than {_MAX_RESIDUES:,}"
        raise InputError(reason, source, 1)


def _query_row(
    number: int, letters: np.ndarray, present: np.ndarray, lines: np.ndarray, source: str | None
) -> np.ndarray:
    """Return the first row (uint8 [R]) in which a chain has residues.

    Raises:
        InputError: the chain has no residues, or that row has gaps.
    """
    if not present.any():
        raise InputError(f"no row has residues of chain {number + 1} of the header line", source)
    row = int(present.argmax())
    if (letters[row] == GAP).any():
        reason = f"the first row of chain {number + 1} of the header line, its query, has gaps"
        raise InputError(reason, source, int(lines[row]))
    return letters[row]


def _check_distinct(queries: Sequence[np.ndarray], source: str | None) -> None:
    """Raise InputError if two chains have the same residues."""
    first: dict[bytes, int] = {}
    for number, query in enumerate(queries, 1):
        if (earlier := first.setdefault(query.tobytes(), number)) != number:
            reason = (
                f"chains {earlier} and {number} of the header line are the same: declare one with 2 copies"
            )
            raise InputError(reason, source, 1)


def _chain_label(name: str, number: int) -> str:
    """Return a chain's part of a paired row's header, which has one for each chain, separated by tabs."""
    labels = name.split("\t")
    return labels[min(number, len(labels) - 1)]


def _after_query(query: np.ndarray, alignment: Alignment, number: int) -> Alignment:
    """Return an alignment with its query as additional first row."""
    return Alignment(
        (first_row_name(number), *alignment.names),
        np.concatenate([query[None], alignment.letters]),
        np.concatenate([np.zeros_like(alignment.deletions, shape=(1, len(query))), alignment.deletions]),
        alignment.source,
    )


def parse_a3m_rows(data: bytes) -> list[A3mRow]:
    """Return the rows of a valid A3M file as text."""
    text = data.replace(b"\0", b"").decode("utf-8", "replace")
    lines = "".join(f"\n{line}" for line in text.split("\n") if not line.startswith("#"))
    records = (record.split("\n", 1) for record in lines.split("\n>")[1:])
    return [
        A3mRow(header.strip(), "".join("".join(rows).split()))
        for header, *rows in records
        if not is_annotation(header)
    ]


def write_complex_a3m(
    stream: IO[str],
    order: Sequence[int],
    paired: Sequence[Sequence[A3mRow | None]],
    unpaired: Sequence[Sequence[A3mRow]],
) -> None:
    """Write the A3M file of a complex, with the list of its chains.

    Insertions after the last column of a row are left out, because they would belong to the next chain.

    Args:
        stream: text stream.
        order: index of the distinct chain of each chain, in the order of the input.
        paired: rows after the queries, each with the row of every chain, or None for a chain without partner;
            empty for a single distinct chain.
        unpaired: complete alignment of each distinct chain in A3M, its query first.
    """
    copies = [order.count(number) for number in range(len(unpaired))]
    queries = [rows[0].text for rows in unpaired]
    gaps = ["-" * len(query) for query in queries]
    names = [first_row_name(number) for number in range(len(queries))]
    stream.write(f"#{','.join(str(len(query)) for query in queries)}\t{','.join(map(str, copies))}\n")
    if len(queries) > 1:
        chains = ",".join(str(number + 1) for number in order)
        stream.write(_record("\t".join([*names, f"{_CHAINS_FIELD}{chains}"]), queries))
    for pair in paired:
        labels = [NO_ROW if row is None else first_word(row.header) for row in pair]
        parts = [gap if row is None else _columns(row) for row, gap in zip(pair, gaps, strict=True)]
        stream.write(_record("\t".join(labels), parts))
    for number, rows in enumerate(unpaired):
        for name, row in zip([names[number], *(row.header for row in rows[1:])], rows, strict=True):
            stream.write(_record(name, [*gaps[:number], _columns(row), *gaps[number + 1 :]]))


def _columns(row: A3mRow) -> str:
    """Return a row up to its last column."""
    return row.text.rstrip(string.ascii_lowercase + ".")


def _record(header: str, parts: Sequence[str]) -> str:
    return f">{header}\n{''.join(parts)}\n"
