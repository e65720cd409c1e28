"""The report's section about templates."""

import io
import re
from pathlib import Path

import numpy as np

from features.templates.search import TemplateCandidate, TemplateHits
from features.templates.table import write_template_table
from foldcli.report.templates import read_template_rows, templates_section


def candidate(name: str, start: int, end: int, rejection: str | None = None) -> TemplateCandidate:
    return TemplateCandidate(
        0, name, "<source>", None, 1e-30, 0.345, start, end, 1, end - start + 1,
        np.zeros((1, 2), np.int64), 0.5, 40.0, rejection,
    )  # fmt: skip


def write_table(path: Path, *candidates: TemplateCandidate) -> None:
    stream = io.StringIO()
    write_template_table(stream, TemplateHits("A" * 100, candidates), [("9xyz_A", "no such file")])
    path.write_text(stream.getvalue())


def test_templates_are_drawn_over_the_query(tmp_path: Path) -> None:
    path = tmp_path / "q_templates.tsv"
    write_table(path, candidate("1abc_A", 51, 100), candidate("2abc_B", 1, 10, "too short"))
    html = templates_section(read_template_rows(path), 100)
    assert html.count("<svg") == 2
    assert re.search(r'<rect x="300.0" y="2" width="300.0"', html)
    assert "residues 51 to 100 of 100" in html
    assert "34 %" in html or "35 %" in html
    assert "&lt;source&gt;" in html
    assert "too short" in html
    assert "no such file" in html


def test_without_a_table_there_is_no_section(tmp_path: Path) -> None:
    assert templates_section(read_template_rows(tmp_path / "none.tsv"), 100) == ""
    (tmp_path / "empty.tsv").touch()
    assert templates_section(read_template_rows(tmp_path / "empty.tsv"), 100) == ""


def test_only_the_first_candidates_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "q_templates.tsv"
    write_table(path, *(candidate(f"{k}abc_A", 1, 50) for k in range(50)))
    html = templates_section(read_template_rows(path), 100)
    assert "The first 30 of 51 template candidates" in html
    assert html.count("<svg") == 30
