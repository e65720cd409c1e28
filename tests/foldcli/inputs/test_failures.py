"""Tests of failed targets: the others continue, the failure is listed, and the exit code shows it."""

import errno
import json
from pathlib import Path
from threading import Thread

import pytest

from foldcli.errors import ExitCode, SomeTargetsFailed, TargetFailed, exit_code_of
from foldcli.inputs.failures import Failures
from foldcli.inputs.shard import Shard
from msa.base.errors import InputError, MissingError

ALL = Shard(1, 1)


def work(name: str, item: Exception | None) -> None:
    if item is not None:
        raise item


def test_success_removes_the_list_of_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / "failures.jsonl").write_text("{}\n")
    failures = Failures(tmp_path, ALL)
    failures.run([("a", None)], work)
    failures.finish()
    assert list(tmp_path.iterdir()) == []


def test_other_targets_continue_and_failed_ones_are_listed(tmp_path: Path) -> None:
    done: list[str] = []

    def work_and_record(name: str, item: Exception | None) -> None:
        work(name, item)
        done.append(name)

    failures = Failures(tmp_path, ALL)
    failures.add("unreadable.fasta", InputError("empty file", "unreadable.fasta"))
    failures.run([("a", None), ("b", ValueError("odd")), ("c", None)], work_and_record)
    with pytest.raises(SomeTargetsFailed, match="2 of 4"):
        failures.finish()
    assert done == ["a", "c"]
    listed = [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()]
    assert [(entry["target"], entry["exit_code"]) for entry in listed] == [("unreadable.fasta", 3), ("b", 1)]


def test_error_of_the_machine_ends_the_run(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "no space left on device", "out/a.pdb")
    failures = Failures(tmp_path, ALL)
    failures.expect(1)
    with pytest.raises(OSError, match="no space left"):
        failures.record("a", full)
    with pytest.raises(OSError, match="no space left"):
        failures.run([("b", full), ("c", None)], work)
    assert failures.failed == []


def test_failure_recorded_by_another_thread_is_listed(tmp_path: Path) -> None:
    failures = Failures(tmp_path, ALL)
    failures.expect(3)
    thread = Thread(target=failures.record, args=("b", OSError("no space left")))
    thread.start()
    thread.join()
    with pytest.raises(SomeTargetsFailed, match="1 of 3"):
        failures.finish()
    assert json.loads((tmp_path / "failures.jsonl").read_text())["target"] == "b"


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("x"), 3), (MissingError("x", "y"), 4), (RuntimeError("x"), 1)],
)
def test_single_failed_target_keeps_its_exit_code(tmp_path: Path, error: Exception, code: int) -> None:
    failures = Failures(tmp_path, ALL)
    failures.run([("a", error)], work)
    with pytest.raises(TargetFailed) as caught:
        failures.finish()
    assert exit_code_of(caught.value) == code


def test_interrupt_is_not_a_failed_target(tmp_path: Path) -> None:
    def interrupted(name: str, item: None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Failures(tmp_path, ALL).run([("a", None)], interrupted)
    assert exit_code_of(KeyboardInterrupt()) is ExitCode.INTERRUPTED


def test_each_shard_has_its_own_list(tmp_path: Path) -> None:
    for index in (1, 2):
        failures = Failures(tmp_path, Shard(index, 2))
        failures.run([("a", ValueError("odd"))], work)
        with pytest.raises(SomeTargetsFailed, match="1 of 1 targets"):  # even if a shard has one target only
            failures.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "failures.1-of-2.jsonl",
        "failures.2-of-2.jsonl",
    ]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("bad", "t1"), "t1: bad"),
        (InputError("bad", "t1", 3, 4), "t1:3:4: bad"),
        (InputError("t10 and t1 differ"), "t1: t10 and t1 differ"),
        (InputError("bad", "t1x.a3m"), "t1: t1x.a3m: bad"),
        (InputError("bad", "t1.a3m"), "t1: t1.a3m: bad"),
    ],
)
def test_failure_names_its_target(
    error: Exception,
    line: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foldcli.logs.logger.propagate", True)
    Failures(tmp_path, ALL).add("t1", error)
    assert caplog.messages == [line]
