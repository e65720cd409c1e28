"""Filters of an alignment's rows: hhfilter's own choices where it is installed, and what they promise."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import encode
from msa.errors import InputError
from msa.io.alignments import read_alignment
from msa.search.alignment_filter import AlignmentFilter
from msa.search.redundancy import NONE, _in_order, _spans, distinct_enough
from msa.search.row_codes import ROW_CODES
from msa.search.row_scores import scores_with_first

needs_hhfilter = pytest.mark.skipif(shutil.which("hhfilter") is None, reason="no hhfilter installed")

# no number of rows, few, more than there are; limits within a row's reach; all at once
CHOICES: dict[str, tuple[list[object], dict[str, Any]]] = {
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
_SCORES_WITHIN = 0.005
"""Bits a residue that hhfilter's scores may differ by: the published matrix is rounded, its own is not."""


def hhfilter(folder: Path, letters: np.ndarray, arguments: list[object]) -> np.ndarray:
    """bool [n]: the rows that hhfilter keeps."""
    rows = [row.tobytes().decode() for row in letters]
    (folder / "in.a3m").write_text("".join(f">r{k}\n{row}\n" for k, row in enumerate(rows)))
    command = ["hhfilter", "-i", folder / "in.a3m", "-o", folder / "out.a3m", "-v", "0", *arguments]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    kept = np.zeros(len(rows), bool)
    lines = (folder / "out.a3m").read_text().splitlines()
    kept[[int(line[2:]) for line in lines if line.startswith(">")]] = True
    return kept


def in_hhfilters_order(letters: np.ndarray, chosen: AlignmentFilter) -> np.ndarray:
    """bool [n]: the rows to keep when rows of equal length are looked at as hhfilter happens to."""
    codes = ROW_CODES[encode(letters.tobytes()).reshape(letters.shape)]
    rows = np.where(codes < 20, codes, NONE).astype(np.uint8)
    spans = _spans(rows)
    allowed = chosen._like_the_query(codes)
    return _in_order(rows, allowed, spans, _quicksorted(spans[:, 2]), chosen.max_percent, chosen.diff, 1)


def _quicksorted(lengths: np.ndarray) -> np.ndarray:
    """Rows by length, the first apart, sorted by the textbook's quicksort, which leaves ties in disorder."""
    order = list(range(len(lengths)))

    def swap(a: int, b: int) -> None:
        order[a], order[b] = order[b], order[a]

    left_to_do = [(1, len(lengths) - 1)]
    while left_to_do:
        left, right = left_to_do.pop()
        if left >= right:
            continue
        swap(left, (left + right) // 2)
        last = left
        for place in range(left + 1, right + 1):
            if lengths[order[place]] > lengths[order[left]]:
                last += 1
                swap(last, place)
        swap(left, last)
        left_to_do += [(left, last - 1), (last + 1, right)]
    return np.array(order)


@needs_hhfilter
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", ["3u8v_A.a3m", "6KWC_1.a3m", "2QKE_E.colabfold.a3m.gz"])
def test_keeps_what_hhfilter_keeps(shared_dir: Path, tmp_path: Path, name: str, choice: str) -> None:
    letters = read_alignment(shared_dir / "data" / "msas" / name).letters[:3000]
    arguments, how = CHOICES[choice]
    theirs = hhfilter(tmp_path, letters, arguments)
    ours = in_hhfilters_order(letters, AlignmentFilter(**how))
    assert 1 < theirs.sum() <= len(letters)
    if "qsc" in how:
        sure = ~_decided_by_the_matrix(letters, how["qsc"])
        ours, theirs = ours[sure], theirs[sure]
        assert ours.any() and not ours.all()
    assert np.array_equal(ours, theirs)


def _decided_by_the_matrix(letters: np.ndarray, qsc: float) -> np.ndarray:
    """bool [n]: rows within rounding of a score, and those with a pair of H and Y, of which hhfilter has the
    published score with the opposite sign."""
    codes = ROW_CODES[encode(letters.tobytes()).reshape(letters.shape)]
    scores = scores_with_first(codes) / np.count_nonzero(codes < 20, axis=1)
    h, y = letters == ord("H"), letters == ord("Y")
    return np.asarray((np.abs(scores - qsc) < _SCORES_WITHIN) | ((h & y[0]) | (y & h[0])).any(axis=1))


def domains(path: Path) -> np.ndarray:
    """The rows of an alignment in each of four domains one after another, most with one in the next, too."""
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


# what hhfilter 3.3.0 keeps of `domains`, where it is not installed
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


@pytest.mark.parametrize(("arguments", "how", "kept"), KEPT)
def test_keeps_what_hhfilter_kept(
    root: Path, tmp_path: Path, arguments: list[object], how: dict[str, Any], kept: list[int]
) -> None:
    letters = domains(root / "tests" / "features" / "data" / "family.a3m")
    ours = in_hhfilters_order(letters, AlignmentFilter(**how))
    assert np.flatnonzero(ours).tolist() == kept
    if shutil.which("hhfilter"):
        assert np.array_equal(hhfilter(tmp_path, letters, arguments), ours)


@st.composite
def alignments(draw: st.DrawFn) -> np.ndarray:
    """Rows of a small family with gaps, ends left out, unknown and odd letters."""
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
    # it ends at a row without any letter
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
def test_keeps_what_hhfilter_keeps_of_any_rows(
    tmp_path_factory: pytest.TempPathFactory, letters: np.ndarray, limit: int, diff: int, qid: int, cov: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    # with diff, hhfilter compares no rows at all when the limit is below 20
    limit = max(limit, 20) if diff else limit
    theirs = hhfilter(folder, letters, ["-id", limit, "-diff", diff, "-qid", qid, "-cov", cov])
    chosen = AlignmentFilter(max_seq_id=limit / 100, diff=diff, qid=qid / 100, cov=cov / 100)
    assert np.array_equal(in_hhfilters_order(letters, chosen), theirs)


def identity(one: np.ndarray, other: np.ndarray) -> float:
    both = (one != NONE) & (other != NONE)
    return float(np.mean((one == other)[both])) if both.any() else 0.0


@settings(deadline=None, max_examples=60)
@given(alignments(), st.integers(10, 99), st.sampled_from([1, 2]))
def test_by_definition(letters: np.ndarray, limit: int, threads: int) -> None:
    """Of the rows from long to short, each unless it is too much like one kept; ties in their order."""
    codes = ROW_CODES[encode(letters.tobytes()).reshape(letters.shape)]
    rows = np.where(codes < 20, codes, NONE).astype(np.uint8)
    lengths = np.count_nonzero(rows != NONE, axis=1)
    kept: list[int] = [0]
    for k in sorted(range(1, len(rows)), key=lambda k: -lengths[k]):
        # a difference of 0.01 % is none
        if lengths[k] and all(identity(rows[k], rows[j]) <= limit / 100 + 1e-4 for j in kept):
            kept.append(k)
    found = distinct_enough(rows, np.ones(len(rows), bool), limit, 0, threads)
    assert np.flatnonzero(found).tolist() == sorted(kept)


def family(count: int, columns: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 20, (count, columns)).astype(np.uint8)
    for k in range(1, count):
        rows[k] = np.where(rng.random(columns) < rng.uniform(0, 0.5), rows[k], rows[rng.integers(k)])
        rows[k, : rng.integers(columns // 2)] = NONE
    return rows


def test_threads_change_nothing() -> None:
    # more rows than are compared at once
    rows = family(2500, 70)
    allowed = np.arange(2500) % 7 > 0
    for limit, fewest in ((80.0, 0), (90.0, 200)):
        one, three = (distinct_enough(rows, allowed, limit, fewest, threads) for threads in (1, 3))
        assert np.array_equal(one, three) and 100 < one.sum() < 2500
        assert one[0] and not one[1:][~allowed[1:]].any()


def test_diff_keeps_the_most_diverse_and_enough_around_every_column() -> None:
    rows = family(1500, 120)
    everything = np.ones(1500, bool)
    few = distinct_enough(rows, everything, 90, 50)
    most = distinct_enough(rows, everything, 90, 0)
    assert 50 < few.sum() < most.sum() / 2
    depth = np.count_nonzero(rows[few] != NONE, axis=0)
    # where rows begin only late there are fewer, in the same neighbourhood not
    assert all(depth[max(0, c - 25) : c + 26].max() >= 50 for c in range(120))

    def alike(kept: np.ndarray) -> float:
        chosen = rows[kept][:60]
        return float(np.mean([identity(a, b) for k, a in enumerate(chosen) for b in chosen[:k]]))

    assert alike(few) < alike(most)


def test_a_limit_that_a_float_just_misses_is_reached() -> None:
    # 29 of 100 residues are the query's, and the rows' own are all different
    rows = np.zeros((4, 100), np.uint8)
    rows[1:, 29:] = [[1], [2], [3]]
    assert 100 * 0.29 < 29
    assert AlignmentFilter(max_seq_id=0.29, diff=2).kept(rows).sum() == 4
    assert AlignmentFilter(max_seq_id=0.28, diff=2).kept(rows).sum() == 1


def test_a_row_within_a_gap_of_another_is_no_repeat_of_it() -> None:
    rows = np.array([[1, 2, 3, 4, 5, 6], [1, 2, NONE, NONE, 5, 7], [NONE, NONE, 3, 9, NONE, NONE]], np.uint8)
    assert distinct_enough(rows, np.ones(3, bool), 70, 0)[2]


def test_the_query_alone_is_kept_whatever_is_asked() -> None:
    rows = encode("MKVLMKVL").reshape(2, 4)
    assert AlignmentFilter(max_seq_id=0.0, qid=1, qsc=100, cov=1, diff=1).kept(rows).tolist() == [True, False]


@pytest.mark.parametrize("wrong", [{"max_seq_id": 1.5}, {"qid": -0.1}, {"qsc": float("nan")}, {"diff": -1}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=name):
        AlignmentFilter(**wrong)
