"""Recognition of query files by content, and the profiles of alignments."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.inputs.queries import read_queries
from msa.alphabet import GAP, encode
from msa.base.errors import InputError
from msa.io.fasta import FastaRecord, UnsupportedRecord
from msa.profile.family_profile import distinct_rows, family_profile
from msa.profile.pssm import ProfileRecord

QUERY = "MKVLAAGGHT"
NEAR = "MKVLSSGGHT"
ROWS = np.stack([encode(QUERY), encode(NEAR)])
FAMILY_ROWS = np.concatenate([ROWS, [encode("MRVAAAGGHT")]])
FAMILY_ROWS[2, 3:5] = GAP

A3M = f">q first\n{QUERY}\n>near\n{NEAR}\n>far\nMRV--AGppGHT\n"
STOCKHOLM = (
    f"# STOCKHOLM 1.0\nq  {QUERY[:7]}--{QUERY[7:]}\nnear {NEAR[:7]}..{NEAR[7:]}\nfar MRV--AGPPGHT\n//\n"
)
ALIGNED = f">q first\n{QUERY[:7]}--{QUERY[7:]}\n>near\n{NEAR[:7]}--{NEAR[7:]}\n>far\nMRV--AGPPGHT\n"


def read(folder: Path, content: str | bytes, comp_bias_corr: bool = True) -> list[FastaRecord]:
    (folder / "query").write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_queries(folder / "query", comp_bias_corr)


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        A3M,
        STOCKHOLM,
        ALIGNED,
        gzip.compress(A3M.encode(), mtime=0),
        "\ufeff" + A3M,
        "\n\n" + A3M,
        "#A3M#\n" + A3M,
        f"#{len(QUERY)}\t1\n" + A3M,
        A3M.replace("\n", "\r\n"),
        A3M + "\0",
    ],
)
def test_alignment_becomes_one_query_with_the_profile_of_its_rows(
    tmp_path: Path, content: str | bytes, corrected: bool
) -> None:
    (query,) = read(tmp_path, content, corrected)
    assert isinstance(query, ProfileRecord)
    assert query.sequence == QUERY and query.id == "q"
    np.testing.assert_array_equal(query.profile, family_profile(distinct_rows(FAMILY_ROWS, 0.95), corrected))
    assert query.source == "an alignment of 3 rows, 3 of them different"


def test_insertions_without_gaps_make_an_alignment(tmp_path: Path) -> None:
    (query,) = read(tmp_path, f">q\n{QUERY}\n>near\n{NEAR[:4]}gggg{NEAR[4:]}\n")
    assert isinstance(query, ProfileRecord)
    np.testing.assert_array_equal(query.profile, family_profile(ROWS))


@pytest.mark.parametrize(
    ("content", "sequences"),
    [
        (f">a\n{QUERY}\n>b\n{NEAR}\n", [QUERY, NEAR]),
        (f">a\n{QUERY}\n>b\n{NEAR}K\n>c\nMK\n", [QUERY, NEAR + "K", "MK"]),
        (f">a - with.a dash\n{QUERY}\n>b-b\n{NEAR}\n", [QUERY, NEAR]),
        # soft-masked
        (">a\nMKVlaaGG\n>b\nMKVggGG\n", ["MKVLAAGG", "MKVGGGG"]),
        (">a\nmkvl\n>b\nmkvi\n", ["MKVL", "MKVI"]),
        (">a\nMKVL\n>b\nMKVilRR\n", ["MKVL", "MKVILRR"]),
        (f">a\n{QUERY}\n", [QUERY]),
        # alignments without other rows
        (f"#10\t1\n>a\n{QUERY}\n", [QUERY]),
        (f">a\n{QUERY}\n>b\n{QUERY[:8]}--\n", [QUERY]),
    ],
)
def test_unaligned_sequences_are_separate_queries(tmp_path: Path, content: str, sequences: list[str]) -> None:
    queries = read(tmp_path, content)
    assert [query.sequence for query in queries] == sequences
    assert not any(isinstance(query, ProfileRecord) for query in queries)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "empty file"),
        ("MKV\n", "1: not a FASTA file: text before the first header line"),
        (">a\nMK-V\n", "2:3: '-' is a gap: a query must not be aligned"),
        (">a\nMKV1\n", "2:4: '1' is not a residue letter"),
        (
            ">a\nMKV\n>b\nM-VK\n",
            "3: gaps or insertions make this an alignment, but row 2 (b) has 4 columns, the query has 3",
        ),
        (
            ">a\nMKV\n>b\nM-1\n",
            "4:3: gaps or insertions make this an alignment, but '1' is not a residue letter",
        ),
        ("# STOCKHOLM 1.0\na MKV\nb MK\n//\n", "3: row 2 (b) has 2 columns, the query has 3"),
        ("# STOCKHOLM 1.0\na MK1\n//\n", "2: '1' in a is not a residue letter"),
        (STOCKHOLM + STOCKHOLM, "6: a second alignment begins here: put each in a separate file"),
        ("\n# STOCKHOLM 1.0\na MKV\n//\n\n# STOCKHOLM 1.0\n", "6: a second alignment begins here"),
        ("#3,3\t1,1\n>a\nMKVMKV\n", "1: alignment of a complex (2 chains"),
        (b"PK\3\4 and no archive", " damaged profiles: "),
    ],
)
def test_invalid_input_is_reported_with_its_location(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, content)
    prefix = f"{tmp_path}/query:"
    assert str(raised.value).startswith(f"{prefix} {reason}" if reason[0].isalpha() else prefix + reason)


@settings(deadline=None)
@given(
    content=st.lists(st.sampled_from([b">", b"\n", b"-", b"MK", b"mk", b"#", b".", b"*", b">a\nMKV\n", b"1"]))
)
def test_arbitrary_content_is_read_or_raises_input_error(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes]
) -> None:
    try:
        queries = read(tmp_path_factory.getbasetemp(), b"".join(content))
    except InputError:
        return
    assert queries


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (np.zeros((4, 32), np.int16), r"its profile is int16 \[4, 32\], expected int16 \[3, 32\]"),
        (np.zeros((3, 32), np.int32), "its profile is int32"),
        (np.full((3, 32), 1001, np.int16), "scores beyond 1000 half-bits"),
        (np.full((3, 32), -32768, np.int16), "scores beyond 1000 half-bits"),
    ],
)
def test_profile_must_match_its_query(profile: np.ndarray, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ProfileRecord("q", "MKV", profile, "a test")
    ProfileRecord("q", "MKV", np.full((3, 32), -1000, np.int16), "a test")


def test_suffix_of_an_alignment_decides_if_the_content_is_ambiguous(tmp_path: Path) -> None:
    content = f">a\n{QUERY}\n>b\n{NEAR}\n"
    assert [query.id for query in read(tmp_path, content)] == ["a", "b"]
    for name in ("q.a3m", "q.afa.gz"):
        (tmp_path / name).write_bytes(gzip.compress(content.encode()))
        assert [query.id for query in read_queries(tmp_path / name)] == ["a"]
    (tmp_path / "q.a3m").write_text(">a\nMKV\n>b\nMK\n")
    with pytest.raises(InputError, match="its name makes this an alignment, but row 2"):
        read_queries(tmp_path / "q.a3m")


def test_smiles_do_not_make_an_alignment(tmp_path: Path) -> None:
    content = f">A|protein\n{QUERY}\n>B|smiles\nc1ccccc1C(=O)[O-].[Na+]\n>C|protein\n{NEAR}\n"
    first, ligand, second = read(tmp_path, content)
    assert (first.id, second.id) == ("A", "C") and isinstance(ligand, UnsupportedRecord)


def test_annotations_do_not_hide_that_insertions_make_an_alignment(tmp_path: Path) -> None:
    content = f">ss_pred\n{'C' * 10}\n>ss_conf\n{'9' * 10}\n>q\n{QUERY}\n>b\n{NEAR[:4]}gg{NEAR[4:]}\n"
    (query,) = read(tmp_path, content)
    assert isinstance(query, ProfileRecord) and query.id == "q"


@pytest.mark.parametrize(
    "text", [">B|ccd\nATP\n", ">x\nATGGCGAACTTCGGATCTTGGAAC\n>y\nATGGCGAACTTCGGATCTTGG-AC\n"]
)
def test_alignment_of_another_molecule_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "q.a3m").write_text(text)
    for read_file in (read_queries, lambda path: AlignmentTarget("q", (str(path),)).read()):
        with pytest.raises(InputError, match="only protein chains are supported"):
            read_file(tmp_path / "q.a3m")
