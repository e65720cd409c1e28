"""Tests of sessions: all ranks report a rank that does not fit, fails, stops or stalls."""

import re
import socket

import pytest

from model.parallel.rank_assignment import RankAssignment
from tests.model.parallel import cases
from tests.rank_processes import RankProcesses

HOST = re.escape(socket.gethostname())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("report", "it has failed"),
        ("stop", r"no sign of life for \d+ s"),
        ("stall", r"no progress for \d+ s"),
    ],
)
def test_all_ranks_notice_a_failure_and_one_reports_it(way: str, reason: str) -> None:
    processes = RankProcesses(3)
    answers = processes.call(cases.fail_in_session, free_port(), way)
    processes.close()
    for text, _ in answers:
        assert re.fullmatch(f"rank 1 on {HOST}: {reason}", text), text
    assert [is_reporter for _, is_reporter in answers] == [True, False, False]


def test_ranks_of_different_versions_are_refused() -> None:
    processes = RankProcesses(3)
    messages = processes.call(cases.fail_in_session, free_port(), "mismatch")
    processes.close()
    host = socket.gethostname()
    assert messages == [f"rank 1 on {host} has foldcli 2, rank 0 on {host} has 1"] * 3


def test_assignment_is_read_from_the_environment_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    # a batch system may set the number of processes alone
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert RankAssignment.from_environment() is None
    values = {"RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "9"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert RankAssignment.from_environment() == RankAssignment(3, 4, 1, 2, "a", 9)
