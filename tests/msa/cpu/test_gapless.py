"""Tests of the gapless filter against plain implementations of its recurrence."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import LETTERS, MASK_BIT, PAD, X, encode
from msa.cpu import gapless
from msa.cpu.gapless import gapless_scores
from msa.cpu.simd import vector_bytes
from msa.database.sequence_arrays import SequenceArrays
from msa.io.fasta import read_fasta
from msa.profile.matrices import substitution_matrix
from msa.profile.pssm import query_profile
from tests.plain_pytest import PLAIN_OPTIONS

W = LETTERS.index("W")


def database(sequences: Sequence[np.ndarray], padding: int = PAD) -> SequenceArrays:
    """Store targets as in a database, each padded to four bytes."""
    lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    padded = (lengths.astype(np.int64) + 3) // 4 * 4
    offsets = np.cumsum(padded) - padded
    residues = np.full(int(padded.sum()), padding, np.uint8)
    for offset, sequence in zip(offsets, sequences, strict=True):
        residues[offset : offset + len(sequence)] = sequence
    return SequenceArrays(residues, offsets, lengths)


def reference_score(profile: np.ndarray, codes: np.ndarray) -> int:
    """Compute the score cell by cell, with Python integers."""
    best = 0
    previous = [0] * (len(profile) + 1)
    for code in codes.tolist():
        letter = X if code & MASK_BIT else code
        current = [0]
        for i in range(len(profile)):
            current.append(max(0, previous[i] + int(profile[i, letter])))
        best = max(best, *current)
        previous = current
    return best


def reference_score_by_column(profile: np.ndarray, codes: np.ndarray) -> int:
    """Compute the score one target residue at a time, for inputs too large for `reference_score`."""
    best, row = 0, np.zeros(len(profile) + 1, np.int64)
    for code in codes.tolist():
        row[1:] = np.maximum(0, row[:-1] + profile[:, X if code & MASK_BIT else code])
        best = max(best, int(row.max()))
    return best


def random_codes(rng: np.random.Generator, length: int, masked: float = 0.1) -> np.ndarray:
    letters = rng.integers(0, len(LETTERS), length).astype(np.uint8)
    return letters | np.where(rng.random(length) < masked, MASK_BIT, 0).astype(np.uint8)


def mutated(rng: np.random.Generator, codes: np.ndarray, rate: float) -> np.ndarray:
    other = rng.integers(0, 20, len(codes)).astype(np.uint8)
    return np.where(rng.random(len(codes)) < rate, other, codes).astype(np.uint8)


def assert_equal_to(reference, profile: np.ndarray, sequences: Sequence[np.ndarray]) -> None:  # type: ignore[no-untyped-def]
    expected = [reference(profile, sequence) for sequence in sequences]
    assert gapless_scores(profile, database(sequences)).tolist() == expected


codes = st.lists(st.integers(0, 25), min_size=1, max_size=80).map(lambda x: np.array(x, np.uint8))
masked_codes = st.lists(st.integers(0, 25) | st.integers(0, 25).map(lambda x: x | MASK_BIT), max_size=60).map(
    lambda x: np.array(x, np.uint8)
)


@settings(max_examples=100, deadline=None)
@given(codes, st.lists(masked_codes, min_size=1, max_size=4), st.booleans())
def test_scores_equal_reference(query: np.ndarray, sequences: list[np.ndarray], bias: bool) -> None:
    assert_equal_to(reference_score, query_profile(query, bias), sequences)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 70), st.integers(1, 300), masked_codes)
def test_scores_of_random_profiles_equal_reference(
    seed: int, rows: int, size: int, sequence: np.ndarray
) -> None:
    """Check profiles with scores of up to 300 per position, which do not all fit in bytes."""
    profile = np.random.default_rng(seed).integers(-size, size + 1, (rows, 32)).astype(np.int16)
    assert_equal_to(reference_score, profile, [sequence])


@pytest.mark.parametrize(
    "length",
    [1, 2, 3, 1500, 2100, *(32 * k + d for k in (1, 2, 4, 6, 8, 16, 32, 34) for d in (-3, -2, -1, 0, 1))],
)
def test_query_lengths_around_block_sizes(length: int) -> None:
    """Check lengths that, with the reset rows, are near multiples of the lanes and of blocks."""
    rng = np.random.default_rng(length)
    query = rng.integers(0, 20, length).astype(np.uint8)
    sequences = [random_codes(rng, int(n)) for n in rng.integers(1, 150, 6)]
    # relatives of the whole query, of its end and of its start: paths through the wrap-around of every lane
    sequences += [mutated(rng, query, 0.5), mutated(rng, query[-40:], 0.3), mutated(rng, query[:40], 0.3)]
    sequences += [np.concatenate([query[-9:], query[:9], query[-9:], query[:9]])]
    assert_equal_to(reference_score_by_column, query_profile(query), sequences)


def test_thousands_of_pairs_equal_reference() -> None:
    rng = np.random.default_rng(1)
    count = 0
    for _ in range(40):
        query = rng.integers(0, 20, int(rng.integers(2, 300))).astype(np.uint8)
        sequences = [random_codes(rng, int(n)) for n in rng.integers(1, 40, 40)]
        sequences += [mutated(rng, query[: int(rng.integers(1, 60))], 0.4) for _ in range(20)]
        assert_equal_to(reference_score_by_column, query_profile(query), sequences)
        count += len(sequences)
    assert count == 2400


@pytest.mark.parametrize(
    "score", [126, 127, 128, 129, 253, 254, 255, 256, 257, 32767, 32768, 65534, 65535, 65536, 70000]
)
def test_scores_around_the_limits_of_each_bit_width(score: int) -> None:
    # residues that score `step` on the diagonal, and a last one with the remaining score
    step = 100
    length = score // step + 1
    profile = np.full((length, 32), -100, np.int16)
    profile[:, 0] = step
    profile[-1, 0] = score - (length - 1) * step
    target = np.zeros(length, np.uint8)
    assert gapless_scores(profile, database([target, target[:1]])).tolist() == [score, min(score, step)]


@pytest.mark.parametrize("length", [29, 30, 31, 32, 61, 62, 63, 64])
@pytest.mark.parametrize("gap", [1, 2, 3])
def test_lane_is_reset_before_it_starts_again(length: int, gap: int) -> None:
    # a score of 140 at the query's end and, after `gap` residues in the same lane, another 140 at its start:
    # if the first were not reset, the score would be too large
    profile = np.full((length, 32), -1, np.int16)
    profile[-2:, 0] = 70
    profile[:20, 1] = 7
    target = np.array([0, 0, *[2] * gap, *[1] * 20], np.uint8)
    assert_equal_to(reference_score_by_column, profile, [target, np.concatenate([target[2:], target])])


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 1300), st.sampled_from([0, 1, 15, 254, 255, 300]),
    st.integers(1, 256), st.floats(0, 1),
)  # fmt: skip
def test_scores_of_targets_that_pass_limits_are_exact(
    seed: int, length: int, min_score: int, scores: int, related: float
) -> None:
    """Check random limits, databases of which few or most targets pass, and all numbers of stripes."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 20, length).astype(np.uint8)
    profile = query_profile(query)
    sequences = [random_codes(rng, int(n)) for n in rng.integers(0, 120, 40)]
    starts = rng.integers(0, length, 40).tolist()
    sequences = [
        mutated(rng, query[start : start + 60], 0.5) if rng.random() < related else each
        for start, each in zip(starts, sequences, strict=True)
    ]
    targets = database(sequences)
    longest = np.sort(rng.integers(0, 200, scores)).astype(np.int32)
    longest[-1] = 2**31 - 1
    exact = gapless_scores(profile, targets)
    limited = gapless_scores(profile, targets, 1, None, longest, min_score)
    passes = (exact >= min_score) & (targets.lengths <= longest[np.minimum(exact, scores - 1)])
    np.testing.assert_array_equal(limited[passes], exact[passes])
    assert np.isin(limited[~passes], [0, *exact[~passes]]).all()


@pytest.mark.parametrize("length", [40, 100, 160, 250, 500, 1000])
@pytest.mark.parametrize("score", [1, 40, 127, 128, 129, 254, 255])
def test_scores_at_the_limit_are_exact(length: int, score: int) -> None:
    profile = np.full((length, 32), -1, np.int16)
    steps = np.full(8, score // 8, np.int16)
    steps[: score % 8] += 1
    profile[length // 2 : length // 2 + 8, 0] = steps
    targets = database([*[np.full(20, 1, np.uint8)] * 60, np.zeros(8, np.uint8)])
    for first, expected in ((score, [score]), (score + 1, [0, score])):
        longest = np.where(np.arange(256) < first, 0, 2**31 - 1).astype(np.int32)
        longest[-1] = 2**31 - 1
        scores = gapless_scores(profile, targets, 1, None, longest)
        assert not scores[:60].any() and scores[60] in expected


@pytest.mark.parametrize("extreme", [-128, -129, -32768, 127, 128, 32767])
def test_profiles_with_extreme_scores_equal_reference(extreme: int) -> None:
    profile = query_profile(encode("ACDEFGHIKL"), False).copy()
    profile[4, W] = extreme
    sequences = [encode(s) for s in ("ACDEWGHIKL", "WWWWWWWW", "ACDEFGHIKL", "GHIKLACDEW")]
    assert_equal_to(reference_score, profile, sequences)


def test_masked_residues_score_as_x() -> None:
    profile = query_profile(encode("WWWWWWWWWW"), False)
    plain, masked = encode("WWWWWWWWWW"), encode("WWWWWWWWWW") | MASK_BIT
    half = np.concatenate([plain[:5], masked[5:]])
    scores = gapless_scores(profile, database([plain, masked, half, np.full(10, X, np.uint8)]))
    x = int(substitution_matrix()[W, X])
    assert x < 0
    assert scores.tolist() == [110, 0, 55, 0]


def test_bytes_between_sequences_do_not_affect_scores() -> None:
    rng = np.random.default_rng(3)
    sequences = [random_codes(rng, n) for n in (1, 2, 3, 5, 6, 7, 0, 9)]
    profile = query_profile(encode("WWWWWWWWWWWWWWWW"), False)
    scores = gapless_scores(profile, database(sequences, padding=W))
    np.testing.assert_array_equal(scores, gapless_scores(profile, database(sequences)))
    assert scores[6] == 0


def test_result_does_not_depend_on_threads_and_progress_reaches_the_end() -> None:
    rng = np.random.default_rng(4)
    targets = database([random_codes(rng, int(n)) for n in rng.integers(1, 100, 500)])
    profile = query_profile(rng.integers(0, 20, 90).astype(np.uint8))
    seen: list[tuple[int, int | None]] = []
    chunk_cells, gapless._CHUNK_CELLS = gapless._CHUNK_CELLS, 2**14
    try:
        many = gapless_scores(profile, targets, 3, lambda done, total: seen.append((done, total)))
    finally:
        gapless._CHUNK_CELLS = chunk_cells
    np.testing.assert_array_equal(many, gapless_scores(profile, targets, 1))
    assert seen[-1] == (500, 500) and seen == sorted(seen)


def test_real_proteins_equal_reference(shared_dir: Path) -> None:
    records = [encode(r.sequence) for r in read_fasta(shared_dir / "data/sensitivity_dev/queries.fasta")]
    for query in records[:25]:
        assert_equal_to(reference_score_by_column, query_profile(query), [*records[100:120], query])


def vector_instructions(function: Any) -> tuple[list[str], list[str], list[str]]:
    """Return the additions, maxima and masked comparisons of whole registers in a compiled function."""
    (assembly,) = function.inspect_asm().values()
    register = {32: "%ymm", 64: "%zmm"}[vector_bytes()]
    lines = [line.split("#")[0] for line in assembly.splitlines()]
    adds, maxima, comparisons = (
        [line for line in lines if name in line and register in line]
        for name in ("vpaddsb", "vpmaxsb", "vpcmpgtb")
    )
    return adds, maxima, [line for line in comparisons if "{%k" in line]


def test_inner_loop_uses_vector_instructions() -> None:
    width = vector_bytes()
    if width < 32:
        pytest.skip("needs AVX2")
    # compile again, because numba does not cache assembly
    fresh = numba.njit(nogil=True)(gapless._score_targets.compiled().py_func)
    profile = query_profile(encode("A" * 300))
    striped = gapless._StripedProfile.from_profile(profile, 8)
    targets = database([encode("ACDEF")])
    fresh(
        striped.scores, striped.rows, targets.residues, targets.offsets, targets.lengths, np.arange(1),
        striped.period, striped.stripes, gapless._MAX_STRIPES[8], gapless._NO_LIMITS, np.zeros(1, np.int32),
    )  # fmt: skip
    adds, maxima, comparisons = vector_instructions(fresh)
    # additions read the profile directly from memory, and each is followed by one maximum
    from_memory = [line for line in adds if "(" in line]
    blocks = gapless._MAX_STRIPES[8]
    assert len(from_memory) >= blocks * (blocks + 1) // 2
    assert len(from_memory) > 0.9 * len(adds)
    assert len(adds) <= len(maxima) + len(comparisons)
    assert len(maxima) < 2 * len(adds) + 4 * blocks


@pytest.mark.skipif(not gapless._HAS_MASKS, reason="needs AVX-512")
def test_inner_loop_of_tests_has_no_maxima() -> None:
    """Check that the compiler does not combine several comparisons into one of a maximum."""
    fresh = numba.njit(nogil=True)(gapless._reaches.compiled().py_func)
    striped = gapless._StripedProfile.from_profile(query_profile(encode("A" * 300)), 8)
    assert not fresh(striped.scores, striped.rows, encode("CDEF"), 0, 4, striped.period, striped.stripes, 30)
    adds, maxima, comparisons = vector_instructions(fresh)
    assert len(adds) == len(comparisons) >= sum(range(gapless._MAX_TESTED_STRIPES + 1))
    assert not maxima


@pytest.mark.parametrize("length", [10, 100, 700, 3000])
def test_vectors_of_the_profile_lie_in_one_cache_line(length: int) -> None:
    profile = query_profile(encode("A" * length))
    for bits in (8, 16):
        striped = gapless._StripedProfile.from_profile(profile, bits)
        assert striped.scores.ctypes.data % gapless._CACHE_LINE == 0
        assert striped.scores.strides[0] % vector_bytes() == 0


@pytest.mark.slow
@pytest.mark.parametrize("features", ["+sse2", "+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2"])
def test_scores_are_equal_with_smaller_vector_registers(features: str, tmp_path: Path) -> None:
    """Run some tests of this file in a process that compiles for an older CPU."""
    if "avx2" in features and vector_bytes() < 32:
        pytest.skip("needs AVX2")
    environment = os.environ | {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": features,
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    checks = "thousands_of_pairs or around_the_limits or masked_residues or limits_are_exact"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *PLAIN_OPTIONS, __file__, "-k", checks],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
