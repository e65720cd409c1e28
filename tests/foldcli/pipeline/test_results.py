"""Test of the result stage: its end by a second interrupt."""

import os
import signal
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from foldcli.pipeline.results import ResultStage
from foldcli.pipeline.worker_pool import WorkerPool
from foldcli.report import ReportSettings


def test_second_interrupt_ends_the_writing(tmp_path: Path) -> None:
    fifo, failed = tmp_path / "fifo", []
    os.mkfifo(fifo)

    def fail(target: Any, error: BaseException) -> None:
        failed.append(error)

    def ignore(*arguments: Any) -> None:
        pass

    report = ReportSettings(False, False)
    stage = ResultStage(WorkerPool(1), 1, "plddt", report, False, None, ignore, ignore, fail)
    with pytest.raises(KeyboardInterrupt), stage:
        # opens the pipe, which blocks until there is a writer, and then waits for its end
        stage._submit(stage.pool, Path.read_bytes, fifo, lambda future: fail(None, future.exception()))
        writer = os.open(fifo, os.O_WRONLY)
        Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
    assert not failed
