"""Choosing the best scores on a GPU, or under numba's simulator, beside msa.search.best_targets.

The simulator has to be chosen before numba is imported, so where there is no GPU the tests run themselves
again in a process that has chosen it.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import cuda
from numba.core import config

from cuda.alignment.select import TopSelector
from msa.search import best_targets

WORKS = bool(config.ENABLE_CUDASIM) or cuda.is_available()
works = pytest.mark.skipif(not WORKS, reason="runs in the process that test_under_the_simulator starts")


@pytest.mark.skipif(WORKS, reason="the tests run in this process")
def test_under_the_simulator(root: Path) -> None:
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout + run.stderr


def check(scores: np.ndarray, most: int, smallest: int, bins: int = 64, times: int = 1) -> None:
    selector = TopSelector(most, blocks=2, threads=4, bins=bins)
    expected = best_targets(scores, most, smallest)
    device = cuda.to_device(scores)
    for _ in range(times):
        indices, best = selector.select(device, smallest)
        assert indices.tolist() == expected.tolist()
        assert best.tolist() == scores[expected].tolist()


@works
@pytest.mark.parametrize("count", [1, 12, 33, 49])
@pytest.mark.parametrize("most", [1, 7, 100])
def test_equals_best_targets(count: int, most: int) -> None:
    rng = np.random.default_rng(count)
    check(rng.integers(0, 12, count).astype(np.int16), most, 3)


@works
@pytest.mark.parametrize(
    "scores", [[7] * 30, [0] * 30, list(range(30)), list(range(30, 0, -1)), [3] * 29 + [9]]
)
@works
def test_ties_and_extremes(scores: list[int]) -> None:
    for most in (1, 29, 30):
        check(np.array(scores, np.int32), most, 3)


@works
def test_the_histogram_is_left_clean() -> None:
    check(np.arange(40, dtype=np.int32), 7, 3, times=3)


@works
def test_none_at_all() -> None:
    assert [len(part) for part in TopSelector(3, blocks=1, threads=4, bins=64).select(
        cuda.to_device(np.empty(0, np.int32)), 0)] == [0, 0]  # fmt: skip


@works
@pytest.mark.parametrize("most", [1, 10, 19, 60])
def test_scores_beyond_the_histogram(most: int) -> None:
    rng = np.random.default_rng(most)
    scores = np.concatenate(
        [rng.integers(0, 100, 20), rng.integers(2**20, 2**20 + 9, 10), [2**31 - 1] * 3, [5 + 63] * 6]
    ).astype(np.int32)
    rng.shuffle(scores)
    check(scores, most, 5)
