"""Fixtures: test data, and recorded random choices of DeepMind's code."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from features.alphafold2.random_draws import PhiloxDraws

DATA = Path(__file__).parent / "data"


class RecordedDraws(PhiloxDraws):
    """Random choices recorded by make_goldens.py, instead of those of a seed."""

    def __init__(self, recorded: Mapping[str, np.ndarray], prefix: str, rows: int, length: int) -> None:
        self.sampled = recorded[f"{prefix}/sample_order"].astype(int)
        self.masked = (
            np.unpackbits(recorded[f"{prefix}/masked"], count=rows * length)
            .astype(bool)
            .reshape(rows, length)
        )
        self.codes = recorded[f"{prefix}/replacements"]
        self.extra = recorded[f"{prefix}/extra_order"].astype(int)

    def sample_order(self, count: int) -> np.ndarray:
        assert count == len(self.sampled)
        return self.sampled

    def mask_positions(self, rows: int, length: int) -> np.ndarray:
        assert (rows, length) == self.masked.shape
        return np.where(self.masked, 0.0, 1 - 2.0**-24)

    def replacements(self, probabilities: np.ndarray, masked: np.ndarray) -> np.ndarray:
        assert np.array_equal(masked, self.masked)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
        assert np.all(probabilities[np.arange(len(self.codes)), self.codes] > 0)
        return self.codes

    def extra_order(self, count: int) -> np.ndarray:
        assert count == len(self.extra)
        return self.extra


@pytest.fixture
def data_dir() -> Path:
    """Return the folder of small alignments and of DeepMind's features for them."""
    return DATA


@pytest.fixture
def recorded_draws() -> Callable[..., RecordedDraws]:
    """Return the class `RecordedDraws`, called with (arrays, prefix, rows, length)."""
    return RecordedDraws
