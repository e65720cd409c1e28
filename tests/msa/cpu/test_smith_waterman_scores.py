"""Tests of alignment scores computed without paths against the scores of the alignments."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import LETTER_BITS, MASK_BIT, encode
from msa.cpu import smith_waterman_scores
from msa.cpu.simd import has_byte_shuffle, vector_bytes
from msa.cpu.smith_waterman import align
from msa.cpu.smith_waterman_scores import alignment_scores
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.pssm import query_profile
from tests.plain_pytest import PLAIN_OPTIONS


def database(sequences: list[np.ndarray]) -> SequenceArrays:
    """Store targets one after the other."""
    lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    ends = np.cumsum(lengths, dtype=np.int64)
    return SequenceArrays(np.concatenate(sequences).astype(np.uint8), ends - lengths, lengths)


def assert_scores_equal_alignments(
    profile: np.ndarray, targets: SequenceArrays, gaps: tuple[int, int] = (11, 1), threads: int = 1
) -> None:
    """Compare the scores of all targets, in random order, with those of `align`."""
    indices = np.random.default_rng(len(targets)).permutation(len(targets))
    expected = align(profile, np.zeros(len(profile), np.uint8), targets, indices, *gaps)
    scores = alignment_scores(profile, targets, indices, *gaps, threads)
    assert scores.dtype == np.int32
    np.testing.assert_array_equal(scores, expected.records[:, 0])


def mutated(rng: np.random.Generator, codes: np.ndarray, rate: float) -> np.ndarray:
    return np.where(rng.random(len(codes)) < rate, rng.integers(0, 20, len(codes)), codes)


def random_targets(rng: np.random.Generator, query: np.ndarray, count: int) -> SequenceArrays:
    """Create unrelated targets with all letters, relatives, relatives with an insertion, and masked ones."""
    sequences = [rng.integers(0, 26, int(n)) for n in rng.integers(0, 150, count)]
    sequences += [mutated(rng, query, rate) for rate in np.linspace(0, 0.8, 20)]
    middle = len(query) // 2
    sequences += [
        np.concatenate([query[:middle], rng.integers(0, 20, int(n)), query[middle:]])
        for n in rng.integers(1, 40, 20)
    ]
    sequences += [sequence | MASK_BIT for sequence in sequences[-5:]]
    return database(sequences)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 90),
    st.integers(0, 150),
    st.sampled_from([(11, 1), (10, 2), (3, 1), (1, 1), (7, 7)]),
)
def test_scores_of_random_pairs_equal_alignments(
    seed: int, length: int, count: int, gaps: tuple[int, int]
) -> None:
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 26, length).astype(np.uint8)
    assert_scores_equal_alignments(query_profile(query), random_targets(rng, query, count), gaps, threads=2)


@pytest.mark.parametrize("score", [253, 254, 255, 256, 300, 40_000])
def test_scores_around_the_largest_byte(score: int) -> None:
    length = -(-score // 100)
    profile = np.full((length, 32), -60, np.int16)
    profile[:, 0] = 100
    profile[-1, 0] = score - 100 * (length - 1)
    targets = database([np.zeros(length, np.uint8), np.ones(9, np.uint8)] * 40)
    assert_scores_equal_alignments(profile, targets)
    assert alignment_scores(profile, targets, np.arange(2)).tolist() == [score, 0]


@pytest.mark.parametrize("scores", [(-9, 9), (-128, 127), (-129, 127), (-128, 128), (-4000, 9), (-1, 3000)])
def test_scores_of_profiles_that_do_not_fit_in_bytes(scores: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    profile = rng.choice(scores, (30, 32)).astype(np.int16)
    assert_scores_equal_alignments(profile, random_targets(rng, rng.integers(0, 20, 30), 100))


def test_scores_with_gap_costs_that_do_not_fit_in_bytes() -> None:
    rng = np.random.default_rng(3)
    query = rng.integers(0, 20, 90).astype(np.uint8)
    assert_scores_equal_alignments(query_profile(query), random_targets(rng, query, 100), gaps=(150, 1))
    assert_scores_equal_alignments(query_profile(query), random_targets(rng, query, 100), gaps=(127, 127))


def test_only_a_long_target_among_short_ones_is_aligned_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_byte_shuffle():
        pytest.skip("needs byte shuffles: without, each target is aligned alone")
    rng = np.random.default_rng(4)
    query = rng.integers(0, 20, 60).astype(np.uint8)
    sequences = [rng.integers(0, 20, n) for n in (30_000, *[20] * 40)]
    sequences[0][700:720] = query[:20]
    targets = database(sequences)
    alone: list[int] = []

    def recorded(*arguments: Any) -> Any:
        alone.extend(arguments[3].tolist())
        return align(*arguments)

    monkeypatch.setattr(smith_waterman_scores, "align", recorded)
    assert_scores_equal_alignments(query_profile(query), targets)
    assert alone == [0]


def test_no_targets_give_no_scores() -> None:
    targets = database([encode("MKV")])
    assert alignment_scores(query_profile(encode("MKV")), targets, np.empty(0, np.int64)).shape == (0,)


@pytest.mark.parametrize("longest", [1, 15, 16, 17, 100])
def test_codes_are_transposed(longest: int) -> None:
    rng = np.random.default_rng(longest)
    lanes = vector_bytes()
    sequences = [
        rng.integers(0, 256, n).astype(np.uint8) for n in rng.integers(longest // 2, longest + 1, 70)
    ]
    targets = database(sequences)
    group = rng.permutation(70)[:lanes]
    group[rng.integers(0, lanes, 2)] = -1
    codes = np.full((longest, lanes), 31, np.uint8)
    expected = codes.copy()
    for lane, target in enumerate(group.tolist()):
        if target >= 0:
            expected[: len(sequences[target]), lane] = np.minimum(sequences[target] & LETTER_BITS, 25)
    smith_waterman_scores._write_codes(targets.residues, targets.offsets, targets.lengths, group, codes)
    np.testing.assert_array_equal(codes, expected)


def test_lookup_uses_shuffle_instructions() -> None:
    if not has_byte_shuffle():
        pytest.skip("needs SSSE3")
    fresh = numba.njit(nogil=True)(smith_waterman_scores._score_groups.compiled().py_func)
    targets, lanes = database([encode("MKV")]), vector_bytes()
    scores = np.zeros((1, lanes), np.int32)
    fresh(
        np.ones((3, 32), np.int8), targets.residues, targets.offsets, targets.lengths,
        np.zeros((1, lanes), np.int64), 11, 1, scores,
    )  # fmt: skip
    (assembly,) = fresh.inspect_asm().values()
    assert "vpermb" in assembly or "pshufb" in assembly
    assert (scores == 3).all()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "features",
    [
        "+sse2",
        "+sse2,+sse3,+ssse3",
        "+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2",
        "+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+avx512f,+avx512bw",
    ],
)
def test_scores_are_equal_with_smaller_vector_registers(features: str, tmp_path: Path) -> None:
    """Run some tests of this file in a process that compiles for another CPU."""
    if vector_bytes() < (64 if "avx512" in features else 32 if "avx2" in features else 16):
        pytest.skip("the CPU lacks these features")
    environment = os.environ | {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": features,
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    checks = "largest_byte or gap_costs or long_target"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *PLAIN_OPTIONS, __file__, "-k", checks],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
