"""The loops of features/alphafold2/sampling.py, compiled."""

import numpy as np

from msa.base.cpu_kernels.jit import kernel
from msa.base.residues import GAP

# maximum number of columns for which a one-byte counter of matches cannot overflow
_COUNTED_COLUMNS = 255


@kernel
def assign(centres: np.ndarray, others: np.ndarray, assignment: np.ndarray) -> None:
    """Assign rows to the centres with which they agree in the most columns.

    Args:
        centres: int8 [R, S], transposed.
        others: int8 [U, R].
        assignment: int64 [U], written: indices of centres.
    """
    columns, size = centres.shape
    total = np.empty(size, np.int32)
    part = np.empty(size, np.uint8)
    for row in range(len(others)):
        total[:] = 0
        for start in range(0, columns, _COUNTED_COLUMNS):
            part[:] = 0
            for column in range(start, min(columns, start + _COUNTED_COLUMNS)):
                code = others[row, column]
                if code < GAP:
                    for centre in range(size):
                        part[centre] += np.uint8(centres[column, centre] == code)
            for centre in range(size):
                total[centre] += part[centre]
        assignment[row] = np.argmax(total)


@kernel
def add_members(
    others: np.ndarray, deletions: np.ndarray, assignment: np.ndarray, counts: np.ndarray, sums: np.ndarray
) -> None:
    """Add rows to their clusters.

    Args:
        others: integers [U, R].
        deletions: unsigned integers [U, R].
        assignment: int64 [U], from `assign`.
        counts: float32 [S, R, 23], residues of each cluster, changed.
        sums: int64 [S, R], deletions of each cluster, changed.
    """
    for row in range(len(others)):
        cluster = assignment[row]
        for column in range(others.shape[1]):
            counts[cluster, column, others[row, column]] += np.float32(1)
            sums[cluster, column] += np.int64(deletions[row, column])


@kernel
def fill_msa_feat(
    feat: np.ndarray, msa: np.ndarray, deletions: np.ndarray, profile: np.ndarray, deletion_mean: np.ndarray
) -> None:
    """Write the channels of `msa_feat`.

    Args:
        feat: float32 [S, R, 49], written.
        msa: int8 [S, R].
        deletions: float32 [S, R], scaled.
        profile: float32 [S, R, 23].
        deletion_mean: float32 [S, R], scaled.
    """
    codes = profile.shape[2]
    for row in range(len(msa)):
        for column in range(msa.shape[1]):
            position = feat[row, column]
            # assignments to slices would take a second and a half to compile
            for code in range(codes):
                position[code] = 0
                position[codes + 2 + code] = profile[row, column, code]
            position[msa[row, column]] = 1
            position[codes] = deletions[row, column] > 0
            position[codes + 1] = deletions[row, column]
            position[2 * codes + 2] = deletion_mean[row, column]
