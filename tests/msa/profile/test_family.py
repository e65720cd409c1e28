"""The members of a family as rows, and which of them say something new."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alphabet import LETTERS, MASK_BIT, decode, encode
from msa.database.sequence_arrays import SequenceArrays
from msa.profile.family import GAP, distinct_rows, family_rows
from msa.search.local_alignment import LocalAlignment

alignments = (st.integers(1, 8) | st.integers(60, 130)).flatmap(
    lambda columns: st.lists(
        st.lists(st.sampled_from([0, 1, 2, GAP]), min_size=columns, max_size=columns), min_size=1, max_size=12
    )
)


def text(row: np.ndarray) -> str:
    return "".join("-" if code == GAP else LETTERS[code] for code in row)


def test_rows_follow_the_path() -> None:
    # 2M1D1M2I2M from query 2 and target 3: PAIRS, a residue left out, two gaps
    runs = np.array([2 << 2, 1 << 2 | 2, 1 << 2, 2 << 2 | 1, 2 << 2], np.int32)
    alignment = LocalAlignment(20, 2, 8, 3, 8, 0, 8, runs)
    whole = LocalAlignment(9, 1, 3, 1, 3, 3, 3, np.array([3 << 2], np.int32))
    residues = np.concatenate([encode("WWWW"), encode("GGACDEFH") | MASK_BIT])
    targets = SequenceArrays(residues, np.array([0, 4]), np.array([4, 8], np.int32))
    rows = family_rows(encode("MMMMMMMMM"), targets, [(1, alignment), (0, whole)])
    assert decode(rows[0]) == "MMMMMMMMM"
    assert [text(row) for row in rows[1:]] == ["-ACE--FH-", "WWW------"]
    np.testing.assert_array_equal(family_rows(rows[0], targets, []), rows[:1])


def distinct_by_definition(rows: np.ndarray, most_identical: float) -> list[int]:
    kept = [0]
    for i, row in enumerate(rows[1:], 1):
        residues = row != GAP
        repeats = any(
            np.count_nonzero(residues & (rows[k] == row)) >= most_identical * residues.sum() for k in kept
        )
        if residues.any() and not repeats:
            kept.append(i)
    return kept


@settings(deadline=None)  # the first call compiles
@given(alignments, st.sampled_from([0.25, 0.5, 0.75, 1.0]))
def test_distinct_rows_are_their_definition(rows: list[list[int]], most_identical: float) -> None:
    array = np.array(rows, np.uint8)
    expected = array[distinct_by_definition(array, most_identical)]
    np.testing.assert_array_equal(distinct_rows(array, most_identical), expected)
