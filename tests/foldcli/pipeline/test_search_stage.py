"""The search of one target on its way to a structure: which files it leaves, and when it is done again."""

import json
import shutil
from pathlib import Path
from typing import Any

from foldcli.outputs.layout import TargetFiles
from foldcli.pipeline.alignment_request import AlignmentRequest
from foldcli.pipeline.search_stage import SearchStep
from foldcli.pipeline.target_run import TargetRun
from msa.cpu.engine import CpuEngine
from msa.database.build import BuildSettings, build_database
from msa.database.database import TargetDatabase
from msa.io.fasta import FastaRecord
from msa.search.alignment_filter import AlignmentFilter
from msa.search.settings import SearchSettings

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
NEDD8 = "MLIKVKTLTGKEIEIDIEPTDKVERIKERVEEKEGIPPQQQRLIYSGKQMNDEKTAADYKILGGSVLHLVLALRGG"
QUERY = FastaRecord("q", UBIQUITIN)


def step_of(database: TargetDatabase, chosen: AlignmentFilter) -> SearchStep:
    return SearchStep(database, CpuEngine(), AlignmentRequest.of(database, SearchSettings(), chosen))


def test_the_alignment_is_thinned_out_and_the_table_is_not(tmp_path: Path) -> None:
    (tmp_path / "t.fasta").write_text(f">ubq\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n>half\n{UBIQUITIN[:40]}\n")
    build_database([tmp_path / "t.fasta"], tmp_path / "db", BuildSettings(threads=1))
    database = TargetDatabase.open(tmp_path / "db")

    def rows(**how: Any) -> list[str]:
        step = step_of(database, AlignmentFilter(**how))
        target = TargetRun.begin(TargetFiles("q", tmp_path / "out"))
        lines = step.run(target, QUERY).read_text().splitlines()
        assert len((tmp_path / "out/q/q.m8").read_text().splitlines()) == 3
        assert target.facts["search"]["hits"] == 3
        return [line[1:].split("\t")[0] for line in lines if line.startswith(">")]

    assert rows() == ["q", "nedd8", "half"]
    # another choice is another result, although the files are there
    assert rows(cov=0.8) == ["q", "nedd8"]
    assert rows(qid=0.8) == ["q", "half"]
    made = (tmp_path / "out/q/q.a3m").stat().st_mtime_ns
    assert rows(qid=0.8) == ["q", "half"] and (tmp_path / "out/q/q.a3m").stat().st_mtime_ns == made


def test_a_search_is_known_after_the_finished_targets_record_is_gone(tmp_path: Path) -> None:
    """As when a prediction with other settings, before which the record is removed, is interrupted."""
    (tmp_path / "t.fasta").write_text(f">ubq\n{UBIQUITIN}\n>nedd8\n{NEDD8}\n")
    build_database([tmp_path / "t.fasta"], tmp_path / "db", BuildSettings(threads=1))
    step = step_of(TargetDatabase.open(tmp_path / "db"), AlignmentFilter())
    target = TargetRun.begin(TargetFiles("q", tmp_path / "out", "colabfold"))
    a3m = step.run(target, QUERY)
    assert a3m == tmp_path / "out/q.a3m" and a3m.read_text().startswith(f"#{len(UBIQUITIN)}\t1\n>q\n")
    made = a3m.stat().st_mtime_ns
    # finished: the record is all that is left
    target.files.path("done").write_text(json.dumps({"facts": {"search": target.facts["search"]}}))
    target.files.path("finished_mark").touch()
    shutil.rmtree(target.work)
    for _ in range(2):
        again = TargetRun.begin(TargetFiles("q", tmp_path / "out", "colabfold"))
        step.run(again, QUERY)
        assert again.facts["search"] == target.facts["search"] and a3m.stat().st_mtime_ns == made
        again.unfinish()
        assert not target.files.path("done").exists() and not target.files.path("finished_mark").exists()
