"""Tests of the summary of a run: one line per target, from done.json, and a bounded number of lines."""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.logs import logger, seconds_since_start
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.summary import MAX_LINES, RunSummary, remove_run_leftovers
from foldcli.params.parameters import UNTRAINED
from msa.base.temporary_names import process_table, process_tag


def finish(out: Path, name: str, plddt: float = 80.0, **more: Any) -> None:
    content = {
        "facts": {"residues": 76, "alignment_rows": 24, "search": {"hits": 26}},
        "warnings": [],
        "ranking": [{"plddt": plddt, "ptm": 0.5}, {"plddt": 1.0, "ptm": 0.1}],
        "stages": [
            {"stage": "search", "seconds": 1.5, "peak_memory_bytes": 1},
            {"stage": "predict", "seconds": 2.0, "peak_memory_bytes": 1},
        ],
    } | more
    for rank, model in enumerate(content["ranking"], 1):
        model.update({"rank": rank, "tag": f"m_{rank}", "num_recycles": 3, "seconds": 2.0} | model)
    path = TargetFiles(name, out).path("done")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


class Recorder(logging.Handler):
    """A log handler that keeps its records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    handler, level = Recorder(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def log(summary: RunSummary, failures: Failures, recorder: Recorder) -> list[str]:
    recorder.records.clear()
    summary.log([name for name, _ in failures.failed], failures.path)
    return [line for record in recorder.records for line in record.getMessage().splitlines()]


def test_summary_shows_targets_finished_now_and_before_and_failed_ones(
    tmp_path: Path, recorder: Recorder
) -> None:
    finish(tmp_path, "old")
    summary = RunSummary(tmp_path, "default", Shard(), ["bad", "new", "old"])
    finish(tmp_path, "new", 91.25, facts={"residues": 9, "alignment_rows": 1})
    failures = Failures(tmp_path, Shard())
    failures.add("bad", ValueError("no"))
    seconds = seconds_since_start()
    heading, names, new, old, bad = log(summary, failures, recorder)
    assert heading.startswith("1 finished, 1 finished before, 1 failed, in ")
    assert names.split() == ["target", "residues", "hits", "rows", "pLDDT", "pTM", "seconds", "files"]
    assert new.split() == ["new", "9", "–", "1", "91.2", "0.50", "3.5", f"{tmp_path}/new/"]
    assert old.split() == ["old", "76", "26", "24", "80.0", "0.50", "before", f"{tmp_path}/old/"]
    assert bad == "failed: bad"
    # from the start of the command, imports included
    assert vars(recorder.records[-1])["fields"]["summary"]["seconds"] >= round(seconds, 3) > 0
    assert len({len(line.partition(str(tmp_path))[0]) for line in (new, old)}) == 1
    assert (
        vars(recorder.records[-1])["fields"]["summary"].items()
        >= {"finished": 1, "finished_before": 1, "failed": 1}.items()
    )


def test_summary_of_many_targets_fits_on_a_screen(tmp_path: Path, recorder: Recorder) -> None:
    names = [f"t{i:04d}" for i in range(1000)]
    summary = RunSummary(tmp_path, "default", Shard(), names)
    failures = Failures(tmp_path, Shard())
    for i, name in enumerate(names[:990]):
        finish(tmp_path, name, plddt=i / 10)
    for name in names[990:]:
        failures.add(name, ValueError("no"))
    lines = log(summary, failures, recorder)
    assert len(lines) <= 24
    assert lines[0].startswith("990 finished, 10 failed, in ")
    assert [line.split()[0] for line in lines[2:10]] == [f"t{i:04d}" for i in range(989, 981, -1)]
    assert lines[10] == "… 977 others, pLDDT 0.5 to 98.1, median 49.3"
    assert [line.split()[0] for line in lines[11:16]] == [f"t{i:04d}" for i in range(4, -1, -1)]
    assert lines[-1] == f"failed: 5 others, see {tmp_path / 'failures.jsonl'}"


def test_all_targets_are_listed_in_order_if_they_fit(tmp_path: Path, recorder: Recorder) -> None:
    names = [f"t{i}" for i in range(MAX_LINES)]
    summary = RunSummary(tmp_path, "default", Shard(), names)
    for i, name in enumerate(names):
        finish(tmp_path, name, plddt=float(i))
    lines = log(summary, Failures(tmp_path, Shard()), recorder)
    assert [line.split()[0] for line in lines[2:]] == names


def test_scores_of_untrained_networks_are_not_shown(tmp_path: Path, recorder: Recorder) -> None:
    summary = RunSummary(tmp_path, "default", Shard(), ["demo", "x" * 60])
    finish(tmp_path, "demo", warnings=[UNTRAINED])
    finish(tmp_path, "x" * 60, ranking=[{"plddt": 70.0, "ptm": None}])
    _, _, demo, long, note = log(summary, Failures(tmp_path, Shard()), recorder)
    assert demo.split()[4:6] == ["–", "–"] and note == UNTRAINED
    assert long.split()[0] == "x" * 31 + "…" and long.split()[4:6] == ["70.0", "–"]


def test_complexes_add_a_column(tmp_path: Path, recorder: Recorder) -> None:
    finish(tmp_path, "pair", ranking=[{"plddt": 70.0, "ptm": 0.5, "iptm": 0.456}])
    finish(tmp_path, "chain")
    _, heading, pair, chain = log(
        RunSummary(tmp_path, "default", Shard(), ["pair", "chain"]), Failures(tmp_path, Shard()), recorder
    )
    assert heading.split()[4:7] == ["pLDDT", "pTM", "ipTM"]
    assert pair.split()[4:7] == ["70.0", "0.50", "0.46"] and chain.split()[6] == "–"
    columns = [
        line.index(text) + len(text) for line, text in ((heading, "ipTM"), (pair, "0.46"), (chain, "–"))
    ]
    assert len(set(columns)) == 1


def test_single_failed_target_has_no_summary(tmp_path: Path, recorder: Recorder) -> None:
    failures = Failures(tmp_path, Shard())
    failures.add("bad", ValueError("no"))
    assert log(RunSummary(tmp_path, "default", Shard(), ["bad"]), failures, recorder) == []


def test_temporary_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    ended = f"{process_table()}-{os.getpid()}-1"  # a process with this id, which has another start time
    names = [f".{name}.{ended}.0123.tmp" for name in ("summary.2-of-3.tsv", "failures.jsonl", "index.html")]
    written = f".index.html.{process_tag()}.4567.tmp"
    for name in (*names, written):
        (tmp_path / name).touch()
    remove_run_leftovers(tmp_path)
    assert os.listdir(tmp_path) == [written]


def test_file_has_a_line_per_model_of_the_targets_that_did_not_fail(tmp_path: Path) -> None:
    ranking = [
        {"rank": 1, "tag": "m_1", "plddt": 91.257, "ptm": 0.81234, "iptm": 0.6123,
         "num_recycles": 3, "seconds": 1.5},
        {"rank": 2, "tag": "m_2", "plddt": 50.0, "ptm": None, "num_recycles": 3, "seconds": 2.5},
    ]  # fmt: skip
    for name in ("a", "refused"):
        finish(tmp_path, name, ranking=ranking)
    summary = RunSummary(tmp_path, "default", Shard(2, 3), ["a", "absent", "refused"])
    summary.write(["refused"])
    heading, *lines = (tmp_path / "summary.2-of-3.tsv").read_text().splitlines()
    values = [dict(zip(heading.split("\t"), line.split("\t"), strict=True)) for line in lines]
    columns = ("target", "rank", "plddt", "ptm", "iptm", "ranking_confidence")
    assert [tuple(each[column] for column in columns) for each in values] == [
        ("a", "1", "91.26", "0.812", "0.612", "0.652"),
        ("a", "2", "50.0", "", "", ""),
    ]
    assert values[0]["structure"] == "a/a_unrelaxed_rank_001_m_1.pdb" and values[0]["untrained"] == "no"
    assert summary.models(["refused"])[1]["ptm"] is None
