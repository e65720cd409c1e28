"""The depth of an alignment: its number of effective sequences."""

import numpy as np

from msa.base.residues import GAP, NUM_CODES

SAME = 0.8  # identity from which two rows count as one sequence
MAX_ROWS = 256


def effective_sequences(msa: np.ndarray) -> float:
    """Return the number of effective sequences, the query included: the sum of the rows' weights.

    Only the first MAX_ROWS rows are compared, so the result is at most MAX_ROWS.

    Args:
        msa: integers [rows, length], 0 to 21.
    """
    return float(row_weights(msa[:MAX_ROWS]).sum())


def row_weights(msa: np.ndarray) -> np.ndarray:
    """Return the weight of each row: 1 / number of rows, itself included, with at least 80 % identity.

    The identity is that of the columns in which both rows have a residue.

    Args:
        msa: integers [rows, length], 0 to 21.

    Returns:
        float64 [rows].
    """
    present = (msa != GAP).astype(np.float32)
    one_hot = (msa[..., None] == np.arange(NUM_CODES)).astype(np.float32) * present[..., None]
    flat = one_hot.reshape(len(msa), -1)
    common = present @ present.T
    is_same = flat @ flat.T >= np.float32(SAME) * np.maximum(common, 1)
    np.fill_diagonal(is_same, True)
    return np.asarray(1.0 / is_same.sum(axis=1))
