"""The report's table of templates."""

import io
from pathlib import Path

import numpy as np

from features.templates.candidates import TemplateCandidate, TemplateHits
from features.templates.table import write_template_table
from foldcli.report import ReportSettings
from foldcli.report.data.related_structures import read_template_rows
from foldcli.report.make import make_report
from tests.foldcli.report.outline import Outline
from tests.foldcli.report.results import target_files, write_result


def candidate(name: str, start: int, end: int, rejection: str | None = None) -> TemplateCandidate:
    return TemplateCandidate(
        0, name, "<source>", None, 1e-30, 0.345, start, end, 1, end - start + 1,
        np.zeros((1, 2), np.int64), 0.5, 40.0, rejection,
    )  # fmt: skip


def write_table(path: Path, *candidates: TemplateCandidate) -> None:
    stream = io.StringIO()
    write_template_table(stream, TemplateHits("A" * 100, candidates), [("9xyz_A", "no such file")])
    path.write_text(stream.getvalue())


def test_rows_have_the_aligned_part_of_the_query(tmp_path: Path) -> None:
    path = tmp_path / "q_templates.tsv"
    write_table(path, candidate("1abc_A", 51, 100), candidate("2abc_B", 1, 10, "too short"))
    first, second, unreadable = read_template_rows(path, 100)
    assert first["bar"] == {"start": 51, "end": 100, "x": "300.0", "width": "300.0"}
    assert (first["name"], first["used"], first["reason"]) == ("PDB 1ABC_A", "1", "")
    assert first["identity"] in ("34 %", "35 %") and first["source"] == "<source>"
    assert second["bar"] is not None and second["reason"] == "too short"
    assert unreadable["bar"] is None and unreadable["reason"] == "no such file"


def test_without_a_table_there_are_no_rows(tmp_path: Path) -> None:
    assert read_template_rows(tmp_path / "none.tsv", 100) == []
    (tmp_path / "empty.tsv").touch()
    assert read_template_rows(tmp_path / "empty.tsv", 100) == []


def test_page_shows_the_first_candidates(tmp_path: Path) -> None:
    folder = write_result(tmp_path)
    files = target_files(folder)
    for count, text in ((0, None), (50, "The first 30 of 51 template candidates")):
        if count:
            write_table(files.path("templates"), *(candidate(f"{k}abc_A", 1, 20) for k in range(count)))
        make_report(files, {}, ReportSettings(plots=False))
        outline = Outline(files.path("report").read_text())
        assert ("templates" in outline.ids) == (text is not None)
        assert outline.tags.count("svg") == (30 if text else 0)
        if text:
            assert text in outline.text and "residues 1 to 20 of 40" in outline.text
            assert outline.texts.count("<source>") == 30
