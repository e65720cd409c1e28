"""Tests of the alignment filter against hhfilter, where it is installed, and the documented rules."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alignments.files import read_alignment
from msa.alignments.filter_settings import AlignmentFilter
from msa.alignments.row_filter import (
    NO_RESIDUE,
    ROW_CODES,
    filter_rows,
    max_identity_percent,
    scores_with_query,
    select_diverse_rows,
    similar_to_query,
)
from msa.alphabet import encode
from msa.base.errors import InputError

needs_hhfilter = pytest.mark.skipif(shutil.which("hhfilter") is None, reason="no hhfilter installed")

# limits of identity without and with a minimum number of rows; other single criteria; all criteria together
CRITERIA: dict[str, tuple[list[object], dict[str, Any]]] = {
    "id 90": (["-id", 90], {"max_seq_id": 0.9}),
    "id 62": (["-id", 62], {"max_seq_id": 0.62}),
    "id 35": (["-id", 35], {"max_seq_id": 0.35}),
    "diff 100": (["-id", 95, "-diff", 100], {"max_seq_id": 0.95, "diff": 100}),
    "diff 30": (["-id", 90, "-diff", 30], {"max_seq_id": 0.9, "diff": 30}),
    "diff 500": (["-id", 100, "-diff", 500], {"diff": 500}),
    "diff of all": (["-id", 80, "-diff", 10**6], {"max_seq_id": 0.8, "diff": 10**6}),
    "cov": (["-id", 100, "-cov", 70], {"cov": 0.7}),
    "qid": (["-id", 100, "-qid", 40], {"qid": 0.4}),
    "qsc": (["-id", 100, "-qsc", 0.3], {"qsc": 0.3}),
    "all": (
        ["-id", 90, "-qid", 25, "-cov", 50, "-diff", 200],
        {"max_seq_id": 0.9, "qid": 0.25, "cov": 0.5, "diff": 200},
    ),
}
_SCORE_TOLERANCE = 0.005
"""Bits per residue; the published matrix is rounded, hhfilter's is not."""


def hhfilter(folder: Path, letters: np.ndarray, arguments: list[object]) -> np.ndarray:
    """Run hhfilter and return a mask of the rows it keeps, bool [n]."""
    rows = [row.tobytes().decode() for row in letters]
    (folder / "in.a3m").write_text("".join(f">r{k}\n{row}\n" for k, row in enumerate(rows)))
    command = ["hhfilter", "-i", folder / "in.a3m", "-o", folder / "out.a3m", "-v", "0", *arguments]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    kept = np.zeros(len(rows), bool)
    lines = (folder / "out.a3m").read_text().splitlines()
    kept[[int(line[2:]) for line in lines if line.startswith(">")]] = True
    return kept


def filter_in_hhfilters_order(letters: np.ndarray, criteria: AlignmentFilter) -> np.ndarray:
    """Filter rows with ties between equally long rows broken as in hhfilter; return a mask, bool [n]."""
    codes = ROW_CODES[encode(letters.tobytes()).reshape(letters.shape)]
    rows = np.where(codes < 20, codes, NO_RESIDUE).astype(np.uint8)
    allowed = similar_to_query(codes, criteria)
    order = _quicksort_by_length(np.count_nonzero(rows != NO_RESIDUE, axis=1))
    return select_diverse_rows(rows, allowed, max_identity_percent(criteria), criteria.diff, 1, order)


def _quicksort_by_length(lengths: np.ndarray) -> np.ndarray:
    """Sort all rows but the first by descending length with hhfilter's quicksort, which is not stable."""
    order = list(range(len(lengths)))

    def swap(a: int, b: int) -> None:
        order[a], order[b] = order[b], order[a]

    pending = [(1, len(lengths) - 1)]
    while pending:
        left, right = pending.pop()
        if left >= right:
            continue
        swap(left, (left + right) // 2)
        last = left
        for index in range(left + 1, right + 1):
            if lengths[order[index]] > lengths[order[left]]:
                last += 1
                swap(last, index)
        swap(left, last)
        pending += [(left, last - 1), (last + 1, right)]
    return np.array(order)


@needs_hhfilter
@pytest.mark.parametrize("key", CRITERIA)
@pytest.mark.parametrize("name", ["3u8v_A.a3m", "6KWC_1.a3m", "2QKE_E.colabfold.a3m.gz"])
def test_real_alignments_equal_hhfilter(shared_dir: Path, tmp_path: Path, name: str, key: str) -> None:
    letters = read_alignment(shared_dir / "data" / "msas" / name).letters[:3000]
    arguments, criteria = CRITERIA[key]
    theirs = hhfilter(tmp_path, letters, arguments)
    ours = filter_in_hhfilters_order(letters, AlignmentFilter(**criteria))
    assert 1 < theirs.sum() <= len(letters)
    if "qsc" in criteria:
        comparable = ~_depends_on_matrix_rounding(letters, criteria["qsc"])
        ours, theirs = ours[comparable], theirs[comparable]
        assert ours.any() and not ours.all()
    assert np.array_equal(ours, theirs)


def _depends_on_matrix_rounding(letters: np.ndarray, qsc: float) -> np.ndarray:
    """Return a mask of the rows whose result depends on the version of the score matrix, bool [n].

    These are rows with a score close to the limit, and rows with H opposite Y, whose score has the opposite
    sign in hhfilter.
    """
    codes = ROW_CODES[encode(letters.tobytes()).reshape(letters.shape)]
    scores = scores_with_query(codes) / np.count_nonzero(codes < 20, axis=1)
    h, y = letters == ord("H"), letters == ord("Y")
    return np.asarray((np.abs(scores - qsc) < _SCORE_TOLERANCE) | ((h & y[0]) | (y & h[0])).any(axis=1))


def multidomain_alignment(path: Path) -> np.ndarray:
    """Create an alignment with four copies of a domain from an alignment of one domain.

    Each row covers one copy; most rows cover the next copy as well.
    """
    rows = read_alignment(path).letters
    count, columns = rows.shape
    family = np.full((1 + 4 * (count - 1), 4 * columns), ord("-"), np.uint8)
    family[0] = np.tile(rows[0], 4)
    for k in range(1, len(family)):
        domain = k % 4
        family[k, domain * columns : (domain + 1) * columns] = rows[1 + k // 4 % (count - 1)]
        if k % 3 and domain < 3:
            family[k, (domain + 1) * columns : (domain + 2) * columns] = rows[1 + k % (count - 1)]
    return family


# rows of `multidomain_alignment` that hhfilter 3.3.0 keeps
KEPT = [
    (["-id", 100, "-diff", 3], {"diff": 3},
     [0, 93, 95, 104, 107, 153, 155]),
    (
        ["-id", 70, "-diff", 6],
        {"max_seq_id": 0.7, "diff": 6},
        [0, 19, 90, 91, 93, 95, 96, 99, 101, 104, 107, 120, 121, 123, 153, 155],
    ),
    (["-id", 40], {"max_seq_id": 0.4},
     [0]),
    (["-id", 60, "-qid", 30, "-cov", 40], {"max_seq_id": 0.6, "qid": 0.3, "cov": 0.4},
     [0, 17, 88, 152, 154]),
    (["-id", 100, "-qsc", 0.8], {"qsc": 0.8},
     [0, 58, 78, 79, 136]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "criteria", "kept"), KEPT)
def test_multidomain_alignment_equals_recorded_hhfilter_results(
    root: Path, tmp_path: Path, arguments: list[object], criteria: dict[str, Any], kept: list[int]
) -> None:
    letters = multidomain_alignment(root / "tests" / "features" / "data" / "family.a3m")
    ours = filter_in_hhfilters_order(letters, AlignmentFilter(**criteria))
    assert np.flatnonzero(ours).tolist() == kept
    if shutil.which("hhfilter"):
        assert np.array_equal(hhfilter(tmp_path, letters, arguments), ours)


@st.composite
def alignments(draw: st.DrawFn) -> np.ndarray:
    """Draw the rows of a small family with gaps, missing ends, unknown and rare letters."""
    columns = draw(st.integers(1, 130))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    letters = np.frombuffer(b"ARNDCQEGHILKMFPSTWYV", np.uint8)
    rows = [rng.choice(letters, columns)]
    for _ in range(draw(st.integers(1, 40))):
        changed = rng.random(columns) < rng.choice([0, 0.05, 0.1, 0.3, 0.7])
        row = np.where(changed, rng.choice(letters, columns), rows[rng.integers(len(rows))])
        start, end = np.sort(rng.integers(0, columns + 1, 2))
        if rng.random() < 0.5:
            row[:start], row[end:] = ord("-"), ord("-")
        row[rng.random(columns) < rng.choice([0, 0.1, 0.5])] = ord("-")
        row[rng.random(columns) < rng.choice([0, 0.1])] = rng.choice(np.frombuffer(b"XBZUOJ", np.uint8))
        rows.append(row)
    rows[0] = np.where(rows[0] == ord("-"), ord("A"), rows[0])
    # hhfilter stops at a row without letters
    return np.array([row for row in rows if (row != ord("-")).any()], np.uint8)


@needs_hhfilter
@settings(deadline=None, max_examples=60)
@given(
    alignments(),
    st.integers(10, 100),
    st.sampled_from([0, 0, 1, 3, 10]),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_random_alignments_equal_hhfilter(
    tmp_path_factory: pytest.TempPathFactory, letters: np.ndarray, limit: int, diff: int, qid: int, cov: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    # with diff, hhfilter compares no rows at all when the limit is below 20
    limit = max(limit, 20) if diff else limit
    theirs = hhfilter(folder, letters, ["-id", limit, "-diff", diff, "-qid", qid, "-cov", cov])
    criteria = AlignmentFilter(max_seq_id=limit / 100, diff=diff, qid=qid / 100, cov=cov / 100)
    assert np.array_equal(filter_in_hhfilters_order(letters, criteria), theirs)


def identity(one: np.ndarray, other: np.ndarray) -> float:
    """Compute the identity of two rows over the columns in which both have a residue."""
    both = (one != NO_RESIDUE) & (other != NO_RESIDUE)
    return float(np.mean((one == other)[both])) if both.any() else 0.0


@settings(deadline=None, max_examples=60)
@given(alignments(), st.integers(10, 99), st.sampled_from([1, 2]))
def test_selection_equals_reference(letters: np.ndarray, limit: int, threads: int) -> None:
    """Compare with the plain algorithm: in descending order of length, keep rows that are not too similar."""
    codes = ROW_CODES[encode(letters.tobytes()).reshape(letters.shape)]
    rows = np.where(codes < 20, codes, NO_RESIDUE).astype(np.uint8)
    lengths = np.count_nonzero(rows != NO_RESIDUE, axis=1)
    kept: list[int] = [0]
    for k in sorted(range(1, len(rows)), key=lambda k: -lengths[k]):
        # the rule has a tolerance of 0.01 %
        if lengths[k] and all(identity(rows[k], rows[j]) <= limit / 100 + 1e-4 for j in kept):
            kept.append(k)
    selected = select_diverse_rows(rows, np.ones(len(rows), bool), limit, 0, threads)
    assert np.flatnonzero(selected).tolist() == sorted(kept)


def random_family(count: int, columns: int) -> np.ndarray:
    """Create rows that descend from each other; many start with a gap."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 20, (count, columns)).astype(np.uint8)
    for k in range(1, count):
        rows[k] = np.where(rng.random(columns) < rng.uniform(0, 0.5), rows[k], rows[rng.integers(k)])
        rows[k, : rng.integers(columns // 2)] = NO_RESIDUE
    return rows


def test_result_does_not_depend_on_threads() -> None:
    # more rows than fit in one batch
    rows = random_family(2500, 70)
    allowed = np.arange(2500) % 7 > 0
    for limit, min_depth in ((80.0, 0), (90.0, 200)):
        one, three = (select_diverse_rows(rows, allowed, limit, min_depth, threads) for threads in (1, 3))
        assert np.array_equal(one, three) and 100 < one.sum() < 2500
        assert one[0] and not one[1:][~allowed[1:]].any()


def test_diff_keeps_diverse_rows_and_minimum_depth_around_every_column() -> None:
    rows = random_family(1500, 120)
    allowed = np.ones(1500, bool)
    with_diff = select_diverse_rows(rows, allowed, 90, 50)
    without_diff = select_diverse_rows(rows, allowed, 90, 0)
    assert 50 < with_diff.sum() < without_diff.sum() / 2
    depth = np.count_nonzero(rows[with_diff] != NO_RESIDUE, axis=0)
    # a single column may have fewer rows, but not its whole neighbourhood
    assert all(depth[max(0, c - 25) : c + 26].max() >= 50 for c in range(120))

    def mean_identity(kept: np.ndarray) -> float:
        sample = rows[kept][:60]
        return float(np.mean([identity(a, b) for k, a in enumerate(sample) for b in sample[:k]]))

    assert mean_identity(with_diff) < mean_identity(without_diff)


def test_identity_limit_tolerates_float_rounding() -> None:
    # the rows share 29 of 100 residues with the query and with each other
    rows = np.zeros((4, 100), np.uint8)
    rows[1:, 29:] = [[1], [2], [3]]
    assert 100 * 0.29 < 29
    assert filter_rows(rows, AlignmentFilter(max_seq_id=0.29, diff=2)).sum() == 4
    assert filter_rows(rows, AlignmentFilter(max_seq_id=0.28, diff=2)).sum() == 1


def test_row_inside_a_gap_of_another_row_is_kept() -> None:
    rows = np.array(
        [
            [1, 2, 3, 4, 5, 6],
            [1, 2, NO_RESIDUE, NO_RESIDUE, 5, 7],
            [NO_RESIDUE, NO_RESIDUE, 3, 9, NO_RESIDUE, NO_RESIDUE],
        ],
        np.uint8,
    )
    assert select_diverse_rows(rows, np.ones(3, bool), 70, 0)[2]


def test_query_is_always_kept() -> None:
    rows = encode("MKVLMKVL").reshape(2, 4)
    strictest = AlignmentFilter(max_seq_id=0.0, qid=1, qsc=100, cov=1, diff=1)
    assert filter_rows(rows, strictest).tolist() == [True, False]


def test_rows_are_filtered_separately_between_limits_of_identity() -> None:
    rng = np.random.default_rng(2)
    query = rng.integers(0, 20, 80).astype(np.uint8)
    changed = np.linspace(0, 1, 200)[:, None] > rng.random((200, 80))
    relatives = np.where(changed, rng.integers(0, 20, (200, 80)), query)
    rows = np.concatenate([[query], relatives]).astype(np.uint8)
    identities = (rows == query).mean(axis=1)
    criteria: dict[str, Any] = {"max_seq_id": 0.9, "diff": 5}
    kept = filter_rows(rows, AlignmentFilter(qid=0.1, identity_buckets=(0.4, 0.8), **criteria))
    assert kept[0] and not kept[identities < 0.1].any()
    for low, high in [(0.1, 0.4), (0.4, 0.8), (0.8, 1.0)]:
        bucket = 1 + np.flatnonzero((identities[1:] > low) & (identities[1:] <= high))
        alone = filter_rows(rows[[0, *bucket]], AlignmentFilter(**criteria))
        assert np.array_equal(kept[bucket], alone[1:]) and 0 < kept[bucket].sum() < len(bucket)
    # without limits, the rows most similar to the query compete with all others
    assert filter_rows(rows, AlignmentFilter(qid=0.1, **criteria)).sum() < kept.sum()


def test_small_alignments_are_not_filtered() -> None:
    rows = np.zeros((10, 30), np.uint8)
    assert filter_rows(rows, AlignmentFilter(max_seq_id=0.5, filter_min_enable=10)).all()
    assert filter_rows(rows, AlignmentFilter(max_seq_id=0.5, filter_min_enable=9)).sum() == 1


def test_limits_of_identity_must_ascend() -> None:
    with pytest.raises(InputError, match=r"qid is 0\.0,0\.5,0\.5: expected ascending numbers"):
        AlignmentFilter(identity_buckets=(0.5, 0.5))


@pytest.mark.parametrize("invalid", [{"max_seq_id": 1.5}, {"qid": -0.1}, {"qsc": float("nan")}, {"diff": -1}])
def test_criteria_out_of_range_are_rejected(invalid: dict[str, Any]) -> None:
    (name,) = invalid
    with pytest.raises(InputError, match=name):
        AlignmentFilter(**invalid)
