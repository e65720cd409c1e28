"""Processes that work on items: each item's outcome is its own, and nothing is left when the caller stops."""

import logging
import os
import signal
from pathlib import Path

import pytest

from foldcli.logs import logger
from foldcli.pipeline.worker_pool import Outcome, RemoteTraceback, in_processes

KILLED = "__import__('os').kill(__import__('os').getpid(), 9)"
WARNED = "__import__('foldcli.logs').logs.logger.warning('of %s', 'three')"


def test_no_item_takes_another_with_it() -> None:
    items = ["1 + 1", "1 / 0", KILLED, "2 + 2", "3 + 3"]
    outcomes = sorted(in_processes(eval, items, 2), key=lambda outcome: outcome.index)
    assert [outcome.item for outcome in outcomes] == items
    assert [outcome.result for outcome in outcomes] == [2, None, None, 4, 6]
    with pytest.raises(ZeroDivisionError) as divided:
        outcomes[1].get()
    assert isinstance(divided.value.__cause__, RemoteTraceback) and "line 1" in str(divided.value.__cause__)
    with pytest.raises(ChildProcessError, match="killed by SIGKILL"):
        outcomes[2].get()


def test_errors_that_no_pipe_can_carry_keep_their_words() -> None:
    raising = "def f():\n from msa.errors import MissingError\n raise MissingError('no GPU', 'buy one')\nf()"
    (outcome,) = in_processes(exec, [raising], 1)
    with pytest.raises(RuntimeError, match="MissingError: no GPU"):
        outcome.get()


def test_what_is_logged_comes_with_the_outcome(caplog: pytest.LogCaptureFixture) -> None:
    logger.propagate = True
    outcomes: list[Outcome[str, None]] = list(in_processes(eval, [WARNED, "1"], 1))
    assert caplog.messages == []
    for outcome in outcomes:
        outcome.get()
    assert caplog.record_tuples == [("foldcli", logging.WARNING, "of three")]


def test_each_has_one_thread_and_the_first_process_alone_is_interrupted() -> None:
    environ = "__import__('os').environ['OMP_NUM_THREADS']"
    handler = "__import__('signal').getsignal(__import__('signal').SIGINT) == 1"
    results = {outcome.result for outcome in in_processes(eval, [environ, handler], 1)}
    assert signal.SIG_IGN == 1 and results == {"1", True}


def test_the_busy_end_and_put_away_what_they_write(tmp_path: Path) -> None:
    ready, never = tmp_path / "ready", tmp_path / "never"
    os.mkfifo(ready)
    os.mkfifo(never)
    blocked = (
        "def f():\n"
        " from msa.io.atomic import atomic_write\n"
        f" with atomic_write({str(tmp_path / 'out' / 'file')!r}) as stream:\n"
        "  stream.write('half')\n"
        f"  open({str(ready)!r}, 'w').close()\n"
        f"  open({str(never)!r}).read()\n"
        "f()"
    )
    outcomes = in_processes(exec, ["pass", blocked], 2)
    assert next(outcomes).index == 0
    ready.read_text()  # opens when the other has begun to write
    assert list((tmp_path / "out").iterdir())
    outcomes.close()  # type: ignore[attr-defined]
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(OSError, match="No such device"):
        os.open(never, os.O_WRONLY | os.O_NONBLOCK)  # nobody is there to read it
