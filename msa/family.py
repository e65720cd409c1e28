"""A query's family as an alignment: one row for each member, one column for each residue of the query."""

from collections.abc import Iterable

import numpy as np

from msa.alphabet import LETTER_BITS
from msa.jit import kernel
from msa.local_alignment import OPERATIONS, LocalAlignment

GAP = 31
"""Stands where a row has no residue; no letter has this code."""

_PAIRS, _INSERTION = OPERATIONS.index("M"), OPERATIONS.index("I")


def family_rows(query: np.ndarray, members: Iterable[tuple[np.ndarray, LocalAlignment]]) -> np.ndarray:
    """The query, then each member where it is aligned to the query; what it has in between is left out.

    Args:
        query: uint8 [length], letter codes.
        members: residue bytes of a target, uint8 [its length], mask bits ignored, and its alignment.

    Returns:
        uint8 [1 + members, length], letter codes or GAP.
    """
    rows = [query]
    for residues, alignment in members:
        row = np.full(len(query), GAP, np.uint8)
        i, j = alignment.query_start - 1, alignment.target_start - 1
        for run in alignment.runs.tolist():
            count, operation = run >> 2, run & 3
            if operation == _PAIRS:
                row[i : i + count] = residues[j : j + count] & LETTER_BITS
            i += count if operation in (_PAIRS, _INSERTION) else 0
            j += 0 if operation == _INSERTION else count
        rows.append(row)
    return np.stack(rows)


def distinct_rows(rows: np.ndarray, most_identical: float) -> np.ndarray:
    """The rows that say something new: in order, each unless it nearly repeats one that is kept.

    Args:
        rows: uint8 [n ≥ 1, columns], letter codes or GAP.
        most_identical: a row is left out if at least this fraction of its residues stand in a kept row at the
            same columns.

    Returns:
        uint8 [≤ n, columns]; the first row is always kept, rows without residues never.
    """
    return rows[_distinct(rows, most_identical)]


@kernel
def _distinct(rows, most_identical):  # type: ignore[no-untyped-def]
    count, columns = rows.shape
    kept = np.zeros(count, np.bool_)
    places = np.empty(count, np.int64)
    found = 0
    for i in range(count):
        residues = 0
        for c in range(columns):
            residues += rows[i, c] != GAP
        allowed = residues - most_identical * residues
        new = residues > 0
        for k in range(found):
            other = places[k]
            differing = 0
            for c in range(columns):
                differing += rows[i, c] != GAP and rows[i, c] != rows[other, c]
            if differing <= allowed:
                new = False
                break
        if new or i == 0:
            kept[i] = True
            places[found] = i
            found += 1
    return kept
