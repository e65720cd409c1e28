"""Which rows of an alignment to keep so that no two are alike, or so that enough rows remain at every column.

The rule is hhfilter's (HH-suite; Steinegger et al., BMC Bioinformatics 20:473, 2019). Rows are looked at from
the one with the most residues to the one with the fewest, so that of two alike rows the shorter goes, and a
row is kept unless it is too much like one kept before. When a number of rows is asked for, this is done with
one limit of identity after another, from MOST_DIVERSE upwards, each time for the rows with a column around
which too few have been kept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.base import BaseContext
from numba.core.typing import Signature
from numba.extending import intrinsic

from msa.cpu.workers import run_pieces
from msa.jit import kernel

NONE = 0x80
"""Stands where a row has no residue; residues have codes below this."""

MOST_DIVERSE = 20
"""The first limit of identity, in per cent, when a number of rows is asked for."""
_MOST_STEP = 5
_REACH = 25
"""Columns on either side in which the deepest counts as the depth of a column."""

_BITS = 5
_WORD = 64
_AT_ONCE = 1024
"""Rows that are compared with those kept before them side by side, then with one another."""
_TILE = 32
"""Rows of either side that are compared while they are in the core's own cache."""


def distinct_enough(
    rows: np.ndarray, allowed: np.ndarray, max_percent: float, fewest: int, threads: int = 1
) -> np.ndarray:
    """The rows to keep.

    Two rows differ enough if they do in at least (99.99 − limit) % of the columns in which both have a
    residue; rows without such a column always do.

    Args:
        rows: uint8 [n ≥ 1, columns], codes below NONE or NONE; the query first, which is always kept.
        allowed: bool [n], the rows that may be kept.
        max_percent: limit of identity, 0 to 100; at 100 all rows differ enough.
        fewest: rows to be kept at least around every column, where there are as many, the limits being as low
            as that allows; 0 keeps as many as `max_percent` does.
        threads: at least 1; the rows do not depend on them.

    Returns:
        bool [n]. Of rows with equally many residues those that come first are looked at first.
    """
    spans = _spans(rows)
    order = np.concatenate([[0], 1 + np.argsort(-spans[1:, 2], kind="stable")])
    return _in_order(rows, allowed, spans, order, max_percent, fewest, threads)


def _in_order(
    rows: np.ndarray,
    allowed: np.ndarray,
    spans: np.ndarray,
    order: np.ndarray,
    max_percent: float,
    fewest: int,
    threads: int,
) -> np.ndarray:
    """`distinct_enough` for rows that are looked at in a given order, int64 [n]; spans as from `_spans`."""
    count, columns = rows.shape
    spans = spans[order]
    comparison = _Comparison(rows[order], spans, threads)
    candidates = allowed[order] & (spans[:, 2] > 0)
    kept = np.zeros(count, bool)
    kept[0] = True
    depth = np.zeros(columns, np.int64)
    depth[spans[0, 0] : spans[0, 1] + 1] = 1

    enough = fewest if 0 < fewest < count else count
    percent = min(MOST_DIVERSE, max_percent) if enough < count else max_percent
    around, missing, step = np.zeros(columns, np.int64), enough, 0
    while percent <= max_percent:
        np.maximum(around, _deepest_around(depth), out=around)
        shallow = around < enough
        if not shallow.any():
            break
        before, missing = missing, enough - int(around.min())
        if percent >= 100:
            kept |= candidates
        else:
            # what a row with no such column was refused at, it would be refused at again
            reach = np.concatenate([[0], np.cumsum(shallow)])
            due = candidates & ~kept & (reach[spans[:, 1] + 1] > reach[spans[:, 0]])
            added = comparison.keep(kept, np.flatnonzero(due), _limits(percent, columns))
            starts = np.bincount(spans[added, 0], minlength=columns + 1)
            depth += np.cumsum(starts - np.bincount(spans[added, 1] + 1, minlength=columns + 1))[:-1]
        # an integer division each, as in hhfilter
        step = max(1, min(_MOST_STEP, missing // (before - missing + 1) * step // 2))
        percent += step

    result = np.empty(count, bool)
    result[order] = kept
    return result


def _spans(rows: np.ndarray) -> np.ndarray:
    """First and last column with a residue and how many have one, int64 [n, 3]; 0, −1, 0 without any."""
    there = rows != NONE
    counts = np.count_nonzero(there, axis=1)
    first = np.argmax(there, axis=1)
    last = np.where(counts > 0, rows.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1), -1)
    return np.stack([first, last, counts], axis=1).astype(np.int64)


def _deepest_around(depth: np.ndarray) -> np.ndarray:
    """The greatest depth near each column, int64 [columns]; near the ends as many columns count as inside."""
    columns = len(depth)
    places = np.arange(columns)
    first = np.maximum(0, np.minimum(columns - 2 * _REACH, places - _REACH))
    last = np.minimum(columns - 1, np.maximum(2 * _REACH - 1, places + _REACH))
    return np.array([depth[a : b + 1].max() for a, b in zip(first, last, strict=True)], np.int64)


def _limits(percent: float, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """By number of columns: differences that are enough whatever follows, and the most that are too few.

    In single precision, so that hhfilter's decisions at the limit are met.
    """
    fraction = np.float32(0.9999 - 0.01 * percent)
    shares = fraction * np.arange(columns + 1, dtype=np.float32)
    return (shares + 0.999).astype(np.int64), np.ceil(shares).astype(np.int64) - 1


class _Comparison:
    """Rows that can be compared with one another, and what refused each last.

    Args:
        rows: uint8 [n, columns], in the order in which they are looked at.
        spans: int64 [n, 3], as from `_spans`.
        threads: at least 1.
    """

    def __init__(self, rows: np.ndarray, spans: np.ndarray, threads: int) -> None:
        self._planes, self._spans, self._threads = _planes(rows), spans, threads
        self._blockers = np.full(len(rows), -1, np.int64)

    def keep(self, kept: np.ndarray, due: np.ndarray, limits: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Keep those rows that are not too much like one kept before them.

        Args:
            kept: bool [n], the rows kept so far; added to.
            due: int64, rows that are not, ascending.
            limits: as from `_limits`.

        Returns:
            int64, the rows added.
        """
        added = []
        for start in range(0, len(due), _AT_ONCE):
            asked = due[start : start + _AT_ONCE]
            before = np.flatnonzero(kept[: asked[0]])
            refused = np.zeros(len(asked), bool)
            arguments = self._planes, self._spans, *limits, self._blockers

            def refuse(first: int, end: int, *rest: Any) -> None:
                _refuse(*arguments, asked[first:end], before, refused[first:end])  # noqa: B023

            pieces = [(k, min(k + _TILE, len(asked))) for k in range(0, len(asked), _TILE)]
            run_pieces(refuse, pieces, self._threads)
            _settle(*arguments, asked, kept, refused)
            added.append(asked[~refused])
        return np.concatenate([np.empty(0, np.int64), *added])


def _planes(rows: np.ndarray) -> np.ndarray:
    """Rows as bits, uint64 [n, words, 6]: of 64 columns, each bit of their codes and where a residue is."""
    count, columns = rows.shape
    padded = np.full((count, -(-columns // _WORD) * _WORD), NONE, np.uint8)
    padded[:, :columns] = rows
    planes = np.empty((count, padded.shape[1] // _WORD, _BITS + 1), np.uint64)
    for bit in range(_BITS):
        planes[:, :, bit] = np.packbits(padded >> bit & 1, axis=1, bitorder="little").view("<u8")
    planes[:, :, _BITS] = np.packbits(padded < NONE, axis=1, bitorder="little").view("<u8")
    return planes


def _count_ones_typing(typing_context: Any, word: types.Type) -> tuple[Signature, Callable[..., ir.Value]]:
    """Bits of a word that are 1, uint64."""

    def codegen(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: list[ir.Value]
    ) -> ir.Value:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), codegen


_count_ones: Any = intrinsic(_count_ones_typing)


@kernel
def _first_alike(planes, spans, enough, too_few, one, others, start, end):  # type: ignore[no-untyped-def]
    """The first of others[start:end] that row `one` is too much like; −1 if none.

    All have at least as many residues. One call for many: a call costs more than a comparison.
    """
    first_of_one, last_of_one, residues = spans[one, 0], spans[one, 1], spans[one, 2]
    a = planes[one]
    for place in range(start, end):
        other = others[place]
        first, last = max(first_of_one, spans[other, 0]), min(last_of_one, spans[other, 1])
        if last < first:
            continue
        b = planes[other]
        needed = np.uint64(enough[min(residues, last - first + 1)])
        differing, word, words = np.uint64(0), first // _WORD, last // _WORD + 1
        while word < words and differing < needed:
            differ = (a[word, 0] ^ b[word, 0]) | (a[word, 1] ^ b[word, 1]) | (a[word, 2] ^ b[word, 2])
            differ |= (a[word, 3] ^ b[word, 3]) | (a[word, 4] ^ b[word, 4])
            differing += _count_ones(differ & a[word, 5] & b[word, 5])
            word += 1
        if differing < needed:
            shared = np.uint64(0)
            for word in range(first // _WORD, words):
                shared += _count_ones(a[word, 5] & b[word, 5])
            if np.int64(differing) <= too_few[shared]:
                return other
    return -1


@kernel
def _refuse(planes, spans, enough, too_few, blockers, asked, before, refused):  # type: ignore[no-untyped-def]
    """Refuse rows that are too much like one of those kept before."""
    for k in range(len(asked)):
        one = asked[k]
        # what refused it with a lower limit most likely does so again
        if blockers[one] >= 0:
            refused[k] = _first_alike(planes, spans, enough, too_few, one, blockers, one, one + 1) >= 0
    for start in range(0, len(before), _TILE):
        end = min(start + _TILE, len(before))
        for k in range(len(asked)):
            if not refused[k]:
                found = _first_alike(planes, spans, enough, too_few, asked[k], before, start, end)
                if found >= 0:
                    refused[k] = True
                    blockers[asked[k]] = found


@kernel
def _settle(planes, spans, enough, too_few, blockers, asked, kept, refused):  # type: ignore[no-untyped-def]
    """Refuse rows that are too much like one kept among them, in order, and keep the others."""
    among = np.empty(asked[-1] - asked[0] + 1, np.int64)
    count, place = 0, asked[0]
    for k in range(len(asked)):
        one = asked[k]
        while place < one:
            if kept[place]:
                among[count] = place
                count += 1
            place += 1
        if not refused[k]:
            found = _first_alike(planes, spans, enough, too_few, one, among, 0, count)
            if found >= 0:
                refused[k] = True
                blockers[one] = found
        kept[one] = not refused[k]
