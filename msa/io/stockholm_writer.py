"""Stockholm alignments: every row equally long, insertions in columns of their own."""

import re
from collections.abc import Sequence
from typing import IO

from msa.io.a3m import a3m_row
from msa.io.fasta import FastaRecord
from msa.search.hits import Hit

# a row in A3M, cut into the pieces that end with a query column, and what follows the last
_PIECES = re.compile(r"([a-z]*)([A-Z-])")


def write_stockholm(stream: IO[str], query: FastaRecord, hits: Sequence[Hit]) -> None:
    """Write the query and its hits as Stockholm 1.0, one line a row.

    Rows are named id/first-last, of a second row with that name id/first-last_2, and so on. All residues are
    upper case and all gaps `-`; `#=GC RF` marks the query's columns with x.

    Args:
        stream: text.
        query: what was searched with.
        hits: in the order of the rows.
    """
    rows = [_PIECES.findall(a3m_row(hit)) for hit in hits]
    # room before each query column: the longest insertion there
    room = [max((len(row[i][0]) for row in rows), default=0) for i in range(len(query.sequence))]

    def line(pieces: Sequence[tuple[str, str]]) -> str:
        return "".join(
            inserted.upper().ljust(width, "-") + residue
            for (inserted, residue), width in zip(pieces, room, strict=True)
        )

    names = _unique([query.id or "query", *(f"{hit.id}/{hit.tstart}-{hit.tend}" for hit in hits)])
    width = max(len("#=GC RF"), *map(len, names)) + 1
    stream.write("# STOCKHOLM 1.0\n")
    for name, header in zip(names, [query.header, *(hit.header for hit in hits)], strict=True):
        if description := header.partition(" ")[2].strip():
            stream.write(f"#=GS {name} DE {description}\n")
    stream.write("\n")
    texts = [line([("", residue) for residue in query.sequence]), *map(line, rows)]
    for name, text in zip(names, texts, strict=True):
        stream.write(f"{name.ljust(width)}{text}\n")
    reference = "".join("." * width_ + "x" for width_ in room)
    stream.write(f"{'#=GC RF'.ljust(width)}{reference}\n//\n")


def _unique(names: Sequence[str]) -> list[str]:
    """The names with _2, _3, … appended where one occurred before."""
    used: set[str] = set()
    result = []
    for name in names:
        candidate, number = name, 1
        while candidate in used:
            number += 1
            candidate = f"{name}_{number}"
        used.add(candidate)
        result.append(candidate)
    return result
