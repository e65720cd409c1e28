"""The viewer: found without being imported, copied once per folder of results."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from foldcli.logs import logger
from foldcli.outputs.layout import TargetFiles
from foldcli.report import ReportSettings, make
from foldcli.report.data.result import finished_targets, read_result
from foldcli.report.make import make_report, viewer_folder
from foldcli.report.rendering import page_values
from foldcli.report.target_page import target_page
from foldcli.report.viewer import Viewer, copy_viewer, load_viewer
from tests.foldcli.report.outline import Outline
from tests.foldcli.report.results import target_files, write_result

PAGE_ONLY = ReportSettings(page=True, plots=False)


def test_viewer_is_found_without_being_imported() -> None:
    viewer = load_viewer()
    assert viewer.script is not None and viewer.script.stat().st_size > 1_000_000
    assert viewer.version.startswith("5.") and "Permission is hereby granted" in viewer.licence
    assert "molstar_cli" not in sys.modules


def test_missing_viewer_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_result(tmp_path / "result")
    site = tmp_path / "site"
    (site / "molstar_cli-0.0.9.dist-info").mkdir(parents=True)
    (site / "molstar_cli-0.0.9.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: molstar-cli\nVersion: 0.0.9\n"
    )
    newer = site / "molstar_cli/static/molstar"
    for path, reason in (
        ([], "the Python package molstar-cli is not installed"),
        ([str(site)], "molstar-cli 0.0.9 is installed without its molstar_cli/static/molstar"),
        ([str(site)], "molstar-cli 0.0.9 has Mol* 6.0.0"),
    ):
        if "6.0.0" in reason:
            newer.mkdir(parents=True)
            (newer / "VERSION").write_text("6.0.0\n")
            (newer / "LICENSE.molstar").write_text("MIT")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", path)
            viewer = load_viewer.__wrapped__()
        assert reason in viewer.missing and viewer.script is None
        assert copy_viewer(viewer, tmp_path / "viewer") is None and not (tmp_path / "viewer").exists()
        result = read_result(target_files(folder), {})
        outline = Outline(target_page(result, None, "", page_values(result, viewer)))
        assert ("div", "data-missing", viewer.missing) in outline.attributes


def test_missing_viewer_is_reported_once_per_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The processes that make reports say nothing; the one that writes the index does."""
    monkeypatch.setattr(make, "load_viewer", lambda: Viewer(missing="it is not installed here"))
    monkeypatch.setattr(logger, "propagate", True)
    for name in ("a", "b"):
        make_report(TargetFiles(name, write_result(tmp_path / name, name).parent), {}, PAGE_ONLY)
    assert not caplog.messages
    for _ in range(2):
        make.make_index(tmp_path / "a", PAGE_ONLY)
    assert caplog.messages == ["the reports have no cartoon: it is not installed here"]


def test_targets_of_a_run_share_one_copy(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_report(TargetFiles(name, write_result(tmp_path / name, name).parent), {}, PAGE_ONLY)
        page = Outline((tmp_path / name / f"{name}.html").read_text())
        (script,) = [value for _, attribute, value in page.attributes if attribute == "data-script"]
        assert script and (tmp_path / name / script).resolve().parent == tmp_path / "viewer"
    (copy,) = (tmp_path / "viewer").iterdir()
    written = copy.stat().st_mtime_ns
    # reports made again, of the whole run or of one target, use it too
    targets = [*finished_targets(tmp_path), *finished_targets(tmp_path / "a")]
    assert {viewer_folder(files) for files in targets} == {tmp_path / "viewer"}
    make_report(targets[0], {}, PAGE_ONLY)
    assert [path.name for path in (tmp_path / "viewer").iterdir()] == [copy.name]
    assert copy.stat().st_mtime_ns == written
    viewer = load_viewer()
    assert viewer.script is not None
    content = copy.read_text(encoding="utf-8")
    assert content.startswith("/*! Mol*") and "Permission is hereby granted" in content[:2000]
    assert content.endswith(viewer.script.read_text(encoding="utf-8"))


def test_page_of_a_single_target_folder_has_the_viewer_next_to_it(tmp_path: Path) -> None:
    assert viewer_folder(TargetFiles("x", tmp_path / "x", "single_folder")) == tmp_path / "x/viewer"
    assert viewer_folder(TargetFiles("x", tmp_path, "colabfold")) == tmp_path / "foldcli/viewer"


def test_damaged_copies_are_replaced_by_many_writers_at_once(tmp_path: Path) -> None:
    script = tmp_path / "molstar.js"
    script.write_text("var molstar;" * 50_000)
    viewer, folder = Viewer(script, "a */ licence", "5.0.0"), tmp_path / "viewer"
    folder.mkdir()
    path = folder / viewer.file_name
    path.write_text("half of it")
    killed = folder / f".{path.name}.0123.tmp"
    other = folder / f".{path.name}.4567.tmp"
    for file, age in ((killed, 3600), (other, 5)):
        file.write_text("half of it")
        os.utime(file, (time.time() - age,) * 2)
    writers = [threading.Thread(target=copy_viewer, args=(viewer, folder)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_text().endswith(script.read_text())
    # the temporary file of a killed run is removed, that of another run is kept
    assert sorted(file.name for file in folder.iterdir()) == sorted([other.name, path.name])
