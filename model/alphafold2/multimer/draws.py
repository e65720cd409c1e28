"""Random numbers for the MSA samples of AlphaFold-Multimer's passes."""

import numpy as np
import torch

from msa.base.residues import NUM_MASKED_CODES


class PhiloxMsaDraws:
    """The random numbers of one pass, which depend only on seed and iteration: float32, uniform in [0, 1).

    All random choices of the network go through these methods, so that tests can substitute those of another
    program.

    They are the upper 24 bits of both halves of the raw output of Philox-4x64, lower half first, which NumPy
    guarantees not to change. Seed and iteration, each below 2⁶⁴, are its key, and each kind of number has its
    own counter range, so the numbers of a row do not depend on the rows after it.

    Raises:
        ValueError: seed or iteration is out of range.
    """

    _ROWS, _POSITIONS, _CODES = range(3)

    def __init__(self, seed: int, iteration: int) -> None:
        for name, value in (("seed", seed), ("iteration", iteration)):
            if not 0 <= value < 2**64:
                raise ValueError(f"{name} must be between 0 and 2^64 - 1, got {value}")
        self._key = np.array([seed, iteration], np.uint64)

    def _uniform(self, kind: int, count: int) -> np.ndarray:
        generator = np.random.Philox(counter=np.array([0, 0, 0, kind], np.uint64), key=self._key)
        halves = generator.random_raw((count + 1) // 2).astype("<u8", copy=False).view("<u4")[:count]
        return (halves >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)

    def rows(self, count: int) -> np.ndarray:
        """Return a number for each row of the alignment, [count], which determines the order of the rows."""
        return self._uniform(self._ROWS, count)

    def positions(self, rows: int, length: int) -> np.ndarray:
        """Return a number for each position of the sampled rows, [rows, length]; low numbers mask it."""
        return self._uniform(self._POSITIONS, rows * length).reshape(rows, length)

    def codes(self, masked: np.ndarray) -> np.ndarray:
        """Return a number for each code of each masked position, [masked positions, 23].

        Positions of the mask, bool [rows, length], are numbered row by row.
        """
        count = int(masked.sum())
        return self._uniform(self._CODES, count * NUM_MASKED_CODES).reshape(count, NUM_MASKED_CODES)


def gumbel_noise(uniform: torch.Tensor) -> torch.Tensor:
    """Transform uniform numbers to Gumbel-distributed ones, with DeepMind's safeguard against infinities."""
    epsilon = 1e-6
    return -torch.log(-torch.log(uniform + epsilon) + epsilon)
