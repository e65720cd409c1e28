"""Random choices another program made, to be made again."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parent / "data"


class RecordedDraws:
    """`features.draws.Draws` that were recorded by make_goldens.py; used up they must be, and in order."""

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
    """Small alignments and what DeepMind's code makes of them."""
    return DATA


@pytest.fixture
def recorded_draws() -> Callable[..., RecordedDraws]:
    """Make draws from recorded ones: (arrays, prefix, rows, length)."""
    return RecordedDraws
