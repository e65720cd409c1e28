"""Tests of merging the tables of array jobs."""

import json
import os
from pathlib import Path

import pytest

from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from foldcli.outputs.layout import LayoutName, TargetFiles
from foldcli.outputs.summary import RunSummary
from foldcli.report.again import merge_failures, merge_summaries
from msa.base.errors import InputError


def finish(out: Path, name: str, layout: LayoutName = "default", time: float | None = None) -> None:
    """Write the done.json of a target with two models."""
    model = {"plddt": 80.0, "ptm": 0.5, "num_recycles": 3, "seconds": 1.0}
    content = {
        "facts": {"residues": 76, "alignment_rows": 24},
        "warnings": [],
        "ranking": [model | {"rank": rank, "tag": f"model_{rank}"} for rank in (1, 2)],
    }
    path = TargetFiles(name, out, layout).path("done")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    if time is not None:
        os.utime(path, (time, time))


def fail(out: Path, name: str, shard: Shard, error: str = "broken", time: float | None = None) -> None:
    """Write a shard's file with one failure."""
    failures = Failures(out, shard)
    failures.expect(2)
    failures.record(name, InputError(error))
    with pytest.raises(Exception, match="failed"):
        failures.finish()
    if time is not None:
        os.utime(failures.path, (time, time))


def failed_targets(out: Path) -> dict[str, str]:
    lines = (out / "failures.jsonl").read_text().splitlines()
    return {entry["target"]: entry["error"] for entry in map(json.loads, lines)}


@pytest.mark.parametrize("layout", ["default", "colabfold"])
def test_merged_summary_equals_that_of_one_run(tmp_path: Path, layout: LayoutName) -> None:
    names = ["a", "b", "c", "d.e"]
    summaries = [RunSummary(tmp_path, layout, Shard(k, 3), names[k - 1 :: 3]) for k in (1, 2, 3)]
    for name in names:
        finish(tmp_path, name, layout)
    for summary in summaries:
        summary.write([])
    assert len(list(tmp_path.glob("summary*.tsv"))) == 3
    merged = merge_summaries(tmp_path)
    assert merged is not None and (merged.targets, merged.rows) == (4, 8)
    text = merged.path.read_text()
    merged.path.unlink()
    RunSummary(tmp_path, layout, Shard(), names).write([])
    assert (tmp_path / "summary.tsv").read_text() == text
    rows = [row for path in tmp_path.glob("summary.*-of-*.tsv") for row in path.read_text().splitlines()[1:]]
    assert sorted(text.splitlines()[1:]) == sorted(rows)


def test_failures_of_all_shards_are_merged(tmp_path: Path) -> None:
    fail(tmp_path, "b", Shard(2, 3))
    fail(tmp_path, "a", Shard(1, 3), "first", time=1000)
    fail(tmp_path, "a", Shard(1, 4), "second", time=2000)
    merged = merge_failures(tmp_path)
    assert merged is not None and merged.targets == 2
    assert failed_targets(tmp_path) == {"a": "second", "b": "broken"}
    before = merged.path.read_bytes()
    merge_failures(tmp_path)
    assert merged.path.read_bytes() == before


def test_failures_of_targets_finished_since_are_left_out(tmp_path: Path) -> None:
    fail(tmp_path, "a", Shard(1, 2), time=1000)
    fail(tmp_path, "b", Shard(2, 2), time=1000)
    finish(tmp_path, "a", time=2000)
    # an earlier result of a target that failed since
    finish(tmp_path, "b", time=500)
    merge_failures(tmp_path)
    assert list(failed_targets(tmp_path)) == ["b"]
    # the shard is run again, and removes its file
    (tmp_path / "failures.2-of-2.jsonl").unlink()
    finish(tmp_path, "b")
    assert merge_failures(tmp_path) is None
    assert not (tmp_path / "failures.jsonl").exists()


def test_damaged_failures_file_is_reported_with_its_line(tmp_path: Path) -> None:
    fail(tmp_path, "a", Shard(1, 2))
    (tmp_path / "failures.2-of-2.jsonl").write_bytes(b'{"target": "b", "error": "no"}\n{"target"\n')
    with pytest.raises(InputError, match=r"failures\.2-of-2\.jsonl:2: "):
        merge_failures(tmp_path)
    assert not (tmp_path / "failures.jsonl").exists()


def test_folder_without_targets_has_no_tables(tmp_path: Path) -> None:
    assert merge_summaries(tmp_path) is None and merge_failures(tmp_path) is None
    assert not list(tmp_path.iterdir())
