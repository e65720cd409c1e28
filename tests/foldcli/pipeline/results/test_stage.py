"""Tests of the result stage: its end by interrupts."""

import os
import signal
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from foldcli.inputs.alignment_targets import AlignmentTarget
from foldcli.outputs.layout import TargetFiles
from foldcli.outputs.target import TargetRun
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.pipeline.results.stage import ResultStage
from foldcli.report import ReportSettings


def ignore(*arguments: Any) -> None:
    pass


class InterruptedModel:
    """A model that is being pickled when the user presses Ctrl-C."""

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def test_interrupt_while_a_model_is_queued_ends_the_stage(tmp_path: Path) -> None:
    target = TargetRun(TargetFiles("q", tmp_path), AlignmentTarget("q", ("q.a3m",)))
    pool = WorkerPool(1)
    stage = ResultStage(pool, 1, "plddt", ReportSettings(False, False), False, None, ignore, ignore, ignore)
    with pytest.raises(KeyboardInterrupt), stage:
        stage.add_model(target, InterruptedModel())  # type: ignore[arg-type]


def test_second_interrupt_ends_the_writing(tmp_path: Path) -> None:
    fifo, failed = tmp_path / "fifo", []
    os.mkfifo(fifo)

    def fail(target: Any, error: BaseException) -> None:
        failed.append(error)

    report = ReportSettings(False, False)
    stage = ResultStage(WorkerPool(1), 1, "plddt", report, False, None, ignore, ignore, fail)
    with pytest.raises(KeyboardInterrupt), stage:
        # opens the pipe, which blocks until there is a writer, and then waits for its end
        stage._follow(stage.pool.submit(Path.read_bytes, fifo), lambda future: fail(None, future.exception()))
        writer = os.open(fifo, os.O_WRONLY)
        Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
    assert not failed
