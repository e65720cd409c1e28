"""The compiled kernels for scores, which searches with many queries load ahead."""

import numpy as np

from msa.profile.pssm import context_tables


def call_scoring_kernels() -> None:
    """Call each kernel once on tiny arrays, so that numba loads or compiles it."""
    # imported here, because they import numba
    from msa.profile import compiled_context, compiled_statistics
    from msa.search import compiled_composition, compiled_forward

    integers, numbers = np.ones(1, np.int64), np.ones(1)
    compiled_statistics.fill_evalues(integers, integers, integers, numbers, 1, (1.0,) * 7, numbers)
    compiled_statistics.fill_thresholds(numbers, 1.0, integers)
    residues = np.zeros(1, np.uint8)
    residues.flags.writeable = False
    compiled_composition.count_residues(residues, integers, integers, np.zeros((1, 1), np.int64))
    tables, indices, windows = context_tables(), np.zeros(1, np.int64), np.array([[0, 0, 1, 1]])
    padded, log_odds = np.zeros(len(tables.embedding), np.int64), np.zeros((1, tables.output.shape[1]))
    compiled_context.add_changes(tables.embedding, tables.bias, tables.output, padded, log_odds)
    compiled_forward.find_copies(residues, windows, indices, indices.copy())
    compiled_forward.fill_forward_scores(
        tables, np.ones(256), 0.5, 0.5, residues, windows, residues.copy(), np.array([[0, 1]]),
        np.zeros((1, 2)),
    )  # fmt: skip
