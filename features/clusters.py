"""Nearest-neighbour clusters: every row that was not sampled counts with the sampled row it is most like.

Jumper et al. 2021, Supplementary Information 1.2.7, steps 3 and 4.
"""

import numpy as np

from features.residues import GAP
from msa.jit import kernel

NUM_CODES = 23  # twenty residues, X, gap, mask
# columns in which agreements are counted in one byte
_COLUMNS = 255


def nearest_rows(msa: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The row of `msa` with which each of `others` agrees in most residues; the first of equals.

    Agreement counts columns with the same residue or X; gaps and masked positions agree with nothing.

    Args:
        msa: integers [S, R], 0–22.
        others: integers [U, R], 0–21.

    Returns:
        int64 [U].
    """
    assignment = np.empty(len(others), np.int64)
    # one column of all centres after another: a residue is compared with many of them in one instruction
    _nearest(np.ascontiguousarray(msa.T, np.int8), np.ascontiguousarray(others, np.int8), assignment)
    return assignment


@kernel
def _nearest(centres: np.ndarray, others: np.ndarray, assignment: np.ndarray) -> None:
    columns, size = centres.shape
    total = np.empty(size, np.int32)
    part = np.empty(size, np.uint8)
    for row in range(len(others)):
        total[:] = 0
        for start in range(0, columns, _COLUMNS):
            part[:] = 0
            for column in range(start, min(columns, start + _COLUMNS)):
                code = others[row, column]
                if code < GAP:
                    for centre in range(size):
                        part[centre] += np.uint8(centres[column, centre] == code)
            for centre in range(size):
                total[centre] += part[centre]
        assignment[row] = np.argmax(total)


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
    counts[np.arange(clusters)[:, None], np.arange(length), msa] = 1
    sums = deletions.astype(np.int64)
    _add_members(others, other_deletions, assignment, counts, sums)
    # the published code guards its division with 1e-6, in single precision
    sizes = np.float32(1e-6) + np.float32(1) + np.bincount(assignment, minlength=clusters).astype(np.float32)
    return counts / sizes[:, None, None], sums.astype(np.float32) / sizes[:, None]


@kernel
def _add_members(
    others: np.ndarray, deletions: np.ndarray, assignment: np.ndarray, counts: np.ndarray, sums: np.ndarray
) -> None:
    for row in range(len(others)):
        cluster = assignment[row]
        for column in range(others.shape[1]):
            counts[cluster, column, others[row, column]] += np.float32(1)
            sums[cluster, column] += np.int64(deletions[row, column])
