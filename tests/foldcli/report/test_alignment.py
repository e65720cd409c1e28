"""What is seen of an alignment, whatever it was written as."""

from pathlib import Path

import numpy as np
import pytest

from features.cache import FeatureCache, cache_key
from features.deterministic import make_features
from foldcli.report.alignment import MOST_HITS, PICTURE_ROWS, cover, pair_with_query, view_alignment
from msa.errors import InputError
from msa.io.alignments import parse_alignment

QUERY = "MKVLAAGIIV"
HIT = "hit1\t90\t0.889\t2.0E-09\t0\t9\t10\t3\t12\t40"
A3M = f">query\n{QUERY}\n>{HIT}\nMKV-AAGhhIIV\n>hit2 of a family\n--VLSAG-IV\n"
STOCKHOLM = f"# STOCKHOLM 1.0\nquery {QUERY}\nhit1 MKV-AAGIIV\nhit2 --VLSAG-IV\n//\n"


def letters(*rows: str) -> np.ndarray:
    return np.array([list(row.encode()) for row in rows], np.uint8)


def test_coverage_counts_residues_and_sorts_by_identity() -> None:
    seen = cover(letters("ACDE", "A---", "ACDF", "WW--"))
    assert seen.depth == 4
    assert seen.covered.tolist() == [4, 3, 2, 2]
    assert seen.identity.tolist() == [1.0, 0.75, 0.25, 0.0]
    assert seen.occupancy.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]


def test_a_deep_and_long_alignment_is_put_together() -> None:
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((9001, 1501)) < 0.3, ord("-"), ord("A")).astype(np.uint8)
    rows[0] = ord("A")
    seen = cover(rows)
    assert seen.covered.tolist() == (rows != ord("-")).sum(0).tolist()
    assert len(seen.identity) == PICTURE_ROWS == len(seen.rows) and seen.occupancy.shape[1] <= 600
    assert np.all(np.diff(seen.identity) <= 0)
    # no row and no column is lost or counted twice
    heights = np.diff(np.append(seen.rows, 9001))
    assert (seen.identity * heights).sum() == pytest.approx((rows == rows[0]).mean(1).sum())
    assert seen.occupancy.mean() == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize(("name", "content"), [("t.a3m", A3M), ("t.sto", STOCKHOLM)])
def test_hits_of_an_alignment(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    view = view_alignment(tmp_path / name, None, len(QUERY))
    assert (view.coverage.depth, view.hits_in_all) == (3, 2)
    first, second = view.hits
    assert second.query == (3, 10) and second.aligned == ("VLAAGIIV", "VLSAG-IV") and second.evalue is None
    assert second.identity == pytest.approx(6 / 7)
    if name == "t.a3m":
        assert (first.name, first.evalue, first.bits, first.target) == ("hit1", "2.0E-09", "90", (4, 13))
        assert first.aligned == ("MKVLAAG--IIV", "MKV-AAGHHIIV")
        assert second.name == "hit2 of a family"
    else:
        assert first.aligned == (QUERY, "MKV-AAGIIV")


def test_an_entry_of_the_feature_cache_has_coverage_and_no_names(tmp_path: Path) -> None:
    alignments = [parse_alignment(A3M.encode())]
    path = FeatureCache(tmp_path).store(cache_key(alignments), make_features(alignments))
    view = view_alignment(path, None, len(QUERY))
    assert view.coverage.covered.tolist() == [2, 2, 3, 2, 3, 3, 3, 2, 3, 3]
    assert view.coverage.identity[0] == 1.0 and view.hits == ()


def test_the_table_of_hits_has_the_first_word(tmp_path: Path) -> None:
    (tmp_path / "t.a3m").write_text(A3M)
    line = "query\thit1\t0.889\t12\t0\t2\t1\t10\t4\t13\t2.0E-09\t90\n"
    copy = "query\tcopy\t1.000\t8\t0\t0\t2\t9\t1\t8\t1.0E-08\t80\n"
    lost = "query\tlost\t0.500\t8\t4\t0\t2\t9\t1\t8\t1.0E-03\t30\n"
    (tmp_path / "t.m8").write_text(line + copy + lost * (MOST_HITS + 5))
    view = view_alignment(tmp_path / "t.a3m", tmp_path / "t.m8", len(QUERY))
    assert len(view.hits) == MOST_HITS and view.hits_in_all == MOST_HITS + 7
    first, second, third = view.hits[:3]
    assert first.aligned == ("MKVLAAG--IIV", "MKV-AAGHHIIV") and first.target == (4, 13)
    assert second.aligned == (QUERY[1:9], QUERY[1:9])
    assert third.aligned is None and third.evalue == "1.0E-03"


@pytest.mark.parametrize(
    ("m8", "count", "reason"), [("a\tb\n", 10, "t.m8:1: not a line of hits"), ("", 11, "target has 11")]
)
def test_what_does_not_fit_is_named(tmp_path: Path, m8: str, count: int, reason: str) -> None:
    (tmp_path / "t.a3m").write_text(A3M)
    (tmp_path / "t.m8").write_text(m8)
    with pytest.raises(InputError, match=reason):
        view_alignment(tmp_path / "t.a3m", tmp_path / "t.m8", count)


def test_a_row_of_gaps_is_aligned_with_nothing() -> None:
    assert pair_with_query("ACD", "---") == ("", "")
    assert pair_with_query("ACD", "-c-") == ("-", "C")
