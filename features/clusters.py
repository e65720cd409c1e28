"""Nearest-neighbour clusters: every row that was not sampled counts with the sampled row it is most like.

Jumper et al. 2021, Supplementary Information 1.2.7, steps 3 and 4.
"""

import numpy as np

from features.residues import GAP

NUM_CODES = 23  # twenty residues, X, gap, mask
# elements of the largest array that is made per block of unsampled rows
_BLOCK = 1 << 22
# the one-hot row of every code: only residues and X can agree
_AGREEING = np.eye(NUM_CODES, GAP, dtype=np.float32)


def nearest_rows(msa: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The row of `msa` with which each of `others` agrees in most residues; the first of equals.

    Agreement counts columns with the same residue or X; gaps and masked positions agree with nothing.

    Args:
        msa: integers [S, R], 0–22.
        others: integers [U, R], 0–21.

    Returns:
        int64 [U].
    """
    centres = _one_hot(msa).T  # [R * 21, S]
    assignment = np.empty(len(others), np.int64)
    step = max(1, _BLOCK // max(1, len(centres)))
    for start in range(0, len(others), step):
        # counts below 2^24 are exact in float32, whatever the order of summation
        agreement = _one_hot(others[start : start + step]) @ centres  # [rows, S]
        assignment[start : start + step] = np.argmax(agreement, axis=1)
    return assignment


def _one_hot(msa: np.ndarray) -> np.ndarray:
    """float32 [rows, R * 21]; gap and mask are all zero."""
    return _AGREEING[msa].reshape(len(msa), -1)


def summarize_clusters(
    msa: np.ndarray,
    deletions: np.ndarray,
    others: np.ndarray,
    other_deletions: np.ndarray,
    assignment: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean composition and mean deletion count of every cluster, its centre included.

    Args:
        msa: integers [S, R], 0–22, the centres.
        deletions: unsigned integers [S, R].
        others: integers [U, R], 0–21.
        other_deletions: unsigned integers [U, R].
        assignment: int [U], the cluster of each of `others`.

    Returns:
        `cluster_profile` float32 [S, R, 23] and `cluster_deletion_mean` float32 [S, R].
    """
    clusters, length = msa.shape
    counts = np.zeros((clusters, length, NUM_CODES), np.float32)
    columns = np.arange(length)
    counts[np.arange(clusters)[:, None], columns, msa] = 1
    sums = deletions.astype(np.float32)
    flat_counts, flat_sums = counts.reshape(-1), sums.reshape(-1)
    step = max(1, _BLOCK // max(1, length))
    for start in range(0, len(others), step):
        rows = slice(start, start + step)
        # [rows, R] place of every residue among clusters × columns
        place = assignment[rows, None] * length + columns
        flat_counts += np.bincount(
            (place * NUM_CODES + others[rows]).ravel(), minlength=flat_counts.size
        ).astype(np.float32)
        row, column = np.nonzero(other_deletions[rows])
        flat_sums += np.bincount(
            place[row, column], weights=other_deletions[rows][row, column], minlength=flat_sums.size
        ).astype(np.float32)
    # the published code guards its division with 1e-6, in single precision
    sizes = np.float32(1e-6) + np.float32(1) + np.bincount(assignment, minlength=clusters).astype(np.float32)
    return counts / sizes[:, None, None], sums / sizes[:, None]
