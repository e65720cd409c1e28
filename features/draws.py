"""Where every random number of the features comes from.

All of AlphaFold2's random choices about the MSA pass through one object, so that the numbers another program
drew can be put in their place.
"""

from typing import Protocol

import numpy as np

_SAMPLE, _POSITIONS, _REPLACEMENTS, _EXTRA = range(4)


class Draws(Protocol):
    """The random choices of one iteration, asked for in this order."""

    def sample_order(self, count: int) -> np.ndarray:
        """A permutation of 0 … count-1: the order of all rows but the query."""

    def mask_positions(self, rows: int, length: int) -> np.ndarray:
        """Uniform numbers in [0, 1), [rows, length]; below the masked fraction means masked."""

    def replacements(self, probabilities: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Codes drawn for the masked positions.

        Args:
            probabilities: float64 [masked positions, 23], each summing to 1.
            masked: bool [rows, length], where these positions lie.
        """

    def extra_order(self, count: int) -> np.ndarray:
        """A permutation of 0 … count-1: the order of the rows that were not sampled."""


class PhiloxDraws:
    """Draws that are a function of the seed and the iteration alone, the same on every machine.

    Only the raw 64-bit output of Philox-4x64 is used, which NumPy guarantees never to change; the seed and
    the iteration are its key and every kind of choice has a counter range of its own, so none shifts another.

    Args:
        seed: 0 ≤ seed < 2⁶⁴.
        iteration: 0 ≤ iteration < 2⁶⁴; recycling iterations count from 0.

    Raises:
        ValueError: out of range.
    """

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
        return self._permutation(_SAMPLE, count)

    def mask_positions(self, rows: int, length: int) -> np.ndarray:
        return self._uniform(_POSITIONS, rows * length).reshape(rows, length)

    def replacements(self, probabilities: np.ndarray, masked: np.ndarray) -> np.ndarray:
        edges = np.cumsum(probabilities, axis=1)
        chosen = self._uniform(_REPLACEMENTS, len(edges)) * edges[:, -1]
        # the first code whose cumulative probability exceeds the number: never one of probability 0
        return np.argmax(edges > chosen[:, None], axis=1)

    def extra_order(self, count: int) -> np.ndarray:
        return self._permutation(_EXTRA, count)
