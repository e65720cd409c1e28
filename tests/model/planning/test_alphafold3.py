"""The estimate of a prediction's memory against measured peaks."""

import pytest

from model.alphafold3.config import OPENBIND, P2
from model.planning.alphafold3 import estimate_memory

# Peaks of the reference implementation on a GPU, GiB: float32, 1,024 rows, 8 atoms per token, 5 samples. They
# were 3.0 and 5.2 with template distograms of float32, which are bytes now.
MEASURED = {tokens: peak - 4 * 39 * 3 * tokens**2 / 2**30 for tokens, peak in ((512, 3.0), (1024, 5.2))}


@pytest.mark.parametrize("tokens", MEASURED)
def test_estimates_are_near_measured_peaks(tokens: int) -> None:
    estimate = estimate_memory(OPENBIND, tokens, 8 * tokens, 1024)
    assert estimate.peak / 2**30 == pytest.approx(MEASURED[tokens], rel=0.1)


def test_weights_are_the_parameter_file() -> None:
    for config in (OPENBIND, P2):
        assert estimate_memory(config, 100, 800, 10).weights / 1e9 == pytest.approx(1.47, abs=0.05)


def test_every_argument_counts() -> None:
    base = {"tokens": 2000, "atoms": 16_000, "rows": 2000, "samples": 5, "templates": 4, "dtype_bytes": 4}
    peak = estimate_memory(OPENBIND, **base).peak
    for name, value in base.items():
        assert estimate_memory(OPENBIND, **(base | {name: value // 2})).peak < peak, name
    assert estimate_memory(OPENBIND, **base, on_gpu=False).peak < peak
