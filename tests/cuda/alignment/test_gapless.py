"""The gapless filter under numba's simulator, against its definition, cell by cell.

The simulator has to be chosen before numba is imported, so the tests run themselves again in a process that
has chosen it; on a machine with a GPU `benchmarks/gapless_gpu.py` compares the kernels themselves.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
PAD, MASK, X = 52, 32, 20

simulated = pytest.mark.skipif(
    not SIMULATED, reason="runs in the process that test_under_the_simulator starts"
)


@pytest.mark.skipif(SIMULATED, reason="is in the simulator already")
def test_under_the_simulator(root: Path) -> None:
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout + run.stderr


def random_profile(rng: np.random.Generator, length: int) -> np.ndarray:
    """int16 [length, 32] with scores as a substitution matrix has them, X's now and then above 0."""
    return rng.integers(-6, 9, (length, 32)).astype(np.int16)


def random_target(rng: np.random.Generator, length: int) -> np.ndarray:
    """uint8 [length] of all 26 letters, some masked."""
    return (rng.integers(0, 26, length) | MASK * (rng.random(length) < 0.1)).astype(np.uint8)


def packed(targets: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residues, offsets and lengths as a database has them."""
    lengths = np.array([len(t) for t in targets], np.int32)
    room = (lengths.astype(np.int64) + 3) // 4 * 4
    offsets = np.cumsum(room) - room
    residues = np.full(int(room.sum()), PAD, np.uint8)
    for target, offset in zip(targets, offsets, strict=True):
        residues[offset : offset + len(target)] = target
    return residues, offsets, lengths


def assert_exact(
    cache: Path, profile: np.ndarray, targets: list[np.ndarray], arithmetic: str = "half", launch: Any = None
) -> np.ndarray:
    from numba import cuda

    from cuda.alignment.gapless.launch import GaplessFilter
    from cuda.alignment.gapless.reference import gapless_scores

    arrays = packed(targets)
    # each call also finds the counters as the one before left them
    scores = cuda.to_device(np.full(len(targets), -7, np.int32))
    gapless = GaplessFilter(profile, cache, arithmetic, launch)
    gapless.scores(*[cuda.to_device(array) for array in arrays], scores)
    found = np.asarray(scores.copy_to_host())
    np.testing.assert_array_equal(found, gapless_scores(profile, *arrays))
    return found


def launch_of(lanes: int, columns: int) -> Any:
    from cuda.alignment.gapless.launch_table import Launch
    from cuda.alignment.gapless.layout import Layout

    return Launch(Layout(lanes, columns), 32, 1)


@simulated
@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
@pytest.mark.parametrize("arithmetic", ["half", "short"])
def test_every_group_size(tmp_path: Path, lanes: int, arithmetic: str) -> None:
    rng = np.random.default_rng(lanes)
    launch = launch_of(lanes, 8)
    targets = [random_target(rng, n) for n in (0, 1, 3, 4, 5, 9)]
    length = lanes * 8 - (3 if arithmetic == "half" else 0)
    assert_exact(tmp_path, random_profile(rng, length), targets, arithmetic, launch)


@simulated
@pytest.mark.parametrize("columns", [16, 24, 64, 128])
def test_columns_of_a_lane(tmp_path: Path, columns: int) -> None:
    rng = np.random.default_rng(columns)
    targets = [random_target(rng, n) for n in (3, 6, 10)]
    assert_exact(tmp_path, random_profile(rng, 4 * columns - 1), targets, launch=launch_of(4, columns))


@simulated
@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65])
def test_query_lengths_around_a_tile(tmp_path: Path, length: int) -> None:
    rng = np.random.default_rng(length)
    targets = [random_target(rng, n) for n in (1, 2, 5, 14)]
    assert_exact(tmp_path, random_profile(rng, length), targets)


@simulated
def test_targets_in_any_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    targets = [random_target(rng, n) for n in (9, 0, 13, 1, 4, 0, 2)]
    assert_exact(tmp_path, random_profile(rng, 20), targets)


@simulated
def test_what_stands_after_a_target_does_not_count(tmp_path: Path) -> None:
    """Even where X scores above 0, as the composition correction makes it."""
    profile = np.full((40, 32), 3, np.int16)
    targets = [np.zeros(n, np.uint8) for n in (1, 2, 3, 5, 6)]
    assert assert_exact(tmp_path, profile, targets).tolist() == [3, 6, 9, 15, 18]


@simulated
def test_a_masked_residue_scores_as_x(tmp_path: Path) -> None:
    profile = np.full((8, 32), -1, np.int16)
    profile[:, 5], profile[:, X] = 4, 1
    targets = [np.array(codes, np.uint8) for codes in ([5, 5, 5], [5, 5 | MASK, 5], [5 | MASK] * 3)]
    assert assert_exact(tmp_path, profile, targets).tolist() == [12, 9, 3]


@simulated
@pytest.mark.parametrize(("arithmetic", "limit"), [("half", 2048), ("short", 30000)])
def test_scores_at_the_edge_of_16_bits(tmp_path: Path, arithmetic: str, limit: int) -> None:
    step = limit // 16
    profile = np.full((24, 32), -1, np.int16)
    profile[:, 0], profile[:, 1], profile[:, 2] = step, 1, -step
    exact = [0] * 15
    targets = [
        np.array(codes, np.uint8)
        for codes in (
            exact,
            [*exact, 1],
            [*exact, 0],
            [0] * 17 + [1],
            [*exact, 1, 2, 0],
            [*[0] * 20, 2, 0, 0],
        )
    ]
    scores = assert_exact(tmp_path, profile, targets, arithmetic)
    assert scores.max() > limit and limit in scores.tolist()


@simulated
def test_scores_too_large_for_16_bits_and_queries_too_long_for_a_tile(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    targets = [random_target(rng, n) for n in (1, 6, 9)]
    assert_exact(tmp_path, np.full((5, 32), 30000, np.int32), targets)
    assert_exact(tmp_path, random_profile(rng, 2049), targets)


@simulated
def test_no_targets(tmp_path: Path) -> None:
    from numba import cuda

    from cuda.alignment.gapless.launch import GaplessFilter

    empty = [cuda.to_device(np.zeros(0, kind)) for kind in (np.uint8, np.int64, np.int32, np.int32)]
    GaplessFilter(np.zeros((3, 32), np.int16), tmp_path).scores(*empty)


@simulated
def test_bad_arguments(tmp_path: Path) -> None:
    from cuda.alignment.gapless.launch import GaplessFilter
    from cuda.alignment.gapless.layout import Layout

    with pytest.raises(ValueError, match=r"\[3, 31\]"):
        GaplessFilter(np.zeros((3, 31), np.int16), tmp_path)
    with pytest.raises(ValueError, match="33 query columns do not fit in 32"):
        GaplessFilter(np.zeros((33, 32), np.int16), tmp_path, launch=launch_of(4, 8))
    with pytest.raises(ValueError, match="no such layout"):
        Layout(8, 12)


def test_launch_tables_hold_every_query() -> None:
    from cuda.alignment.gapless.launch_table import choose_launch, launch_table

    for device in ("a GPU of tomorrow", "NVIDIA H200"):
        longest = list(launch_table(device))
        assert longest == sorted(longest) and longest[-1] == 2048
        for length in (1, 32, 33, 197, 512, 513, 1024, 2048):
            launch = choose_launch(length, device, 2**18)
            assert launch is not None and launch.layout.tile >= length
        assert choose_launch(2049, device, 2**18) is None
        assert choose_launch(2048, device, 2**15) is None
