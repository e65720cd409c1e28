"""Summaries of alignments, from every file format."""

from pathlib import Path

import numpy as np
import pytest

from features.alphafold2.deterministic import make_features
from features.cache.cache import FeatureCache, cache_key
from foldcli.report.data.alignment import (
    IMAGE_ROWS,
    MAX_HITS,
    compute_coverage,
    pair_with_query,
    read_alignment_summary,
)
from msa.alignments.files import parse_alignment
from msa.base.errors import InputError

QUERY = "MKVLAAGIIV"
HIT = "hit1\t90\t0.889\t2.0E-09\t0\t9\t10\t3\t12\t40"
A3M = f">query\n{QUERY}\n>{HIT}\nMKV-AAGhhIIV\n>hit2 of a family\n--VLSAG-IV\n"
STOCKHOLM = f"# STOCKHOLM 1.0\nquery {QUERY}\nhit1 MKV-AAGIIV\nhit2 --VLSAG-IV\n//\n"


def letters(*rows: str) -> np.ndarray:
    return np.array([list(row.encode()) for row in rows], np.uint8)


def test_coverage_counts_residues_and_sorts_by_identity() -> None:
    coverage = compute_coverage(letters("ACDE", "A---", "ACDF", "WW--"))
    assert coverage.depth == 4
    assert coverage.covered.tolist() == [4, 3, 2, 2]
    assert coverage.identity.tolist() == [1.0, 0.75, 0.25, 0.0]
    assert coverage.occupancy.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]


def test_large_alignment_is_averaged() -> None:
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((9001, 1501)) < 0.3, ord("-"), ord("A")).astype(np.uint8)
    rows[0] = ord("A")
    coverage = compute_coverage(rows)
    assert coverage.covered.tolist() == (rows != ord("-")).sum(0).tolist()
    assert (
        len(coverage.identity) == IMAGE_ROWS == len(coverage.row_starts)
        and coverage.occupancy.shape[1] <= 600
    )
    assert np.all(np.diff(coverage.identity) <= 0)
    # every row and column is counted once
    heights = np.diff(np.append(coverage.row_starts, 9001))
    assert (coverage.identity * heights).sum() == pytest.approx((rows == rows[0]).mean(1).sum())
    assert coverage.occupancy.mean() == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize(("name", "content"), [("t.a3m", A3M), ("t.sto", STOCKHOLM)])
def test_rows_of_an_alignment_are_hits(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    summary = read_alignment_summary(tmp_path / name, None, [QUERY])
    assert (summary.coverage.depth, summary.hit_count) == (3, 2)
    first, second = summary.hits
    assert (
        second.query_span == (3, 10) and second.aligned == ("VLAAGIIV", "VLSAG-IV") and second.evalue is None
    )
    assert second.identity == pytest.approx(6 / 7)
    if name == "t.a3m":
        assert (first.name, first.evalue, first.bits, first.target_span) == ("hit1", "2.0E-09", "90", (4, 13))
        assert first.aligned == ("MKVLAAG--IIV", "MKV-AAGHHIIV")
        assert second.name == "hit2 of a family"
    else:
        assert first.aligned == (QUERY, "MKV-AAGIIV")


def test_feature_cache_entry_has_coverage_and_no_names(tmp_path: Path) -> None:
    alignments = [parse_alignment(A3M.encode())]
    path = FeatureCache(tmp_path).store(cache_key(alignments), make_features(alignments))
    summary = read_alignment_summary(path, None, [QUERY])
    assert summary.coverage.covered.tolist() == [2, 2, 3, 2, 3, 3, 3, 2, 3, 3]
    assert summary.coverage.identity[0] == 1.0 and summary.hits == ()


def test_table_of_hits_replaces_rows(tmp_path: Path) -> None:
    (tmp_path / "t.a3m").write_text(A3M)
    line = "query\thit1\t0.889\t12\t0\t2\t1\t10\t4\t13\t2.0E-09\t90\n"
    copy = "query\tcopy\t1.000\t8\t0\t0\t2\t9\t1\t8\t1.0E-08\t80\n"
    filtered = "query\tlost\t0.500\t8\t4\t0\t2\t9\t1\t8\t1.0E-03\t30\n"
    (tmp_path / "t.m8").write_text(line + copy + filtered * (MAX_HITS + 5))
    summary = read_alignment_summary(tmp_path / "t.a3m", tmp_path / "t.m8", [QUERY])
    assert len(summary.hits) == MAX_HITS and summary.hit_count == MAX_HITS + 7
    first, second, third = summary.hits[:3]
    assert first.aligned == ("MKVLAAG--IIV", "MKV-AAGHHIIV") and first.target_span == (4, 13)
    assert second.aligned == (QUERY[1:9], QUERY[1:9])
    assert third.aligned is None and third.evalue == "1.0E-03"


@pytest.mark.parametrize(
    ("m8", "length", "reason"), [("a\tb\n", 10, "t.m8:1: not a line of hits"), ("", 11, "target has 11")]
)
def test_inconsistent_files_are_errors_that_name_them(
    tmp_path: Path, m8: str, length: int, reason: str
) -> None:
    (tmp_path / "t.a3m").write_text(A3M)
    (tmp_path / "t.m8").write_text(m8)
    with pytest.raises(InputError, match=reason):
        read_alignment_summary(tmp_path / "t.a3m", tmp_path / "t.m8", ["A" * length])


def test_row_of_gaps_has_an_empty_alignment() -> None:
    assert pair_with_query("ACD", "---") == ("", "")
    assert pair_with_query("ACD", "-c-") == ("-", "C")
