"""The gapless kernels in numba's simulator, compared with the reference implementation.

`benchmarks/gapless_gpu.py` compares them on a GPU.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import cuda

from cuda.alignment import DeviceSequences
from cuda.alignment.gapless import (
    UNBOUNDED,
    GaplessBounder,
    ListScorer,
    TargetLists,
    bounder,
    list_scorer,
    runtime,
)
from cuda.alignment.gapless.generator import Variant
from cuda.alignment.gapless.launch_table import (
    Launch,
    choose_launch,
    choose_list_launch,
    launch_table,
    max_query_length,
)
from cuda.alignment.gapless.layout import (
    BYTE,
    HALF,
    MAX_PENALTY,
    MAX_SCORE,
    SHORT,
    Arithmetic,
    LaneLayout,
    entry_bytes,
)
from cuda.alignment.gapless.lists import LISTED, SCORED, STATE_SIZE, STRETCHES
from tests.cuda.alignment.reference import byte_table, gapless_scores

PAD, MASK, X = 52, 32, 20

simulated = pytest.mark.simulator


def random_profile(rng: np.random.Generator, length: int) -> np.ndarray:
    """Draw scores like those of a substitution matrix, with some of X's above 0; int16 [length, 32]."""
    return rng.integers(-6, 9, (length, 32)).astype(np.int16)


def random_target(rng: np.random.Generator, length: int) -> np.ndarray:
    """Draw residues of all 26 letters, some of them masked; uint8 [length]."""
    return (rng.integers(0, 26, length) | MASK * (rng.random(length) < 0.1)).astype(np.uint8)


def as_arrays(targets: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return residues, offsets and lengths as in a database."""
    lengths = np.array([len(t) for t in targets], np.int32)
    padded = (lengths.astype(np.int64) + 3) // 4 * 4
    offsets = np.cumsum(padded) - padded
    residues = np.full(int(padded.sum()), PAD, np.uint8)
    for target, offset in zip(targets, offsets, strict=True):
        residues[offset : offset + len(target)] = target
    return residues, offsets, lengths


def assert_exact(
    cache: Path, profile: np.ndarray, targets: list[np.ndarray], arithmetic: str = "half", launch: Any = None
) -> np.ndarray:
    """Check the scores of a list of all targets, and return them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_scorer, "_arithmetic", lambda device: {"half": HALF, "short": SHORT}[arithmetic])
        if launch is not None:
            patch.setattr(list_scorer, "choose_list_launch", lambda length, shared_bytes: launch)
        # the first target of a list is not scored
        everything = list(range(len(targets) + 1))
        (found,) = assert_listed_scores(cache, [profile], [targets[0], *targets], [everything])
    return np.array(found)


def on_gpu(arrays: tuple[np.ndarray, ...]) -> DeviceSequences:
    return DeviceSequences(*(cuda.to_device(array) for array in arrays))


def launch_of(lanes: int, columns: int, entry_bytes: int = 2) -> Any:
    return Launch(LaneLayout(lanes, columns, entry_bytes), 32, 1)


def byte_launch(lanes: int, columns: int) -> Any:
    return launch_of(lanes, columns, 1)


def bounds_and_scores(
    cache: Path, profile: np.ndarray, targets: list[np.ndarray], launch: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute bounds, check that none is too small, and return them with the exact scores."""
    arrays = as_arrays(targets)
    exact = gapless_scores(profile, *arrays)
    bounds = cuda.to_device(np.full(len(targets), -7, np.int16))
    GaplessBounder(profile, cache, launch).bound_all(on_gpu(arrays), bounds)
    found = np.asarray(bounds.copy_to_host())
    assert found.dtype == np.int16 and (found >= np.minimum(exact, UNBOUNDED)).all()
    assert ((found < 1024) | (found == UNBOUNDED)).all() and (found[exact >= 1024] == UNBOUNDED).all()
    return found, exact


def assert_bounded(cache: Path, profile: np.ndarray, targets: list[np.ndarray], launch: Any = None) -> None:
    """Check that no bound is too small, nor too large by more than the most negative score."""
    assert profile.min() >= -4 and profile.max() <= 7
    bounds, exact = bounds_and_scores(cache, profile, targets, launch)
    assert (bounds <= exact - min(profile.min(), 0)).all()


def assert_listed_scores(
    cache: Path, profiles: list[np.ndarray], targets: list[np.ndarray], lists: list[list[int]]
) -> list[list[int]]:
    """Check the scores of a list of targets for each query, and return them."""
    arrays = as_arrays(targets)
    own_scorer = ListScorer(profiles, cache)
    shape = len(profiles), len(targets)
    listed, scores, ends = (np.full(shape, -7, np.int32) for _ in range(3))
    state = np.zeros((len(profiles), STATE_SIZE), np.int32)
    known = 1  # the first target of each list is said to be scored
    for query, of_query in enumerate(lists):
        listed[query, : len(of_query)] = of_query
        scores[query, known : len(of_query)] = 0
        new = np.cumsum(-(-arrays[2][of_query[known:]] // own_scorer.stretch))
        ends[query, known : len(of_query)] = new
        state[query, [LISTED, SCORED, STRETCHES]] = len(of_query), min(known, len(of_query)), max([*new, 0])
    on_device = TargetLists(*(cuda.to_device(array) for array in (listed, scores, ends, state)))
    for _ in range(2):  # the second call starts from what the first left behind
        on_device.scores.copy_to_device(scores)
        own_scorer.score(on_gpu(arrays), on_device)
        found = on_device.scores.copy_to_host()
        for query, of_query in enumerate(lists):
            expected = scores[query].copy()
            expected[known : len(of_query)] = gapless_scores(profiles[query], *arrays)[of_query[known:]]
            np.testing.assert_array_equal(found[query], expected)
        np.testing.assert_array_equal(on_device.state.copy_to_host(), state)
    return [found[query, known : len(of_query)].tolist() for query, of_query in enumerate(lists)]


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
@pytest.mark.parametrize("arithmetic", ["half", "short"])
def test_scores_of_every_group_size(tmp_path: Path, lanes: int, arithmetic: str) -> None:
    rng = np.random.default_rng(lanes)
    launch = launch_of(lanes, 8)
    targets = [random_target(rng, n) for n in (0, 1, 3, 4, 5, 9)]
    length = lanes * 8 - (3 if arithmetic == "half" else 0)
    assert_exact(tmp_path, random_profile(rng, length), targets, arithmetic, launch)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("columns", [16, 24, 64, 128])
def test_scores_of_several_lane_widths(tmp_path: Path, columns: int) -> None:
    rng = np.random.default_rng(columns)
    targets = [random_target(rng, n) for n in (3, 6, 10)]
    assert_exact(tmp_path, random_profile(rng, 4 * columns - 1), targets, launch=launch_of(4, columns))


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65])
def test_scores_of_query_lengths_around_a_tile(tmp_path: Path, length: int) -> None:
    rng = np.random.default_rng(length)
    targets = [random_target(rng, n) for n in (9, 0, 14, 1, 5, 0, 2)]
    assert_exact(tmp_path, random_profile(rng, length), targets)


@simulated
def test_padding_after_a_target_does_not_count(tmp_path: Path) -> None:
    """Padding is ignored even if X scores above 0, which the composition correction may cause."""
    profile = np.full((40, 32), 3, np.int16)
    targets = [np.zeros(n, np.uint8) for n in (1, 2, 3, 5, 6)]
    assert assert_exact(tmp_path, profile, targets).tolist() == [3, 6, 9, 15, 18]


@simulated
def test_masked_residue_scores_as_x(tmp_path: Path) -> None:
    profile = np.full((8, 32), -1, np.int16)
    profile[:, 5], profile[:, X] = 4, 1
    targets = [np.array(codes, np.uint8) for codes in ([5, 5, 5], [5, 5 | MASK, 5], [5 | MASK] * 3)]
    assert assert_exact(tmp_path, profile, targets).tolist() == [12, 9, 3]


@pytest.mark.slow
@simulated
@pytest.mark.parametrize(("arithmetic", "limit"), [("half", 2048), ("short", 30000)])
def test_scores_around_the_16_bit_limit(tmp_path: Path, arithmetic: str, limit: int) -> None:
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


@pytest.mark.slow
@simulated
def test_scores_beyond_16_bits_and_queries_beyond_a_tile(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    targets = [random_target(rng, n) for n in (1, 6, 9)]
    assert_exact(tmp_path, np.full((5, 32), 30000, np.int32), targets)
    assert_exact(tmp_path, random_profile(rng, 2049), targets)


@simulated
def test_invalid_scorer_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\[3, 31\]"):
        ListScorer([np.zeros((3, 31), np.int16)], tmp_path)
    with pytest.raises(ValueError, match="unsupported layout"):
        LaneLayout(8, 12)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
def test_bounds_of_every_group_size(tmp_path: Path, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    targets = [random_target(rng, n) for n in (0, 1, 3, 4, 5, 9)]
    for columns in (8, 16, 24):
        profile = rng.integers(-4, 8, (lanes * columns - 3, 32)).astype(np.int16)
        assert_bounded(tmp_path, profile, targets, byte_launch(lanes, columns))


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65, 197, 2049])
def test_bounds_of_query_lengths_around_a_tile(tmp_path: Path, length: int) -> None:
    rng = np.random.default_rng(length)
    targets = [random_target(rng, n) for n in (1, 2, 0, 5, 14)]
    assert_bounded(tmp_path, rng.integers(-4, 8, (length, 32)).astype(np.int16), targets)


@pytest.mark.slow
@simulated
def test_bounds_of_large_scores(tmp_path: Path) -> None:
    """Scores that a byte cannot represent are rounded up, and the bounds stay close."""
    rng = np.random.default_rng(5)
    targets = [random_target(rng, n) for n in range(1, 30)]
    profile = rng.integers(-20, 21, (60, 32)).astype(np.int16)
    bounds, exact = bounds_and_scores(tmp_path, profile, targets)
    assert (bounds > exact + 4).any()
    # a byte adds up to a quarter too much, and scores below −4 are raised
    raised = bounds_and_scores(tmp_path, np.maximum(profile, -4), targets)[1]
    assert (bounds <= 1.25 * raised + 4).all()


@pytest.mark.slow
@simulated
def test_bounds_near_1024(tmp_path: Path) -> None:
    profile = np.full((264, 32), -1, np.int16)
    profile[:, 0], profile[:, 1], profile[:, 2] = 4, 1, -3
    ends: list[list[int]] = [[], [1] * 2, [1] * 4, [0], [0, 2, 0], [0] * 5]
    targets = [np.array([0] * 254 + end, np.uint8) for end in ends]
    bounds, exact = bounds_and_scores(tmp_path, profile, targets)
    assert exact.tolist() == [1016, 1018, 1020, 1020, 1021, 1036]
    # a bound may be too high by the slack of 3, which is added to every maximum
    assert (bounds < 1024).tolist() == [True, True, True, True, False, False]


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("ends_at", range(9, 17))
def test_bounds_of_alignments_that_end_in_any_column(tmp_path: Path, ends_at: int) -> None:
    """Every second column is skipped; alignments end at a target's end or before a very negative score."""
    query = np.arange(20, dtype=np.uint8)[:ends_at]
    profile = np.full((ends_at, 32), -4, np.int16)
    profile[np.arange(ends_at), query] = 5
    targets = [query[first:end] for first in (0, 1, 2, 3) for end in range(ends_at - 3, ends_at + 1)]
    targets += [np.append(target, query[:1]) for target in targets]
    assert_bounded(tmp_path, profile, sorted(targets, key=len))


@pytest.mark.slow
@simulated
def test_profiles_out_of_range_are_unbounded(tmp_path: Path) -> None:
    targets = [random_target(np.random.default_rng(0), n) for n in (1, 6, 9)]
    profile = np.full((5, 32), -2000, np.int16)
    assert bounds_and_scores(tmp_path, profile, targets)[0].tolist() == [4, 4, 4]
    profile[2, 3] = 128
    assert bounds_and_scores(tmp_path, profile, targets)[0].tolist() == [2**15 - 1] * 3


@pytest.mark.slow
@simulated
@pytest.mark.parametrize(
    ("lanes", "length"), [(1, 5), (1, 24), (2, 30), (4, 5), (4, 30), (8, 30), (16, 60), (32, 100)]
)
def test_bounds_of_targets_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int, length: int
) -> None:
    rng = np.random.default_rng(length)
    lengths = 0, 3, 15, 16, 17, 33, 34, 35, 36, 67, 68, 70, 150
    targets = [random_target(rng, n) for n in lengths]
    profile = rng.integers(-3, 8, (length, 32)).astype(np.int16)  # long alignments
    launch = byte_launch(lanes, {1: 24, 2: 16, 32: 4}.get(lanes, 8))
    for longest_part in (1, 5, 17):
        monkeypatch.setattr(bounder, "MAX_PART", longest_part)
        assert_bounded(tmp_path, profile, targets, launch)
        # each target is processed once, also if they are not sorted
        assert_bounded(tmp_path, profile, [targets[k] for k in rng.permutation(len(targets))], launch)


@simulated
def test_bounds_ignore_padding_after_a_target(tmp_path: Path) -> None:
    profile = np.full((40, 32), 3, np.int16)
    targets = [np.zeros(n, np.uint8) for n in (1, 2, 3, 5, 6)]
    assert_bounded(tmp_path, profile, targets)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("length", [33, 64, 95])
def test_bounds_of_several_tiles(tmp_path: Path, length: int) -> None:
    rng = np.random.default_rng(length)
    targets = [random_target(rng, n) for n in (0, 1, 2, 3, 4, 5, 8, 9, 13, 40)]
    profile = rng.integers(-4, 8, (length, 32)).astype(np.int16)
    assert_bounded(tmp_path, profile, targets, byte_launch(4, 8))


@pytest.mark.slow
@simulated
def test_bounds_of_an_alignment_through_all_tiles(tmp_path: Path) -> None:
    profile = np.full((130, 32), -3, np.int16)
    profile[np.arange(130), np.arange(130) % 20] = 5
    query = (np.arange(130) % 20).astype(np.uint8)
    found, exact = bounds_and_scores(tmp_path, profile, [query[3:], query], byte_launch(4, 8))
    assert exact.tolist() == [635, 650] and (found - exact).tolist() == [3, 3]


@pytest.mark.slow
@simulated
def test_bounds_of_long_queries_in_several_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounder, "BORDER_SPAN", 24)
    monkeypatch.setattr(bounder, "BORDER_OVERHANG", 16)
    runtime.stream_buffers(runtime.Device.current(), 0)._arrays.pop("border", None)
    rng = np.random.default_rng(1)
    lengths = (1, 2, 5, 7, 8, 9, 11, 12, 16)
    targets = [random_target(rng, n) for n in lengths]
    profile = rng.integers(-4, 8, (70, 32)).astype(np.int16)
    assert_bounded(tmp_path, profile, targets, byte_launch(4, 8))
    # only a target that does not fit in the border has no bound
    bounds, _ = bounds_and_scores(tmp_path, profile, [*targets, random_target(rng, 41)], byte_launch(4, 8))
    assert (bounds[:-1] < UNBOUNDED).all() and bounds[-1] == UNBOUNDED


@pytest.mark.slow
@simulated
def test_scores_of_a_list(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    targets = [random_target(rng, n) for n in (0, 1, 2, 3, 4, 5, 8, 9, 13, 40)]
    profile = random_profile(rng, 50)
    for listed in ([], [9], [3, 9], [4, 3, 0, 9, 1], list(range(10))):
        assert_listed_scores(tmp_path, [profile], targets, [listed])


@pytest.mark.slow
@simulated
def test_scores_of_the_lists_of_several_queries(tmp_path: Path) -> None:
    """Queries share kernels twice, two others are beyond 16 bits, and one has an empty list."""
    rng = np.random.default_rng(8)
    targets = [random_target(rng, n) for n in (3, 1, 17, 6)]
    profiles = [random_profile(rng, length) for length in (20, 9, 2049, 4, 30)]
    profiles.append(np.full((5, 32), 30000, np.int32))
    lists = [[0, 2, 3], [2, 3, 1, 0], [2, 0, 1], [3, 2, 0], [], [1, 2]]
    assert_listed_scores(tmp_path, profiles, targets, lists)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("length", [5, 20, 50])
def test_scores_of_listed_long_targets_in_stretches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(list_scorer, "MIN_STRETCH", 16)
    launch = launch_of(8, -(-length // 64) * 8)
    monkeypatch.setattr(list_scorer, "choose_list_launch", lambda length, shared_bytes: launch)
    rng = np.random.default_rng(length)
    lengths = (15, 16, 17, 63, 64, 65, 127, 130)
    targets = [random_target(rng, n) for n in lengths]
    profile = rng.integers(-3, 9, (length, 32)).astype(np.int16)  # long alignments
    assert_listed_scores(tmp_path, [profile], targets, [[5, 2, 7, 3, 0, 6, 4, 1]])


@pytest.mark.slow
@simulated
@pytest.mark.parametrize(("arithmetic", "limit"), [(HALF, 2048), (SHORT, 30000)])
def test_listed_scores_beyond_16_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arithmetic: Arithmetic, limit: int
) -> None:
    monkeypatch.setattr(list_scorer, "_arithmetic", lambda device: arithmetic)
    step = limit // 16
    profile = np.full((24, 32), -1, np.int16)
    profile[:, 0], profile[:, 1] = step, 1
    targets = [np.array(codes, np.uint8) for codes in ([0] * 15, [0] * 16, [0] * 17, [1, 1])]
    found = assert_listed_scores(tmp_path, [profile], targets, [[0, 3, 2, 1]])
    assert found == [[2, 17 * step, 16 * step]]


@simulated
def test_invalid_bounder_and_variant_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\[0, 32\]"):
        GaplessBounder(np.zeros((0, 32), np.int16), tmp_path)
    with pytest.raises(ValueError, match="there is no listed kernel with byte arithmetic"):
        Variant("listed", LaneLayout(4, 8, 1), BYTE, True)
    with pytest.raises(ValueError, match="2-byte entries, not 1"):
        Variant("listed", LaneLayout(4, 8, 1), HALF, True)


def test_launch_tables_cover_every_query_length() -> None:
    for device in ("an unknown GPU", "NVIDIA H200"):
        longest = list(launch_table(device))
        assert longest == sorted(longest) and longest[-1] == 2048 == max_query_length(device, 2**18)
        for length in (1, 32, 33, 197, 512, 513, 1024, 2048):
            launch = choose_launch(length, device, 2**18)
            assert launch is not None and launch.layout.tile >= length
        assert choose_launch(2049, device, 2**18) is None
        assert choose_launch(2048, device, 2**15) is None
        assert 0 < max_query_length(device, 2**15) < 2048
        assert max_query_length(device, 0) == 0


def test_list_launch_exists_for_every_query_length() -> None:
    for length in (1, 128, 129, 512, 513, 2048):
        launch = choose_list_launch(length, 2**18)
        assert launch is not None and length <= launch.layout.tile <= length + 511
    assert choose_list_launch(2049, 2**18) is None and choose_list_launch(2048, 2**16) is None


def test_byte_entries_add_at_least_their_score_and_little_more() -> None:
    """Check every sum from 0 to 1024, rounded once to half precision, for every low byte."""
    entries = entry_bytes()
    assert entries.shape == (MAX_PENALTY + 1 + MAX_SCORE, 256)
    # a score from 4 to 7 would be inexact only above the byte 128, which never occurs
    assert not (entries == 128).any()
    start = 1 - np.arange(0, 1024) / 2048
    lows = np.array([low for low in range(256) if low != 128], np.uint16)
    for score in range(-MAX_PENALTY, MAX_SCORE + 1):
        high = entries[score + MAX_PENALTY, lows].astype(np.uint16)
        added = (high << 8 | lows).view(np.float16).astype(np.float64)
        sums = np.clip(start + added[:, None], 0, 1).astype(np.float16).astype(np.float64)
        got, exact = 2048 * (1 - sums), np.maximum(np.arange(1024) + score, 0)
        assert (np.minimum(got, 1024) >= np.minimum(exact, 1024)).all(), score
        spare = 0.25 * score if score > 7 else 0
        assert (got <= exact + spare)[:, exact + spare < 1024].all(), score


def test_byte_table_contains_the_profile() -> None:
    """Read the table as the kernel does: every word twice, as it is and shifted by a byte."""
    rng = np.random.default_rng(0)
    for lanes, columns, length in ((1, 100, 97), (2, 56, 112), (4, 28, 100), (16, 8, 128), (8, 40, 1)):
        layout = LaneLayout(lanes, columns, 1)
        profile = rng.integers(-6, 8, (length, 32)).astype(np.int16)
        expected = np.zeros((27, layout.tile))
        expected[:26, :length] = np.maximum(profile[:, :26].T, -4)
        table = byte_table(layout, profile)
        assert table.dtype == np.int32 and 4 * table.size == layout.table_bytes
        at, first = 0, 0
        while first < layout.words:
            words = next(w for w in (4, 2, 1) if first + w <= layout.words)
            slots = max(lanes, 32 // words)
            part = table.reshape(27, -1)[:, at : at + slots * words].reshape(27, slots, words)
            pairs = np.stack([part << 8, part], -1).view(np.float16).reshape(27, slots, words, 2, 2)
            added = -2048 * pairs.astype(np.float64)
            for slot, word, pair, half in np.ndindex(added.shape[1:]):
                column = slot % lanes * columns + half * columns // 2 + 2 * (first + word) + pair
                assert (np.abs(added[:, slot, word, pair, half] - expected[:, column]) <= 0.5).all()
            at, first = at + slots * words, first + words
        assert at * 4 == layout.row_bytes
