"""Posterior probabilities of aligned residue pairs, from all local alignments of a profile and a sequence."""

import math
from collections.abc import Sequence

import numpy as np

from msa.base.cpu_kernels.jit import kernel


def expected_correct_pairs(
    profile: np.ndarray,
    targets: Sequence[np.ndarray],
    alignments: Sequence[np.ndarray],
    gap_open: int,
    gap_extend: int,
    lambda_: float,
) -> list[float]:
    """Compute the expected number of correct pairs of alignments: the sum of their posterior probabilities.

    An alignment with score S has the weight exp(λ·S), and no alignment at all the weight 1, so the sum is
    near 0 for sequences that are similar by chance (Miyazawa, Protein Eng. 8:999, 1995; HHsearch's
    `Sum_probs`).

    Args:
        profile: int16 [length, 32], scores; column = letter code.
        targets: letter codes of each target without mask bits, uint8 [target length].
        alignments: for each target, the aligned positions of query and target from 0, int [n, 2], ascending.
        gap_open: cost of a gap's first residue.
        gap_extend: cost of each further residue.
        lambda_: nats per unit of score.

    Returns:
        One number for each target, from 0 to n.
    """
    weights = np.exp(lambda_ * profile.astype(np.float64))
    opening, extension = math.exp(-lambda_ * gap_open), math.exp(-lambda_ * gap_extend)
    counts = []
    for codes, pairs in zip(targets, alignments, strict=True):
        target_of_query = np.full(len(profile), -1, np.int64)
        target_of_query[pairs[:, 0]] = pairs[:, 1]
        counts.append(float(_sum_of_posteriors(weights, codes, target_of_query, opening, extension)))
    return counts


@kernel
def _sum_of_posteriors(weights, codes, target_of_query, opening, extension):  # type: ignore[no-untyped-def]
    """Run the forward and the backward recursion; rows are scaled so that no number overflows.

    States: pair (M), query residue opposite a gap (I), target residue opposite a gap (D). A gap of one kind
    may follow the other in the order I, D only, so that each alignment counts once.
    """
    length, targets = len(weights), len(codes)
    forward = np.zeros(length)  # M of the pair in each row, in units of exp(scale)
    forward_scale = np.zeros(length)
    m, i, d = np.zeros(targets + 1), np.zeros(targets + 1), np.zeros(targets + 1)
    scale, total, total_scale = 0.0, 1.0, 0.0
    for row in range(length):
        start = math.exp(-scale)
        diagonal, largest, row_sum = 0.0, 0.0, 0.0
        new_d = 0.0
        for column in range(1, targets + 1):
            above_m, above_i, above_d = m[column], i[column], d[column]
            pair = weights[row, codes[column - 1]] * (start + diagonal)
            diagonal = above_m + above_i + above_d
            i[column] = above_m * opening + above_i * extension
            # D follows M or I of the same row
            new_d = (m[column - 1] + i[column - 1]) * opening + new_d * extension
            d[column] = new_d
            m[column] = pair
            row_sum += pair
            largest = max(largest, pair)
        total += row_sum * math.exp(scale - total_scale)
        column = target_of_query[row]
        if column >= 0:
            forward[row], forward_scale[row] = m[column + 1], scale
        if largest > 1e100:
            factor = math.log(largest)
            m *= 1 / largest
            i *= 1 / largest
            d *= 1 / largest
            scale += factor
        if total > 1e100:
            total_scale += math.log(total)
            total = 1.0
    log_total = math.log(total) + total_scale
    # backward: the sums of the weights of all continuations after M, I and D
    m, i, d = np.zeros(targets + 2), np.zeros(targets + 2), np.zeros(targets + 2)
    next_pair = np.zeros(targets + 2)  # weight of the pair in the next row times its continuations
    next_i = np.zeros(targets + 2)
    scale, result = 0.0, 0.0
    for row in range(length - 1, -1, -1):
        end = math.exp(-scale)
        largest = 0.0
        for column in range(targets, 0, -1):
            pair = next_pair[column + 1]
            d_next = d[column + 1]
            after_d = pair + extension * d_next
            after_i = pair + extension * next_i[column] + opening * d_next
            m[column] = end + pair + opening * next_i[column] + opening * d_next
            i[column] = after_i
            d[column] = after_d
            largest = max(largest, m[column])
        column = target_of_query[row]
        if column >= 0 and forward[row] > 0.0:
            log_weight = math.log(forward[row]) + forward_scale[row] - log_total
            result += math.exp(min(0.0, log_weight + scale + math.log(m[column + 1])))
        for column in range(1, targets + 1):
            next_pair[column] = weights[row, codes[column - 1]] * m[column]
            next_i[column] = i[column]
            largest = max(largest, next_pair[column])
        if largest > 1e100:
            next_pair *= 1 / largest
            next_i *= 1 / largest
            scale += math.log(largest)
    return result
