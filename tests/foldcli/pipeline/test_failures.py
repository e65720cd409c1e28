"""One failure never stops the others, is always told, and decides the exit code."""

import json
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

import pytest

from foldcli.errors import ExitCode, SomeTargetsFailed, TargetFailed, exit_code_of
from foldcli.inputs.shard import Shard
from foldcli.pipeline.failures import Failures
from msa.errors import InputError, MissingError

ALL = Shard(1, 1)


def work(name: str, item: Exception | None) -> None:
    if item is not None:
        raise item


def test_all_well_removes_an_earlier_list(tmp_path: Path) -> None:
    (tmp_path / "failures.jsonl").write_text("{}\n")
    failures = Failures(tmp_path, ALL)
    failures.run([("a", None)], work)
    failures.finish()
    assert list(tmp_path.iterdir()) == []


def test_the_others_are_done_and_the_failed_are_listed(tmp_path: Path) -> None:
    done: list[str] = []

    def work_and_note(name: str, item: Exception | None) -> None:
        work(name, item)
        done.append(name)

    failures = Failures(tmp_path, ALL)
    failures.add("unreadable.fasta", InputError("empty file", "unreadable.fasta"))
    failures.run([("a", None), ("b", ValueError("odd")), ("c", None)], work_and_note)
    with pytest.raises(SomeTargetsFailed, match="2 of 4"):
        failures.finish()
    assert done == ["a", "c"]
    listed = [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()]
    assert [(entry["target"], entry["exit_code"]) for entry in listed] == [("unreadable.fasta", 3), ("b", 1)]


@pytest.mark.parametrize("ended", [True, False])
def test_what_fails_beside_the_others_counts_as_well(tmp_path: Path, ended: bool) -> None:
    """Whether it ends before the last target is through, or is waited for then."""
    later: dict[str, Future[None]] = {name: Future() for name in "abc"}

    def end() -> None:
        later["a"].set_result(None)
        later["b"].set_exception(OSError("no space left"))

    def begin(name: str, _: None) -> Future[None]:
        if name == "c":
            later["c"].set_result(None)
            if ended:
                end()
            else:
                Thread(target=end).start()
        return later[name]

    failures = Failures(tmp_path, ALL)
    failures.run([(name, None) for name in "abc"], begin)
    with pytest.raises(SomeTargetsFailed, match="1 of 3"):
        failures.finish()
    assert json.loads((tmp_path / "failures.jsonl").read_text())["target"] == "b"


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("x"), 3), (MissingError("x", "y"), 4), (RuntimeError("x"), 1)],
)
def test_a_single_target_keeps_its_own_exit_code(tmp_path: Path, error: Exception, code: int) -> None:
    failures = Failures(tmp_path, ALL)
    failures.run([("a", error)], work)
    with pytest.raises(TargetFailed) as caught:
        failures.finish()
    assert exit_code_of(caught.value) == code


def test_an_interrupt_is_not_a_failure_of_the_target(tmp_path: Path) -> None:
    def interrupted(name: str, item: None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Failures(tmp_path, ALL).run([("a", None)], interrupted)
    assert exit_code_of(KeyboardInterrupt()) is ExitCode.INTERRUPTED


def test_shards_keep_lists_of_their_own(tmp_path: Path) -> None:
    for index in (1, 2):
        failures = Failures(tmp_path, Shard(index, 2))
        failures.run([("a", ValueError("odd"))], work)
        with pytest.raises(TargetFailed):
            failures.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "failures.1-of-2.jsonl",
        "failures.2-of-2.jsonl",
    ]
