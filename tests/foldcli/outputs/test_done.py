"""Tests of done.json: what a later run reads from it, and damaged files."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from foldcli.outputs.done import DoneRecord, FinishedTarget, StageCost, read_done_record, write_archive
from foldcli.outputs.facts import ExpectedAccuracy, Facts, NetworkFacts, SearchFacts
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.outputs.model_files import ModelResult
from foldcli.outputs.viewer_scripts import write_viewer_scripts

RESULT = ModelResult("alphafold2_ptm_model_3_seed_000", 71.25, 0.5, 3, 1.5, "abc")
RECORD = DoneRecord(
    "q",
    "f" * 64,
    {"query": "MQIF"},
    "auto",
    [RESULT],
    [StageCost("predict", 1.5, 1000)],
    facts=Facts(residues=4),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "q.done.json"
    RECORD.write(path)
    return path


def test_written_record_is_read_back(path: Path) -> None:
    finished = FinishedTarget.read(path)
    assert finished == FinishedTarget("f" * 64, {"query": "MQIF"}, "auto", [RESULT], Facts(residues=4))
    assert FinishedTarget.read(path.with_name("none.json")) is None


def test_expected_accuracy_of_older_versions_and_none_are_read(path: Path) -> None:
    for expected in (None, {"lddt": 0.81, "low": 0.79, "high": 0.84, "plddt_error": 0.05}):
        facts = {"residues": 4, "search": {"hits": 3}, "network": {"note": "", "expected_lddt": expected}}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"facts": facts}))
        finished = FinishedTarget.read(path)
        accuracy = None if expected is None else ExpectedAccuracy(lddt=0.81, plddt_error=0.05)
        assert finished is not None
        assert finished.facts == Facts(
            residues=4, search=SearchFacts(3), network=NetworkFacts(expected_lddt=accuracy)
        )


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", "null", '{"format": 1}', '{"format": 2}', "\ud800"])
def test_damaged_file_is_a_value_error(path: Path, content: str) -> None:
    path.write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(ValueError):
        FinishedTarget.read(path)


@pytest.mark.parametrize("key", ["fingerprint", "settings", "rank_by", "ranking", "facts"])
@pytest.mark.parametrize("value", [None, 3, [], [3], [{"tag": "x"}]])
def test_wrong_type_is_a_value_error(path: Path, key: str, value: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError):
        FinishedTarget.read(path)


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("ranking", [{"plddt": "high"}]),
        ("ranking", [{"seconds": float("inf")}]),
        ("stages", [{"seconds": None}]),
        ("stages", {}),
        ("warnings", [1]),
        ("facts", {"residues": "4"}),
        ("facts", {"search": {"hits": True}}),
        ("facts", {"network": {"expected_lddt": 81}}),
        ("facts", {"network": {"expected_lddt": {"percentile_10": "low"}}}),
        ("facts", {"network": {"expected_lddt": {"lddt": "x"}}}),
        ("facts", {"templates": [{"identity": "high"}]}),
        ("facts", {"states": [{"models": []}]}),
        ("settings", {"header": 1}),
        ("versions", 2),
    ],
)
def test_wrong_types_in_sections_are_a_value_error(path: Path, section: str, value: Any) -> None:
    record = json.loads(path.read_text())
    assert read_done_record(path) == record
    path.write_text(json.dumps(record | {section: value}).replace("Infinity", "1e999"))
    with pytest.raises(ValueError):
        read_done_record(path)


def test_files_that_do_not_exist_are_listed(path: Path, tmp_path: Path) -> None:
    files = TargetFiles("q", tmp_path, "single_folder")
    finished = FinishedTarget.read(path)
    assert finished is not None
    expected = RESULT.paths(files, 1)
    assert finished.missing_files(files) == expected
    expected[0].touch()
    assert finished.missing_files(files) == expected[1:]


@pytest.mark.parametrize("layout", ["default", "colabfold"])
def test_scripts_and_pages_in_the_archive_find_the_structures_next_to_them(
    layout: LayoutName, tmp_path: Path
) -> None:
    files = TargetFiles("q", tmp_path, layout)
    structure = files.model_path("pdb", 1, RESULT.tag)
    structure.parent.mkdir(parents=True, exist_ok=True)
    structure.touch()
    write_viewer_scripts(files, [RESULT])
    written = files.path("chimerax").read_text()
    way = os.path.relpath(structure, files.folder)
    files.path("report").write_text(f'<a href="{way}"><script src="../viewer/a.js">')
    write_archive(files, "{}")
    with zipfile.ZipFile(files.path("archive")) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert texts.keys() == {"q.cxc", "q.pml", "q.html", "q.done.json", structure.name}
    assert texts["q.cxc"].startswith(f"open {structure.name}\n")
    assert texts["q.pml"].startswith(f"load {structure.name},")
    assert texts["q.html"] == f'<a href="{structure.name}"><script src="../viewer/a.js">'
    assert files.path("chimerax").read_text() == written and f"open {way}\n" in written
