"""Tests of gapped alignment: scores against Biopython's aligner, paths against their scores and the rules."""

from collections.abc import Sequence
from pathlib import Path

import numba
import numpy as np
import pytest
from Bio.Align import PairwiseAligner, substitution_matrices
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import LETTER_BITS, LETTERS, MASK_BIT, STANDARD, X, decode, encode
from msa.cpu import smith_waterman
from msa.cpu.simd import vector_bytes
from msa.cpu.smith_waterman import align
from msa.database.sequence_arrays import SequenceArrays
from msa.hits.local_alignments import LocalAlignment
from msa.io.fasta import read_fasta
from msa.profile.matrices import substitution_matrix
from msa.profile.pssm import query_profile
from tests.msa.alignments.alignment_builders import local_alignments


def database(sequences: Sequence[np.ndarray]) -> SequenceArrays:
    """Store targets one after the other."""
    lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    ends = np.cumsum(lengths, dtype=np.int64)
    return SequenceArrays(np.concatenate(sequences).astype(np.uint8), ends - lengths, lengths)


def align_all(
    profile: np.ndarray, query: np.ndarray, sequences: Sequence[np.ndarray], **options: int
) -> list[LocalAlignment]:
    return local_alignments(align(profile, query, database(sequences), np.arange(len(sequences)), **options))


def biopython_aligner(gap_open: int = 11, gap_extend: int = 1) -> PairwiseAligner:
    aligner = PairwiseAligner()
    aligner.mode = "local"
    aligner.substitution_matrix = substitution_matrices.load("BLOSUM62")
    aligner.open_gap_score, aligner.extend_gap_score = -gap_open, -gap_extend
    return aligner


def path_score(
    alignment: LocalAlignment, profile: np.ndarray, codes: np.ndarray, gap_open: int = 11, gap_extend: int = 1
) -> int:
    """Compute the score of a path, and check that it leads from the first positions to the last."""
    if not alignment.operations:
        return 0
    i, j, score, columns = alignment.query_start - 1, alignment.target_start - 1, 0, 0
    for length, operation in alignment.operations:
        columns += length
        if operation == "M":
            letters = codes[j : j + length] & LETTER_BITS
            score += int(profile[np.arange(i, i + length), letters].sum())
        else:
            score -= gap_open + (length - 1) * gap_extend
        i += length if operation in "MI" else 0
        j += length if operation in "MD" else 0
    assert (i, j, columns) == (alignment.query_end, alignment.target_end, alignment.columns)
    return score


def reference_alignment(
    profile: np.ndarray, codes: np.ndarray, gap_open: int, gap_extend: int
) -> tuple[int, int, int, str]:
    """Compute score, end and path cell by cell, according to the rules in msa/cpu/smith_waterman.py."""
    m, n = len(profile), len(codes)
    letters = (codes & LETTER_BITS).tolist()
    h = [[0] * (n + 1) for _ in range(m + 1)]

    def gap(k: int) -> int:
        return gap_open + (k - 1) * gap_extend

    for j in range(1, n + 1):
        for i in range(1, m + 1):
            h[i][j] = max(
                0,
                h[i - 1][j - 1] + int(profile[i - 1, letters[j - 1]]),
                *(h[i - k][j] - gap(k) for k in range(1, i + 1)),
                *(h[i][j - k] - gap(k) for k in range(1, j + 1)),
            )
    best = max(map(max, h))
    if best == 0:
        return 0, 0, 0, ""
    j, i = min((j, i) for i in range(m + 1) for j in range(n + 1) if h[i][j] == best)
    end = (i, j)
    path = ""
    while True:
        current = h[i][j]
        if current == h[i - 1][j - 1] + int(profile[i - 1, letters[j - 1]]):
            path += "M"
            i, j = i - 1, j - 1
            if h[i][j] == 0:
                break
            continue
        insertions = [k for k in range(1, i + 1) if h[i - k][j] - gap(k) == current]
        if insertions:
            path += "I" * insertions[0]
            i -= insertions[0]
        else:
            k = next(k for k in range(1, j + 1) if h[i][j - k] - gap(k) == current)
            path += "D" * k
            j -= k
    return best, *end, path[::-1]


def expanded_path(alignment: LocalAlignment) -> str:
    """Return the path with one letter per column."""
    return "".join(operation * length for length, operation in alignment.operations)


def relative(rng: np.random.Generator, codes: np.ndarray) -> np.ndarray:
    """Create a copy with substitutions, deletions and insertions of up to 30 residues."""
    parts = []
    for code in codes.tolist():
        draw = rng.random()
        if draw > 0.05:
            parts.append([int(rng.integers(0, 20)) if draw < 0.3 else code])
        if draw > 0.97:
            parts.append(rng.integers(0, 20, int(rng.integers(1, 30))).tolist())
    return np.array([c for part in parts for c in part] or [0], np.uint8)


# few different letters produce many ties, gaps and long alignments
few_letters = st.text(alphabet="ACWN", min_size=1, max_size=25).map(encode)
proteins = st.text(alphabet=STANDARD + "BZX", min_size=1, max_size=60)
gap_costs = st.integers(1, 14).flatmap(lambda o: st.tuples(st.just(o), st.integers(1, o)))


@settings(max_examples=150, deadline=None)
@given(proteins, st.lists(proteins, min_size=1, max_size=4))
def test_scores_equal_biopython(query: str, targets: list[str]) -> None:
    aligner, profile = biopython_aligner(), substitution_matrix()[encode(query)]
    sequences = [encode(target) for target in targets]
    for target, codes, found in zip(
        targets, sequences, align_all(profile, encode(query), sequences), strict=True
    ):
        assert found.score == aligner.score(query, target)
        assert path_score(found, profile, codes) == found.score


@settings(max_examples=100, deadline=None)
@given(few_letters, few_letters, gap_costs)
def test_score_end_and_path_equal_reference(
    query: np.ndarray, target: np.ndarray, costs: tuple[int, int]
) -> None:
    profile = query_profile(query, comp_bias_corr=False)
    (found,) = align_all(profile, query, [target], gap_open=costs[0], gap_extend=costs[1])
    score, query_end, target_end, path = reference_alignment(profile, target, *costs)
    assert (found.score, found.query_end, found.target_end, expanded_path(found)) == (
        score, query_end, target_end, path,
    )  # fmt: skip


def test_scores_of_thousands_of_random_pairs_equal_biopython() -> None:
    rng = np.random.default_rng(1)
    count = 0
    for gap_open, gap_extend in [(11, 1)] * 30 + [(10, 2), (7, 2), (3, 1), (2, 2), (1, 1)] * 4:
        aligner = biopython_aligner(gap_open, gap_extend)
        query = rng.integers(0, 20, int(rng.integers(1, 160))).astype(np.uint8)
        sequences = [rng.integers(0, 20, int(n)).astype(np.uint8) for n in rng.integers(1, 200, 25)]
        sequences += [relative(rng, query) for _ in range(25)]
        profile = substitution_matrix()[query]
        results = align_all(profile, query, sequences, gap_open=gap_open, gap_extend=gap_extend, threads=2)
        for codes, found in zip(sequences, results, strict=True):
            assert found.score == aligner.score(decode(query), decode(codes))
            assert path_score(found, profile, codes, gap_open, gap_extend) == found.score
            count += 1
    assert count == 2500


@pytest.mark.parametrize("length", [1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257])
def test_query_lengths_around_lane_counts(length: int) -> None:
    rng = np.random.default_rng(length)
    aligner, query = biopython_aligner(2, 1), rng.integers(0, 20, length).astype(np.uint8)
    # cheap gaps, and one long gap over most of the query: insertions cross from lane to lane
    sequences = [relative(rng, query) for _ in range(8)] + [np.concatenate([query[:4], query[-4:]])]
    profile = substitution_matrix()[query]
    for codes, found in zip(
        sequences, align_all(profile, query, sequences, gap_open=2, gap_extend=1), strict=True
    ):
        assert found.score == aligner.score(decode(query), decode(codes))
        assert path_score(found, profile, codes, 2, 1) == found.score


def test_scores_of_real_pairs_equal_biopython(shared_dir: Path) -> None:
    records = list(read_fasta(shared_dir / "data/sensitivity_dev/queries.fasta"))
    standard = [r for r in records if set(r.sequence) <= set(STANDARD + "BZX")][:150]
    aligner, sequences = biopython_aligner(), [encode(r.sequence) for r in standard]
    for query in standard[:12]:
        profile = substitution_matrix()[encode(query.sequence)]
        results = align_all(profile, encode(query.sequence), sequences)
        for record, codes, found in zip(standard, sequences, results, strict=True):
            assert found.score == aligner.score(query.sequence, record.sequence)
            assert path_score(found, profile, codes) == found.score


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_alignment_of_corrected_profile_equals_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 4, int(rng.integers(2, 30))).astype(np.uint8)
    profile, target = query_profile(query), relative(rng, query)[:40]
    (found,) = align_all(profile, query, [target])
    score, _, _, path = reference_alignment(profile, target, 11, 1)
    assert (found.score, expanded_path(found)) == (score, path)


def test_result_does_not_depend_on_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    query = rng.integers(0, 20, 90).astype(np.uint8)
    # a deletion of 150 residues spans several blocks of √600 rows
    filler = rng.integers(0, 20, 150).astype(np.uint8)
    sequences = [np.concatenate([query[:45], filler, query[45:]])]
    sequences += [np.concatenate([relative(rng, query) for _ in range(3)]) for _ in range(20)]
    # the best score occurs in four blocks, of which the first must be found
    sequences += [np.concatenate([query] * 4)]
    profile = query_profile(query, comp_bias_corr=False)
    whole = align_all(profile, query, sequences)
    monkeypatch.setattr(smith_waterman, "_BLOCK_BYTES", 1)
    blocked = align_all(profile, query, sequences)
    assert whole[0].cigar == "45M150D45M"
    assert [(a.score, a.query_end, a.target_start, a.identities, a.cigar) for a in whole] == [
        (a.score, a.query_end, a.target_start, a.identities, a.cigar) for a in blocked
    ]


@pytest.mark.parametrize("score", [32766, 32767, 32768, 40000, 70000])
def test_scores_around_the_limit_of_16_bits(score: int) -> None:
    step = 1000
    length = (score - 1) // step + 1
    profile = np.full((length, 32), -500, np.int16)
    profile[:, 0] = step
    profile[-1, 0] = score - (length - 1) * step
    target = np.zeros(length + 3, np.uint8)
    target[10:13] = 1  # a gap in the query
    query = np.zeros(length, np.uint8)
    whole, gapped = align_all(profile, query, [np.zeros(length, np.uint8), target])
    assert (whole.score, whole.cigar) == (score, f"{length}M")
    assert (gapped.score, gapped.cigar) == (score - 13, f"10M3D{length - 10}M")


def test_long_pair_needs_little_memory() -> None:
    rng = np.random.default_rng(6)
    query = rng.integers(0, 20, 4000).astype(np.uint8)
    target = rng.integers(0, 20, 40_000).astype(np.uint8)
    target[20_000:22_000], target[22_400:24_400] = query[:2000], query[2000:]
    (found,) = align_all(substitution_matrix()[query], query, [target])
    assert (found.cigar, found.target_start, found.identities) == ("2000M400D2000M", 20_001, 4000)
    # in memory: one block of rows of H, and H and D before each block
    width = 2 * 4000
    rows = max(smith_waterman._BLOCK_BYTES // width, int(np.sqrt(2 * 40_000)))
    assert rows * width + 40_000 // rows * 2 * width < 8 * 2**20


def test_masked_residues_score_as_their_letters() -> None:
    query = encode("MKVLWAAL")
    profile = query_profile(query)
    plain, masked = align_all(profile, query, [query, query | MASK_BIT])
    assert plain.score == masked.score > 0 and masked.identities == 8


def test_x_does_not_count_as_identity() -> None:
    query = encode("WWWXWWW")
    (found,) = align_all(query_profile(query, False), query, [query])
    assert (found.identities, found.columns, found.cigar) == (6, 7, "7M")
    assert LETTERS[X] == "X"


def test_pair_without_positive_score_has_no_alignment() -> None:
    query = encode("WWWW")
    found = align_all(query_profile(query, False), query, [encode("PPPP"), np.empty(0, np.uint8)])
    assert [(f.score, f.cigar, f.columns) for f in found] == [(0, "", 0)] * 2


@pytest.mark.parametrize("costs", [(0, 0), (1, 2), (5, 0)])
def test_invalid_gap_costs_are_rejected(costs: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="gap open"):
        align_all(
            substitution_matrix()[:3], encode("AAA"), [encode("A")], gap_open=costs[0], gap_extend=costs[1]
        )


def test_row_loop_uses_vector_instructions() -> None:
    if vector_bytes() < 32:
        pytest.skip("needs AVX2")
    fresh = numba.njit(nogil=True)(smith_waterman._fill_block.compiled().py_func)
    striped, lanes = smith_waterman._striped(query_profile(encode("ACDEF" * 40)), 16)
    width = striped.shape[1]
    fresh(striped, encode("ACDEF"), 0, np.zeros((6, width), np.int16), np.zeros(width, np.int16),
          width // lanes, 11, 1)  # fmt: skip
    (assembly,) = fresh.inspect_asm().values()
    register = {32: "%ymm", 64: "%zmm"}[vector_bytes()]
    for instruction in ("vpaddsw", "vpsubsw", "vpmaxsw"):
        assert any(instruction in line and register in line for line in assembly.splitlines())
