"""Features of random alignments."""

import numpy as np

from features.alphafold2.deterministic import make_features
from msa.alignments.files import Alignment


def random_features(rows: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return features of distinct random rows; the first three columns encode a row's number."""
    rng = np.random.default_rng(seed)
    letters = np.frombuffer(b"ARNDCQEGHILKMFPSTWYV-", np.uint8)[rng.integers(21, size=(rows, length))]
    letters[:, :3] = np.frombuffer(b"ARNDCQEGHI", np.uint8)[(np.arange(rows)[:, None] // [100, 10, 1]) % 10]
    letters[0][letters[0] == ord("-")] = ord("W")
    deletions = rng.poisson(0.1, letters.shape).astype(np.uint8)
    return make_features([Alignment(tuple(map(str, range(rows))), letters, deletions)])
