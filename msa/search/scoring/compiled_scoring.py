"""The compiled kernels for scores, which searches with many queries load ahead."""

import numpy as np

from msa.profile.pssm import context_tables


def call_scoring_kernels(with_forward: bool) -> None:
    """Call each kernel once on tiny arrays, so that numba loads or compiles it.

    Args:
        with_forward: include those of Forward scores, which iterated searches do not compute.
    """
    # imported here, because they import numba
    from msa.profile import compiled_context, compiled_statistics
    from msa.search.scoring import compiled_composition

    integers, numbers = np.ones(1, np.int64), np.ones(1)
    compiled_statistics.fill_evalues(integers, integers, integers, numbers, 1, (1.0,) * 7, numbers)
    compiled_statistics.fill_thresholds(numbers, 1.0, integers)
    compiled_composition.count_residues(_residues(), integers, integers, np.zeros((1, 1), np.int64))
    tables = context_tables()
    padded, log_odds = np.zeros(len(tables.embedding), np.int64), np.zeros((1, tables.output.shape[1]))
    compiled_context.add_changes(tables.embedding, tables.bias, tables.output, padded, log_odds)
    if with_forward:
        _call_forward_kernels()


def _call_forward_kernels() -> None:
    from msa.search.scoring import compiled_forward

    residues, indices, windows = _residues(), np.zeros(1, np.int64), np.array([[0, 0, 1, 1]])
    compiled_forward.find_copies(residues, windows, indices, indices.copy())
    compiled_forward.fill_forward_scores(
        context_tables(), np.ones(256), 0.5, 0.5, residues, windows, residues.copy(), np.array([[0, 1]]),
        np.zeros((1, 2)),
    )  # fmt: skip


def _residues() -> np.ndarray:
    """Return a residue that cannot be changed, like those of a database."""
    residues = np.zeros(1, np.uint8)
    residues.flags.writeable = False
    return residues
