"""The compiled kernels for scores, which searches with many queries load ahead."""

import numpy as np


def call_scoring_kernels() -> None:
    """Call each kernel once on tiny arrays, so that numba loads or compiles it."""
    # imported here, because they import numba
    from msa.profile import compiled_context, compiled_statistics
    from msa.search import compiled_composition

    integers, numbers = np.ones(1, np.int64), np.ones(1)
    compiled_statistics.fill_evalues(integers, integers, integers, numbers, 1, (1.0,) * 7, numbers)
    compiled_statistics.fill_thresholds(numbers, 1.0, integers)
    weights, output = np.ones((1, 1, 1), np.float32), np.ones((1, 1))
    compiled_context.add_changes(weights, weights[0, 0], output, integers - 1, output)
    residues = np.zeros(1, np.uint8)
    residues.flags.writeable = False
    compiled_composition.count_residues(residues, integers, integers, np.zeros((1, 1), np.int64))
