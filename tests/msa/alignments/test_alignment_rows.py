"""Tests of the rows of hits: letter codes and A3M text."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alignments.alignment_rows import a3m_rows, code_rows
from msa.alphabet import GAP, LETTERS, MASK_BIT, encode
from msa.database.sequence_arrays import SequenceArrays
from msa.hits.hits import Hit, Hits, StoredSequences
from msa.hits.local_alignments import LocalAlignment, alignment_paths

operations = st.lists(st.tuples(st.integers(1, 4), st.sampled_from("MID")), max_size=6)


def make_hits(query_length: int, targets: list[str], alignments: list[LocalAlignment]) -> Hits:
    """Create hits whose targets are stored in reverse order, with masked residues."""
    codes = [encode(sequence) | MASK_BIT for sequence in reversed(targets)]
    lengths = np.array([len(each) for each in codes], np.int32)
    arrays = SequenceArrays(np.concatenate(codes), np.cumsum(lengths) - lengths, lengths)
    count = len(targets)
    rows, zeros = np.arange(count)[::-1], np.zeros(count)
    source = StoredSequences(["t"] * count, arrays)
    return Hits(query_length, source, rows, rows, zeros, zeros, alignment_paths(alignments))


def test_rows_follow_the_alignment_path() -> None:
    # 2M1D1M2I2M from query position 2 and target position 3: the target residue of 1D is left out of the
    # codes, and 2I becomes two gaps
    runs = np.array([2 << 2, 1 << 2 | 2, 1 << 2, 2 << 2 | 1, 2 << 2], np.int32)
    alignment = LocalAlignment(20, 2, 8, 3, 8, 0, 8, runs)
    whole = LocalAlignment(9, 1, 3, 1, 3, 3, 3, np.array([3 << 2], np.int32))
    hits = make_hits(9, ["GGACDEFH", "WWWW"], [alignment, whole])
    rows = code_rows(encode("MMMMMMMMM"), hits)
    text = ["".join("-" if code == GAP else LETTERS[code] for code in row) for row in rows]
    assert text == ["MMMMMMMMM", "-ACE--FH-", "WWW------"]
    assert a3m_rows(hits) == [b"-ACdE--FH-", b"WWW------"]
    assert a3m_rows(hits[1:]) == [b"WWW------"] and a3m_rows(hits[:0]) == []
    np.testing.assert_array_equal(code_rows(rows[0], hits[:0]), rows[:1])


@settings(deadline=None)
@given(operations, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_a3m_rows_keep_every_aligned_residue(
    middle: list[tuple[int, str]], before: int, after: int, skipped: int
) -> None:
    path = [(1, "M"), *middle, (1, "M")]
    aligned = sum(n for n, operation in path if operation != "D")
    residues = sum(n for n, operation in path if operation != "I")
    length = before + aligned + after
    target = "ACDEFGHIKLMNPQRSTVWY" * 5
    runs = np.array([n << 2 | "MID".index(operation) for n, operation in path], np.int32)
    alignment = LocalAlignment(1, before + 1, before + aligned, skipped + 1, skipped + residues, 0, 1, runs)
    hit = Hit(0, "t", target, length, 1.0, 1.0, alignment)
    (found,) = a3m_rows(Hits.from_sequence(length, [hit]))
    row = found.decode()
    columns = [letter for letter in row if not letter.islower()]
    assert len(columns) == length
    assert columns[:before] == ["-"] * before and columns[length - after :] == ["-"] * after
    assert row.replace("-", "").upper() == target[alignment.target_start - 1 : alignment.target_end]
    inserted = sum(n for n, operation in path if operation == "D")
    assert sum(letter.islower() for letter in row) == inserted
