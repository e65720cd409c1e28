"""The report's section about structures that look like the best model."""

from pathlib import Path

import gemmi
import pytest

from features.templates.library.library import EMBEDDED
from features.templates.library.mmcif import chains_as_mmcif
from features.templates.library.structure_files import read_chains
from foldcli.report import ReportSettings
from foldcli.report.make import make_report
from msa.base.errors import InputError
from tests.foldcli.report.outline import Outline
from tests.foldcli.report.results import target_files, write_result


def test_page_draws_the_best_hit_on_the_model(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDCLI_CACHE", str(tmp_path / "cache"))
    known = root / "tests/features/templates/data/1a8o.cif.gz"
    chain = read_chains(known)[0]
    files = target_files(write_result(tmp_path / "out", sequence=chain.sequence))
    block = gemmi.cif.read_string(chains_as_mmcif("model", {"A": chain}))[0]
    model = next(files.folder.glob("*_unrelaxed_rank_001_*.pdb"))
    model.write_text(gemmi.make_structure_from_block(block).make_pdb_string())
    settings = ReportSettings(plots=False, similar=known)
    assert not settings.is_made(files)
    make_report(files, {}, settings)
    assert settings.is_made(files)
    header, line = files.path("similar").read_text().splitlines()
    row = dict(zip(header.split("\t"), line.split("\t"), strict=True))
    assert (row["query"], row["target"], row["qtmscore"]) == ("target", "1a8o_A", "1.000")
    outline = Outline(files.path("report").read_text())
    assert "similar" in outline.ids and "1a8o_A" in outline.texts
    # both traces are at the same place
    model_path, hit_path = sorted(value or "" for tag, name, value in outline.attributes if name == "d")[-2:]
    assert model_path.count("L") == len(chain.sequence) - 1 and model_path == hit_path
    # pages made again show it without another search
    make_report(files, {}, ReportSettings(plots=False))
    assert "similar" in Outline(files.path("report").read_text()).ids


def test_a_model_that_cannot_be_searched_has_no_hits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = target_files(write_result(tmp_path))
    make_report(files, {}, ReportSettings(plots=False, similar=EMBEDDED))
    assert "no similar structures" in caplog.text and "only CA atoms" in caplog.text
    assert len(files.path("similar").read_text().splitlines()) == 1
    assert "No chain of the library" in Outline(files.path("report").read_text()).text


def test_a_library_that_cannot_be_used_does_not_cost_the_page(tmp_path: Path) -> None:
    files = target_files(write_result(tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no structure files"):
        make_report(files, {}, ReportSettings(plots=False, similar=tmp_path / "empty"))
    assert files.path("report").is_file()
