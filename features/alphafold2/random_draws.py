"""Random numbers of the sampled features, the same on every machine."""

import numpy as np


class PhiloxDraws:
    """The random choices of an iteration, which depend only on it and the seed; the same on every machine.

    The methods are called in their order. All of AlphaFold2's random choices about the MSA are among them, so
    that tests can substitute those of another program.

    Uses the raw 64-bit output of Philox-4x64, which NumPy guarantees not to change. Seed and iteration are
    its key. Each kind of choice has its own counter range, so that none affects another.

    Raises:
        ValueError: seed or iteration is out of range.
    """

    _SAMPLE, _POSITIONS, _REPLACEMENTS, _EXTRA = range(4)

    def __init__(self, seed: int, iteration: int) -> None:
        for name, value in (("seed", seed), ("iteration", iteration)):
            if not 0 <= value < 2**64:
                raise ValueError(f"{name} must be between 0 and 2^64 - 1, got {value}")
        self._key = np.array([seed, iteration], np.uint64)

    def _raw(self, stream: int, count: int) -> np.ndarray:
        counter = np.array([0, 0, 0, stream], np.uint64)
        return np.random.Philox(counter=counter, key=self._key).random_raw(count)

    def _uniform(self, stream: int, count: int) -> np.ndarray:
        return (self._raw(stream, count) >> np.uint64(11)) * 2.0**-53

    def _permutation(self, stream: int, count: int) -> np.ndarray:
        return np.argsort(self._raw(stream, count), kind="stable")

    def sample_order(self, count: int) -> np.ndarray:
        """Return a permutation of 0 to count − 1: the order of all rows except the query."""
        return self._permutation(self._SAMPLE, count)

    def mask_positions(self, rows: int, length: int) -> np.ndarray:
        """Return uniform numbers in [0, 1), [rows, length]; below the masked fraction means masked."""
        return self._uniform(self._POSITIONS, rows * length).reshape(rows, length)

    def replacements(self, probabilities: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Draw the codes of the masked positions.

        Args:
            probabilities: float64 [masked positions, 23], each row with sum 1.
            masked: bool [rows, length], the masked positions.
        """
        cumulative = np.cumsum(probabilities, axis=1)
        thresholds = self._uniform(self._REPLACEMENTS, len(cumulative)) * cumulative[:, -1]
        # the first code whose cumulative probability exceeds the threshold, so never one with probability 0
        return np.argmax(cumulative > thresholds[:, None], axis=1)

    def extra_order(self, count: int) -> np.ndarray:
        """Return a permutation of 0 to count − 1: the order of the rows that were not sampled."""
        return self._permutation(self._EXTRA, count)
