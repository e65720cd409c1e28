"""A query's family as an alignment: one row for each member, one column for each residue of the query."""

from collections.abc import Sequence

import numpy as np

from msa.alphabet import LETTER_BITS
from msa.database.sequence_arrays import SequenceArrays
from msa.jit import kernel
from msa.search.local_alignment import OPERATIONS, LocalAlignment

GAP = 31
"""Stands where a row has no residue; no letter has this code."""

_STRIP = 64
"""Columns after which it is seen whether two rows differ by enough already."""

_PAIRS, _INSERTION = OPERATIONS.index("M"), OPERATIONS.index("I")


def family_rows(
    query: np.ndarray, targets: SequenceArrays, members: Sequence[tuple[int, LocalAlignment]]
) -> np.ndarray:
    """The query, then each member where it is aligned to the query; what it has in between is left out.

    Args:
        query: uint8 [length], letter codes.
        targets: the database.
        members: place of a target, and its alignment.

    Returns:
        uint8 [1 + members, length], letter codes or GAP.
    """
    rows = np.full((1 + len(members), len(query)), GAP, np.uint8)
    rows[0] = query
    if members:
        begins = [(each.query_start, each.target_start, len(each.runs)) for _, each in members]
        runs = np.concatenate([each.runs for _, each in members])
        starts = targets.offsets[[target for target, _ in members]]
        _fill_rows(rows, targets.residues, starts, np.array(begins, np.int64), runs)
    return rows


@kernel
def _fill_rows(rows, residues, starts, begins, runs):  # type: ignore[no-untyped-def]
    """Write every member's row; begins: int64 [members, 3], where it starts in query and target, its runs."""
    run = 0
    for k in range(len(starts)):
        i, j = begins[k, 0] - 1, starts[k] + begins[k, 1] - 1
        for _ in range(begins[k, 2]):
            count, operation = runs[run] >> 2, runs[run] & 3
            run += 1
            if operation == _PAIRS:
                for step in range(count):
                    rows[k + 1, i + step] = residues[j + step] & LETTER_BITS
            if operation in (_PAIRS, _INSERTION):
                i += count
            if operation != _INSERTION:
                j += count


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
            if _differing(rows[i], rows[places[k]], allowed) <= allowed:
                new = False
                break
        if new or i == 0:
            kept[i] = True
            places[found] = i
            found += 1
    return kept


@kernel
def _differing(row, other, enough):  # type: ignore[no-untyped-def]
    """Residues of a row that another has not at its columns; not all, where they are more than enough."""
    differing = 0
    whole = len(row) // _STRIP * _STRIP
    # a strip of a fixed length has a loop without branches; most rows differ by enough in the first
    for start in range(0, whole, _STRIP):
        mine, others = row[start : start + _STRIP], other[start : start + _STRIP]
        here = 0
        for c in range(_STRIP):
            here += (mine[c] != GAP) & (mine[c] != others[c])
        differing += here
        if differing > enough:
            return differing
    for c in range(whole, len(row)):
        differing += (row[c] != GAP) & (row[c] != other[c])
    return differing
