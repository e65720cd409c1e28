"""The index of a folder: every target with its status."""

import json
import re
from pathlib import Path

import pytest

from foldcli.report import index
from foldcli.report.index import index_page, index_rows, write_index
from tests.foldcli.report.outline import Outline
from tests.foldcli.report.results import HOSTILE, add_network_facts, write_result


def write_failure(out: Path, target: str, error: str, shard: str = "") -> None:
    (out / f"failures{shard}.jsonl").write_text(json.dumps({"target": target, "error": error}) + "\n")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    write_result(tmp_path / "good", "good")
    (tmp_path / "good/good.html").touch()
    (tmp_path / "good/good_thumbnail.png").touch()
    write_result(tmp_path / "mild", "mild", warnings=("the alignment holds the query alone",), pae=False)
    write_result(tmp_path / "demo", "demo", untrained=True)
    (tmp_path / "half/.work").mkdir(parents=True)
    write_failure(tmp_path, "bad one", "bad.fasta:1: no residues")
    write_failure(tmp_path, "shard", "out of memory", ".2-of-3")
    return tmp_path


def test_every_target_has_a_row(out: Path) -> None:
    rows = {row.name: row for row in index_rows(out)}
    assert list(rows) == ["bad one", "demo", "good", "half", "mild", "shard"]
    status = {name: row.status for name, row in rows.items()}
    assert status == {
        "bad one": "failed", "demo": "untrained", "good": "finished", "half": "not finished",
        "mild": "finished, with warnings", "shard": "failed",
    }  # fmt: skip
    good = rows["good"]
    assert (good.length, good.depth, good.ptm, good.seconds) == (40, 3, 0.8, 83.0)
    assert good.plddt == pytest.approx(63.0)
    assert (good.page, good.thumbnail) == ("good/good.html", "good/good_thumbnail.png")
    assert rows["mild"].ptm is None and rows["mild"].page is None
    assert rows["bad one"].note == "bad.fasta:1: no residues"


def test_complexes_add_a_column(out: Path) -> None:
    assert "ipTM" not in index_page(index_rows(out), "x")
    path = out / "good/good.done.json"
    done = json.loads(path.read_text())
    done["ranking"][0]["iptm"] = 0.625
    path.write_text(json.dumps(done))
    rows = index_rows(out)
    assert [row.iptm for row in rows if row.name == "good"] == [0.625]
    outline = Outline(index_page(rows, "x"))
    assert "ipTM" in outline.text and "0.62" in outline.text
    # a cell for every column in every row
    assert outline.tags.count("td") + outline.tags.count("th") - 9 == 9 * len(rows)


def test_template_and_expected_accuracy_are_listed(out: Path) -> None:
    before = Outline(index_page(index_rows(out), "x")).text
    assert "best template" not in before and "expected lDDT" not in before
    add_network_facts(out / "good/good.done.json")
    # a record of an older version: fractions, and no range for single proteins
    add_network_facts(out / "mild/mild.done.json", lddt=0.813, low=0.79, high=0.84)
    rows = {row.name: row for row in index_rows(out)}
    assert rows["good"].template == "PDB 1UBQ_A, 96 % identity"
    assert (rows["good"].expected, rows["good"].expected_text) == (81.3, "68 to 92")
    assert (rows["mild"].expected, rows["mild"].expected_text) == (pytest.approx(81.3), "mean 81")
    assert rows["demo"].template is None and rows["demo"].expected is None
    outline = Outline(index_page(list(rows.values()), "x"))
    assert "best template" in outline.text and "68 to 92" in outline.text
    # a cell for every column in every row
    assert outline.tags.count("td") + outline.tags.count("th") - 10 == 10 * len(rows)


@pytest.mark.parametrize("facts", [{}, {"expected_lddt": None}, {"expected_lddt": {"other": "x"}}])
def test_unknown_facts_about_the_network_are_left_out(out: Path, facts: object) -> None:
    path = out / "good/good.done.json"
    done = json.loads(path.read_text())
    done["facts"] |= {"network": facts, "templates": [facts]}
    path.write_text(json.dumps(done))
    (good,) = [row for row in index_rows(out) if row.name == "good"]
    assert good.status == "finished" and good.expected is None and good.template is None


@pytest.mark.parametrize(
    ("header", "description"), [("good A protein", "A protein"), ("good", ""), ("x|y|z of w", "x|y|z of w")]
)
def test_description_is_the_header_without_the_name(out: Path, header: str, description: str) -> None:
    write_result(out / "good", "good", header=header)
    (good,) = [row for row in index_rows(out) if row.name == "good"]
    assert good.description == description


def test_failure_after_an_earlier_success_shows_both(out: Path) -> None:
    write_failure(out, "good", "disk full", ".3-of-3")
    (good,) = [row for row in index_rows(out) if row.name == "good"]
    assert good.status == "failed" and good.plddt is not None
    assert good.note == "disk full. The results shown are from an earlier run."


@pytest.mark.parametrize("content", ["", "[]", '{"name": "x"}', '{"name": "x", "ranking": []}', "{", "null"])
def test_files_of_other_programs_are_ignored(out: Path, content: str) -> None:
    before = index_rows(out)
    (out / "x").mkdir()
    (out / "x/x.done.json").write_text(content)
    (out / "failures.9-of-9.jsonl").write_text(content)
    assert index_rows(out) == before


@pytest.mark.parametrize("name", ["y", "../x/x", "x" * 5000])
def test_records_under_other_names_are_ignored(out: Path, name: str) -> None:
    before = index_rows(out)
    content = json.loads((out / "good" / "good.done.json").read_text())
    (out / "x").mkdir()
    (out / "x/x.done.json").write_text(json.dumps(content | {"name": name}))
    assert [row for row in index_rows(out) if row.name != "x"] == before


def test_one_target_has_no_index(tmp_path: Path) -> None:
    write_result(tmp_path / "only", "only")
    assert write_index(tmp_path) is None
    assert not (tmp_path / "index.html").exists()


def test_target_that_finishes_meanwhile_is_included(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_page(rows: list[index.IndexRow], title: str) -> str:
        if len(rows) == 6:
            write_result(out / "newcomer", "newcomer")
        return index_page(rows, title)

    monkeypatch.setattr(index, "index_page", slow_page)
    path = write_index(out)
    assert path is not None and "newcomer" in path.read_text()


def test_page_is_complete_and_escapes_hostile_text(out: Path) -> None:
    write_failure(out, HOSTILE, HOSTILE, ".4-of-4")
    path = write_index(out)
    assert path is not None
    page = path.read_text()
    outline = Outline(page)
    assert outline.texts.count(HOSTILE) == 2 and "<script>alert" not in page
    assert outline.tags.count("script") == 1 and "unsafe" not in page
    assert "these are not predictions" in outline.text and "3 failed, 1 not finished" in outline.text
    sources = [value for _, name, value in outline.attributes if name in ("src", "href")]
    assert sorted(filter(None, sources)) == ["good/good.html", "good/good_thumbnail.png"]
    assert not re.search(r"https?:", page.replace("http-equiv", ""))
