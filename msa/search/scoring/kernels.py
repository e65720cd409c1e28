"""The compiled loops of scores: residue counts, and Forward scores of the context profiles of targets.

The recurrence of Forward scores along a row of the matrix needs the previous column. It is computed for eight
columns at once by adding the columns one, two and four before, each with its power of the cost of extending a
gap. Eight is part of the definition of a score, whose last bits would otherwise depend on the width of vector
registers.
"""

import math

import numpy as np

from msa.alphabet import LETTER_BITS, LETTERS, X
from msa.base.cpu_kernels.jit import kernel
from msa.base.cpu_kernels.vector_lanes import last, load, shift_1, shift_2, shift_4, splat, store
from msa.search.scoring.compiled_context import fill_profile

LANES = 8
"""Columns that are computed at once."""

_ROWS_BETWEEN_CHECKS = 16
"""Rows after which sums are scaled if they are large. They grow by less than 2⁸ per row."""
_LARGE = 2.0**200


@kernel
def _add_row(weights, cells, sums, start, gap_open, powers):  # type: ignore[no-untyped-def]
    """Add one row to the matrix.

    Args:
        weights: float64 [vectors, 8], contiguous: of the row's residue at each column.
        cells: float64 [vectors, 3, 8], contiguous, updated from the previous row to this one: the sums of the
            weights of all alignments that end in each column, with a pair or a gap; those that end with a
            pair; and those that end with a residue of the row opposite a gap.
        sums: float64 [8], updated: the weights of alignments that end with a pair are added.
        start: weight of an alignment without pairs.
        gap_open: weight of a gap's first residue.
        powers: float64 [8], powers of the weight of each further residue, from the first on.
    """
    starting, opening, extending = splat(start), splat(gap_open), splat(powers[0])
    extending_2, extending_4, of_carried = splat(powers[1]), splat(powers[3]), load(powers, 0)
    zero = splat(0.0)
    last_above, last_pairs, sum_, carried = zero, zero, load(sums, 0), 0.0
    for column in range(0, weights.size, LANES):
        at = 3 * column
        above, above_pairs, above_gaps = load(cells, at), load(cells, at + LANES), load(cells, at + 2 * LANES)
        pairs = load(weights, column) * (starting + shift_1(last_above, above))
        gaps = opening * above_pairs + extending * above_gaps
        # columns opposite gaps
        columns = opening * shift_1(last_pairs, pairs)
        columns = columns + extending * shift_1(zero, columns)
        columns = columns + extending_2 * shift_2(zero, columns)
        columns = columns + extending_4 * shift_4(zero, columns)
        before = splat(carried)
        carried = last(columns) + powers[LANES - 1] * carried
        columns = columns + of_carried * before
        store(pairs + gaps + columns, cells, at)
        store(pairs, cells, at + LANES)
        store(gaps, cells, at + 2 * LANES)
        last_above, last_pairs, sum_ = above, pairs, sum_ + pairs
    store(sum_, sums, 0)


@kernel
def forward_score(weights, letters, is_reversed, gap_open, gap_extend):  # type: ignore[no-untyped-def]
    """Return the logarithm of the sum of the weights of all local alignments.

    Args:
        weights: float64 [26, vectors, 8], of a pair of each letter and column; 0 after the last column.
        letters: uint8 [length ≥ 1], letter codes of the rows.
        is_reversed: whether to read the letters backwards.
        gap_open: weight of a gap's first residue.
        gap_extend: weight of each further residue.
    """
    cells, sums = np.zeros((weights.shape[1], 3, LANES)), np.zeros(LANES)
    powers = np.full(LANES, gap_extend)
    for k in range(1, LANES):
        powers[k] = powers[k - 1] * gap_extend
    start, scale = 1.0, 0
    for row in range(len(letters)):
        letter = letters[len(letters) - 1 - row] if is_reversed else letters[row]
        _add_row(weights[letter], cells, sums, start, gap_open, powers)
        if row % _ROWS_BETWEEN_CHECKS == 0 and _sum(sums) > _LARGE:
            # powers of two change no digits
            cells /= _LARGE
            sums /= _LARGE
            start /= _LARGE
            scale += 1
    return math.log(_sum(sums)) + scale * math.log(_LARGE)


@kernel
def _sum(numbers):  # type: ignore[no-untyped-def]
    """Return the sum of numbers; numba's own takes longer to compile."""
    total = 0.0
    for number in numbers:
        total += number
    return total


@kernel
def fill_forward_scores(tables, table, gap_open, gap_extend, residues, windows, letters, queries, scores):  # type: ignore[no-untyped-def]
    """Write the Forward scores of the context profiles of targets, against queries and reversed queries.

    Args:
        tables: see `msa.profile.pssm.ContextTables`.
        table: float64 [2 n], weight of each score from −n on; lower scores have the weight of −n.
        gap_open: weight of a gap's first residue.
        gap_extend: weight of each further residue.
        residues: uint8, residue bytes of the database.
        windows: int64 [n, 4], indices of the residues of each target: the first that the context model reads,
            the first and the end of the profile, and the end of those that the model reads.
        letters: uint8, letter codes of the queries, one after another.
        queries: int64 [n, 2], first letter and end of each target's query.
        scores: float64 [n, 2], written: nats, for the query and the reversed query.
    """
    neighbours, lowest = len(tables.embedding) // 2, -(len(table) // 2)
    for k in range(len(windows)):
        first_read, first, end, end_read = windows[k]
        length = end - first
        codes = np.empty(length + 2 * neighbours, np.uint8)
        for position in range(len(codes)):
            codes[position] = X
        for position in range(first_read, end_read):
            letter = residues[position] & LETTER_BITS
            codes[position - first + neighbours] = min(letter, len(LETTERS) - 1)
        profile = np.empty((length, len(tables.stands_for)), np.int16)
        fill_profile(tables, codes, profile)
        weights = np.zeros((profile.shape[1], (length + LANES - 1) // LANES, LANES))
        for position in range(length):
            for letter in range(profile.shape[1]):
                score = max(profile[position, letter], lowest)
                weights[letter, position // LANES, position % LANES] = table[score - lowest]
        query = letters[queries[k, 0] : queries[k, 1]]
        for direction in range(2):
            scores[k, direction] = forward_score(weights, query, direction == 1, gap_open, gap_extend)
