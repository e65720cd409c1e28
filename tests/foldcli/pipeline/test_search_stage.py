"""Tests of the search of a target of `fold`: its files, and when it is searched again."""

import json
import shutil
from pathlib import Path
from typing import Any

from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.pipeline.search_stage import SearchStage, search_target
from foldcli.pipeline.searcher import LocalSearcher
from foldcli.pipeline.settings import AlignmentSettings
from foldcli.pipeline.target_run import TargetRun
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.search.settings import AlignmentFilter, SearchSettings

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
QUERY = FastaRecord("q", UBIQUITIN)


def build(folder: Path, fasta: str) -> TargetDatabase:
    (folder / "t.fasta").write_text(fasta)
    build_database([folder / "t.fasta"], folder / "db", BuildSettings(threads=1))
    return TargetDatabase.open(folder / "db")


def make_stage(database: TargetDatabase, row_filter: AlignmentFilter) -> SearchStage:
    return SearchStage(LocalSearcher(database, CpuEngine()), AlignmentSettings(SearchSettings(), row_filter))


def make_target(folder: Path, layout: LayoutName = "default") -> TargetRun:
    return TargetRun(TargetFiles("q", folder / "out", layout))


def test_filter_removes_rows_of_the_alignment_and_not_of_the_table(tmp_path: Path) -> None:
    database = build(tmp_path, f">ubq\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n>half\n{UBIQUITIN[:40]}\n")

    def rows(**filters: Any) -> list[str]:
        target = make_target(tmp_path)
        a3m = search_target(make_stage(database, AlignmentFilter(**filters)), target, QUERY)
        assert len((tmp_path / "out/q/q.m8").read_text().splitlines()) == 3
        assert target.facts["search"]["hits"] == 3
        lines = a3m.read_text().splitlines()
        return [line[1:].split("\t")[0] for line in lines if line.startswith(">")]

    assert rows() == ["q", "nedd8", "half"]
    # with another filter the existing files are replaced
    assert rows(cov=0.8) == ["q", "nedd8"]
    assert rows(qid=0.8) == ["q", "half"]
    modified = (tmp_path / "out/q/q.a3m").stat().st_mtime_ns
    assert rows(qid=0.8) == ["q", "half"] and (tmp_path / "out/q/q.a3m").stat().st_mtime_ns == modified


def test_search_is_reused_after_done_json_was_removed(tmp_path: Path) -> None:
    """done.json is removed before a prediction with other settings, which may be interrupted."""
    database = build(tmp_path, f">ubq\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n")
    stage = make_stage(database, AlignmentFilter())
    target = make_target(tmp_path, "colabfold")
    a3m = search_target(stage, target, QUERY)
    assert a3m == tmp_path / "out/q.a3m" and a3m.read_text().startswith(f"#{len(UBIQUITIN)}\t1\n>q\n")
    modified = a3m.stat().st_mtime_ns
    # a finished target has its record in done.json only
    target.files.path("done").write_text(json.dumps({"facts": {"search": target.facts["search"]}}))
    target.files.path("finished_mark").touch()
    shutil.rmtree(target.files.work_folder)
    for _ in range(2):
        again = make_target(tmp_path, "colabfold")
        search_target(stage, again, QUERY)
        assert again.facts["search"] == target.facts["search"] and a3m.stat().st_mtime_ns == modified
        again.mark_unfinished()
        assert not target.files.path("done").exists() and not target.files.path("finished_mark").exists()
