"""Filter of an alignment's rows by the rules of HH-suite's hhfilter.

The rules and their order are those of hhfilter 3.3 (Steinegger et al., BMC Bioinformatics 20:473, 2019).
First, each row is compared with the query: coverage, score, identity. Then rows are compared with each
other, in descending order of their number of residues. A row is kept unless it is too similar to a row
already kept, so that of two similar rows the shorter is removed. If a minimum number of rows is requested,
the second step is repeated with increasing limits of identity, starting at 20 %, each time for the rows that
cover a column of insufficient depth.
"""

import numpy as np

from msa.alignments.filter_settings import AlignmentFilter
from msa.alphabet import LETTERS, STANDARD
from msa.base.cpu_kernels.jit import kernel
from msa.base.cpu_kernels.threads import run_in_threads
from msa.profile.matrices import gonnet_matrix

UNKNOWN, GAP = 20, 21
"""Row codes of X and of a gap; the twenty standard residues have codes 0 to 19."""

ROW_CODES = np.full(256, GAP, np.uint8)
"""Row code of each letter code (msa.alphabet); all other bytes are gaps."""
# as in HHblits: B, Z and U count as D, E and C, other non-standard letters as X (−1 % 21 is UNKNOWN)
ROW_CODES[: len(LETTERS)] = [
    STANDARD.find({"B": "D", "Z": "E", "U": "C"}.get(letter, letter)) % 21 for letter in LETTERS
]

NO_RESIDUE = 0x80
"""Code that row comparisons use for a column without a standard residue; residue codes are smaller."""

_GAP_OPEN, _GAP_EXTEND = 6.0, 1.0
"""Gap costs of the score with the query, bits."""

_FIRST_LIMIT, _MAX_LIMIT_STEP = 20, 5
"""First limit of identity and its largest increase, in per cent, if a minimum number of rows is requested."""
_DEPTH_WINDOW = 25
"""A column's depth is the largest number of kept rows in any column up to this distance."""

_BLOCK = 64
"""Columns that are compared before checking whether two rows already differ enough; at most 255."""
_BATCH = 1024
"""Rows per batch. A batch is compared in parallel with the rows kept so far, then within itself."""
_PART = 32
"""Rows of a batch that a thread compares at a time."""


def filter_rows(rows: np.ndarray, criteria: AlignmentFilter, threads: int = 1) -> np.ndarray:
    """Return a mask of the rows to keep.

    Args:
        rows: uint8 [n ≥ 1, columns], letter codes (msa.alphabet), all other bytes are gaps; the query first.
        criteria: see AlignmentFilter.
        threads: at least 1. Does not affect the result.

    Returns:
        bool [n]. The query is always kept; other rows without a standard residue are removed, unless there
        are too few rows to filter.
    """
    if len(rows) <= criteria.filter_min_enable:
        return np.ones(len(rows), bool)
    codes = ROW_CODES[rows]
    residues = np.where(codes < UNKNOWN, codes, NO_RESIDUE).astype(np.uint8)
    allowed = similar_to_query(codes, criteria)
    percent = max_identity_percent(criteria)
    if not criteria.identity_buckets:
        return select_diverse_rows(residues, allowed, percent, criteria.diff, threads)
    buckets = np.searchsorted(criteria.identity_buckets, _identities_with_query(codes))
    kept = np.zeros(len(rows), bool)
    for bucket in range(len(criteria.identity_buckets) + 1):
        indices = np.concatenate([[0], 1 + np.flatnonzero(buckets[1:] == bucket)])
        kept[indices] |= select_diverse_rows(
            residues[indices], allowed[indices], percent, criteria.diff, threads
        )
    return kept


def _identities_with_query(codes: np.ndarray) -> np.ndarray:
    """Return the fraction of each row's residues that equal the query's, float64 [n]; 0 without residues."""
    is_residue = codes < UNKNOWN
    equal = np.count_nonzero(is_residue & (codes == codes[0]), axis=1)
    return np.asarray(equal / np.maximum(np.count_nonzero(is_residue, axis=1), 1))


def max_identity_percent(criteria: AlignmentFilter) -> float:
    """Return `max_seq_id` in per cent, rounded: 29 instead of 28.999999999999996."""
    return round(100 * criteria.max_seq_id, 9)


def similar_to_query(codes: np.ndarray, criteria: AlignmentFilter) -> np.ndarray:
    """Return a mask of the rows that meet the limits of coverage, score and identity with the query.

    Args:
        codes: uint8 [n, columns], row codes.
        criteria: see AlignmentFilter.

    Returns:
        bool [n].
    """
    is_residue = codes < UNKNOWN
    counts = np.count_nonzero(is_residue, axis=1)
    # the tolerance keeps rounding errors of the product from excluding rows exactly at the limit
    allowed = counts >= criteria.cov * codes.shape[1] - 1e-6
    if criteria.qsc is not None:
        allowed &= scores_with_query(codes) >= criteria.qsc * counts
    # single precision and the constants are hhfilter's
    fraction = np.float32(0.9999 - criteria.qid)
    if fraction < 0.999:
        differences = np.count_nonzero(is_residue & (codes != codes[0]), axis=1)
        allowed &= differences < (fraction * counts.astype(np.float32) + 0.9999).astype(np.int64)
    return np.asarray(allowed)


def scores_with_query(codes: np.ndarray) -> np.ndarray:
    """Compute each row's score with the first row, bits, float64 [n].

    X scores 0, and gaps at the ends of a row cost nothing.

    Args:
        codes: uint8 [n, columns], row codes.
    """
    return np.asarray(_scores_with_query(codes, gonnet_matrix()))


@kernel
def _scores_with_query(codes, matrix):  # type: ignore[no-untyped-def]
    scores = np.zeros(len(codes))
    columns = codes.shape[1]
    for k in range(len(codes)):
        first, last = 0, columns - 1
        while first < columns and codes[k, first] >= UNKNOWN:
            first += 1
        while last > first and codes[k, last] >= UNKNOWN:
            last -= 1
        in_gap = False
        for c in range(first, last + 1):
            code, query_code = codes[k, c], codes[0, c]
            if code < UNKNOWN:
                in_gap = False
                if query_code < UNKNOWN:
                    scores[k] += matrix[query_code, code]
            elif code == GAP and query_code < UNKNOWN:
                scores[k] -= _GAP_EXTEND if in_gap else _GAP_OPEN
                in_gap = True
    return scores


def select_diverse_rows(
    rows: np.ndarray,
    allowed: np.ndarray,
    max_percent: float,
    min_depth: int,
    threads: int = 1,
    order: np.ndarray | None = None,
) -> np.ndarray:
    """Select rows so that no two are too similar, and return their mask.

    Two rows are too similar unless they differ in at least (99.99 − limit) % of the columns in which both
    have a residue. Rows without a shared column are never too similar.

    Args:
        rows: uint8 [n ≥ 1, columns], codes below NO_RESIDUE, or NO_RESIDUE. The first row, the query, is
            always kept.
        allowed: bool [n], rows that may be kept.
        max_percent: limit of identity, 0 to 100; at 100, no rows are too similar.
        min_depth: depth that every column should reach: the limit of identity is raised step by step, up to
            `max_percent`, until it does; 0 to use `max_percent` alone.
        threads: at least 1. Does not affect the result.
        order: int64 [n], rows in the order of priority; by default that of their number of residues.

    Returns:
        bool [n]. Among rows with equally many residues, earlier ones have priority.
    """
    spans = _residue_spans(rows)
    if order is None:
        order = np.concatenate([[0], 1 + np.argsort(-spans[1:, 2], kind="stable")])
    count, columns = rows.shape
    spans = spans[order]
    comparison = _RowComparison(rows[order], spans, threads)
    candidates = allowed[order] & (spans[:, 2] > 0)
    kept = np.zeros(count, bool)
    kept[0] = True
    depth = np.zeros(columns, np.int64)
    depth[spans[0, 0] : spans[0, 1] + 1] = 1

    required = min_depth if 0 < min_depth < count else count
    limit = min(_FIRST_LIMIT, max_percent) if required < count else max_percent
    nearby_depth, missing, step = np.zeros(columns, np.int64), required, 0
    while limit <= max_percent:
        np.maximum(nearby_depth, _max_depth_nearby(depth), out=nearby_depth)
        too_shallow = nearby_depth < required
        if not too_shallow.any():
            break
        missing_before, missing = missing, required - int(nearby_depth.min())
        if limit >= 100:
            kept |= candidates
        else:
            # try only rows that cover a column of insufficient depth
            shallow_counts = np.concatenate([[0], np.cumsum(too_shallow)])
            covers_shallow = shallow_counts[spans[:, 1] + 1] > shallow_counts[spans[:, 0]]
            pending = np.flatnonzero(candidates & ~kept & covers_shallow)
            added = comparison.keep_distinct(kept, pending, _difference_limits(limit, columns))
            starts = np.bincount(spans[added, 0], minlength=columns + 1)
            depth += np.cumsum(starts - np.bincount(spans[added, 1] + 1, minlength=columns + 1))[:-1]
        # integer divisions, in the order of hhfilter
        step = max(1, min(_MAX_LIMIT_STEP, missing // (missing_before - missing + 1) * step // 2))
        limit += step

    result = np.empty(count, bool)
    result[order] = kept
    return result


def _residue_spans(rows: np.ndarray) -> np.ndarray:
    """Return each row's first and last column with a residue and its residue count, int64 [n, 3].

    A row without residues gets 0, −1, 0.
    """
    is_residue = rows != NO_RESIDUE
    counts = np.count_nonzero(is_residue, axis=1)
    first = np.argmax(is_residue, axis=1)
    last = np.where(counts > 0, rows.shape[1] - 1 - np.argmax(is_residue[:, ::-1], axis=1), -1)
    return np.stack([first, last, counts], axis=1).astype(np.int64)


def _max_depth_nearby(depth: np.ndarray) -> np.ndarray:
    """Return the largest depth near each column, int64 [columns]; windows at the ends have full width."""
    columns = len(depth)
    centres = np.arange(columns)
    first = np.maximum(0, np.minimum(columns - 2 * _DEPTH_WINDOW, centres - _DEPTH_WINDOW))
    last = np.minimum(columns - 1, np.maximum(2 * _DEPTH_WINDOW - 1, centres + _DEPTH_WINDOW))
    # the even spans are the windows, which are never empty
    return np.maximum.reduceat(np.append(depth, 0), np.stack([first, last + 1], axis=1).ravel())[::2]


def _difference_limits(percent: float, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the thresholds of the number of differences, by number of shared columns.

    Computed in single precision, so that decisions at the limit equal hhfilter's.

    Returns:
        Two int64 [columns + 1]: a number of differences at which rows are certainly distinct, and the largest
        number of differences at which rows are too similar.
    """
    fraction = np.float32(0.9999 - 0.01 * percent)
    differences = fraction * np.arange(columns + 1, dtype=np.float32)
    return (differences + 0.999).astype(np.int64), np.ceil(differences).astype(np.int64) - 1


class _RowComparison:
    """A comparison of rows with each other that caches, for each row, the last row it was too similar to.

    Args:
        rows: uint8 [n, columns], in order of priority.
        spans: int64 [n, 3], result of `_residue_spans`.
        threads: at least 1.
    """

    def __init__(self, rows: np.ndarray, spans: np.ndarray, threads: int) -> None:
        columns = -(-rows.shape[1] // _BLOCK) * _BLOCK
        self._rows = np.full((len(rows), columns), NO_RESIDUE, np.uint8)
        self._rows[:, : rows.shape[1]] = rows
        self._spans, self._threads = spans, threads
        self._blockers = np.full(len(rows), -1, np.int64)

    def keep_distinct(
        self, kept: np.ndarray, pending: np.ndarray, limits: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """Keep the rows that are not too similar to a kept row of higher priority.

        Args:
            kept: bool [n], rows kept so far; updated.
            pending: int64, rows to decide on, ascending.
            limits: result of `_difference_limits`.

        Returns:
            int64, the rows added.
        """
        added = []
        for start in range(0, len(pending), _BATCH):
            batch = pending[start : start + _BATCH]
            kept_before = np.flatnonzero(kept[: batch[0]])
            rejected = np.zeros(len(batch), bool)
            arguments = self._rows, self._spans, *limits, self._blockers

            def reject(first: int, end: int) -> None:
                _reject_similar(*arguments, batch[first:end], kept_before, rejected[first:end])  # noqa: B023

            parts = [(k, min(k + _PART, len(batch))) for k in range(0, len(batch), _PART)]
            run_in_threads(reject, parts, self._threads)
            _keep_distinct_in_batch(*arguments, batch, kept, rejected)
            added.append(batch[~rejected])
        return np.concatenate([np.empty(0, np.int64), *added])


@kernel
def _count(row, other, differences_only):  # type: ignore[no-untyped-def]
    """Count the columns of a block in which both rows have a residue, or only those in which they differ."""
    # a sum in one byte, so that vectors hold as many sums as residues
    count = np.uint8(0)
    for c in range(_BLOCK):
        shared = (row[c] < NO_RESIDUE) & (other[c] < NO_RESIDUE)
        count = np.uint8(count + np.uint8(shared & (not differences_only or row[c] != other[c])))
    return int(count)


@kernel
def _find_similar(rows, spans, distinct_from, similar_up_to, row, others):  # type: ignore[no-untyped-def]
    """Return the first of the others that `row` is too similar to; −1 if there is none.

    All others must have at least as many residues. One call compares many rows, because a call costs more
    than a comparison.
    """
    row_first, row_last, residues = spans[row, 0], spans[row, 1], spans[row, 2]
    a = rows[row]
    for other in others:
        first, last = max(row_first, spans[other, 0]), min(row_last, spans[other, 1])
        if last < first:
            continue
        b = rows[other]
        sufficient = distinct_from[min(residues, last - first + 1)]
        begin, differences = first // _BLOCK * _BLOCK, 0
        block = begin
        while block <= last and differences < sufficient:
            differences += _count(a[block : block + _BLOCK], b[block : block + _BLOCK], True)
            block += _BLOCK
        if differences < sufficient:
            shared = 0
            for block in range(begin, last + 1, _BLOCK):
                shared += _count(a[block : block + _BLOCK], b[block : block + _BLOCK], False)
            if differences <= similar_up_to[shared]:
                return other
    return -1


@kernel
def _reject_similar(rows, spans, distinct_from, similar_up_to, blockers, batch, kept_before, rejected):  # type: ignore[no-untyped-def]
    """Reject the rows of a batch that are too similar to a row kept before this batch."""
    for k in range(len(batch)):
        row = batch[k]
        # a row that was too similar at a lower limit is likely to be so again
        for others in (blockers[row : row + (blockers[row] >= 0)], kept_before):
            found = _find_similar(rows, spans, distinct_from, similar_up_to, row, others)
            if found >= 0:
                rejected[k] = True
                blockers[row] = found
                break


@kernel
def _keep_distinct_in_batch(rows, spans, distinct_from, similar_up_to, blockers, batch, kept, rejected):  # type: ignore[no-untyped-def]
    """Reject rows, in order, that are too similar to a row kept within the batch's range; keep the others."""
    kept_in_range = np.empty(batch[-1] - batch[0] + 1, np.int64)
    count, index = 0, batch[0]
    for k in range(len(batch)):
        row = batch[k]
        while index < row:
            if kept[index]:
                kept_in_range[count] = index
                count += 1
            index += 1
        if not rejected[k]:
            found = _find_similar(rows, spans, distinct_from, similar_up_to, row, kept_in_range[:count])
            if found >= 0:
                rejected[k] = True
                blockers[row] = found
        kept[row] = not rejected[k]
