"""Tests of ColabFold's A3M files of complexes: reading, writing, and errors in damaged files."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msa.alignments.complex_a3m import (
    A3mRow,
    is_complex_a3m,
    parse_a3m_rows,
    parse_complex_a3m,
    write_complex_a3m,
)
from msa.base.errors import InputError

PAIRED = b"""#3,2\t1,2
>101\t102
MKVWA
>P0 x\tP1 y
M-aVW-
>P2\tDUMMY
MKV--
>101
MKV--
>r0
MAAcc--
>102
---WA
>r1
---bWV
"""


def test_rows_with_residues_in_several_chains_are_paired() -> None:
    alignment = parse_complex_a3m(PAIRED, "x.a3m")
    assert alignment.copies == (1, 2) and alignment.queries == ("MKV", "WA")
    assert [each.sequences for each in alignment.paired] == [["MKV", "M-V"], ["WA", "W-"]]
    assert [each.names for each in alignment.paired] == [("101", "P0 x"), ("102", "P1 y")]
    # a row that is empty in all chains but one belongs to that chain, as in ColabFold
    assert [each.sequences for each in alignment.unpaired] == [["MKV", "MKV", "MAA"], ["WA", "WV"]]
    assert alignment.paired[0].deletions.tolist() == [[0, 0, 0], [0, 0, 1]]
    assert alignment.unpaired[1].deletions.tolist() == [[0, 0], [1, 0]]
    assert {each.source for each in alignment.paired + alignment.unpaired} == {"x.a3m"}
    assert alignment.order is None


def test_insertions_before_the_first_column_of_a_chain_are_its_own() -> None:
    alignment = parse_complex_a3m(b"#2,2\t1,1\n>101\t102\nMKWA\n>a\tb\nMKccWAdd\n")
    assert alignment.paired[0].deletions.tolist() == [[0, 0], [0, 0]]
    assert alignment.paired[1].deletions.tolist() == [[0, 0], [2, 0]]


def test_file_of_copies_has_only_unpaired_rows() -> None:
    alignment = parse_complex_a3m(b"#2\t3\n>101\nMK\n>a\nM-\n")
    assert alignment.copies == (3,)
    assert [each.sequences for each in alignment.paired] == [["MK"]]
    assert [each.sequences for each in alignment.unpaired] == [["MK", "M-"]]


def test_queries_are_added_where_the_file_has_none() -> None:
    """ColabFold writes no paired row with `--pair-mode unpaired`, and no unpaired one with `paired`."""
    unpaired = parse_complex_a3m(b"#2,2\t1,1\n>101\nMK--\n>a\nM---\n>102\n--WA\n")
    assert [each.sequences for each in unpaired.paired] == [["MK"], ["WA"]]
    assert [each.sequences for each in unpaired.unpaired] == [["MK", "M-"], ["WA"]]
    paired = parse_complex_a3m(b"#2,2\t1,1\n>101\t102\nMKWA\n>a\tb\nM-W-\n")
    assert [each.sequences for each in paired.paired] == [["MK", "M-"], ["WA", "W-"]]
    assert [each.sequences for each in paired.unpaired] == [["MK"], ["WA"]]


def test_equal_rows_are_read_once_and_rows_of_other_names_are_kept() -> None:
    rows = b">a\nMc--\n>b\nMc--\n>a\nMc\n--\n>a\nMd--\n\0>a\nMc--\n"
    read = parse_complex_a3m(b"#2,1\t1,1\n>101\t102\nMKW\n" + rows)
    # the third row, with the name of the first, has another insertion
    assert read.unpaired[0].names == ("a", "b", "a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"#3,2\t1,1\n>q\nMKVW\n", "x:2: row 1 (q) has 4 columns, the header line declares 5"),
        (b"#3,2\t1,1\n>q\nMKVWA\n\n>a b\nMKV-\n", "x:5: row 2 (a) has 4 columns, the header line declares 5"),
        (b"#3,2\t1\n>q\nMKVWA\n", "x:1: lengths and counts of the header line do not match"),
        (b"#3,0\t1,1\n>q\nMKV\n", "x:1: chain 2 of the header line has no residues"),
        (b"#3,2\t1,0\n>q\nMKVWA\n", "x:1: chain 2 of the header line has no copies"),
        (b"#3,2\t1,1\n>q\nMKV--\n", "x: no row has residues of chain 2 of the header line"),
        (b"#3,2\t1,1\n>q\nMKVW-\n", "x:2: the first row of chain 2 of the header line, its query, has gaps"),
        (b"#2,2\t1,1\n>q\nMKMK\n", "x:1: chains 1 and 2 of the header line are the same: declare one with 2"),
        (b"#2,1\t1,1\n>q\nMKW\n>a\nM*-\n", "x:5:2: '*' is not a residue letter"),
        (b"#3\t9999999\n>q\nMKV\n", "x:1: the header line declares 29,999,997 residues in all copies, more"),
        (b"#3,2\t1,1\n", "x: no sequences"),
        (b"#3,2\t1,1\nMKVWA\n>q\nMKVWA\n", "x:2: text before the first header line"),
        (b"#%d,2\t1,1\n>q\nMKVWA\n" % 10**17, "residues in all copies, more than 100,000"),
        (
            b"#2,1\t1,1\n>a\tb\tchains=1,1\nMKW\n",
            "x:2: the list chains=1,1 does not have each chain as often",
        ),
        (
            b"#2,1\t1,1\n>a\tb\tchains=2,1\nMKW\n>101\nMK-\n>x\n--A\n",
            "x:6: the first unpaired row of chain 2 is not",
        ),
        (b">q\nMKVWA\n", "x:1: not an A3M file of a complex"),
    ],
)
def test_damaged_files_are_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_complex_a3m(data, "x")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@given(st.binary(max_size=200), st.integers(0, len(PAIRED)))
@settings(deadline=None)
def test_any_content_is_read_or_refused(inserted: bytes, position: int) -> None:
    data = PAIRED[:position] + inserted + PAIRED[position:]
    try:
        read = parse_complex_a3m(data, "x")
    except InputError:
        return
    for paired, unpaired in zip(read.paired, read.unpaired, strict=True):
        assert paired.query == unpaired.query and "-" not in paired.query
        assert len(paired) == len(read.paired[0]) == len(paired.names)


def test_complexes_are_recognised_by_their_first_line() -> None:
    for line, expected in ((b"#3,2\t1,1", True), (b"#3\t2", True), (b"#3\t1", False), (b"# x", False)):
        assert is_complex_a3m(line + b"\n>q\nMKV\n") == expected
    assert not is_complex_a3m(b">q\nMKV\n")


def test_rows_as_text() -> None:
    data = b"#3\t1\r\n>q a b\r\nMK\r\nV\r\n# note\n>a\tx\nM-cV\n>\n---\n"
    assert parse_a3m_rows(data) == [A3mRow("q a b", "MKV"), A3mRow("a\tx", "M-cV"), A3mRow("", "---")]


LETTERS = st.text("ACDE", min_size=1, max_size=6)


@given(st.lists(LETTERS, min_size=2, max_size=4, unique=True), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_written_files_are_read_again(queries: list[str], random) -> None:
    def row(name: str, query: str) -> A3mRow:
        letters = [random.choice("ACDEF-") + random.choice(["", "", "gh"]) for _ in query]
        return A3mRow(f"{name} z", "W" + "".join(letters)[1:])

    paired = [
        [None if random.random() < 0.4 else row(f"p{k}{n}", query) for n, query in enumerate(queries)]
        for k in range(5)
    ]
    paired = [pair for pair in paired if any(pair)]
    order = [number for number in range(len(queries)) for _ in range(number + 1)]
    random.shuffle(order)
    unpaired = [
        [A3mRow("q", query), *(row(f"u{k}{n}", query) for k in range(4))] for n, query in enumerate(queries)
    ]
    stream = io.StringIO()
    write_complex_a3m(stream, order, paired, unpaired)
    read = parse_complex_a3m(stream.getvalue().encode())
    assert read.copies == tuple(range(1, len(queries) + 1)) and list(read.queries) == queries
    assert read.order == tuple(order)

    def columns(each: A3mRow | None, query: str) -> str:
        return "-" * len(query) if each is None else "".join(c for c in each.text if not c.islower())

    for number, query in enumerate(queries):
        # insertions after the last column of a chain do not become those of the next one
        assert not read.paired[number].deletions[:, 0].any()
        assert read.paired[number].sequences[1:] == [columns(pair[number], query) for pair in paired]
        assert read.unpaired[number].sequences == [columns(each, query) for each in unpaired[number]]
