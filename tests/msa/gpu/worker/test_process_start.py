"""Processes of GPUs that are started before they are needed."""

import pytest

from msa.gpu.worker.process_start import start_ahead, take_process

pytestmark = pytest.mark.simulator


def test_process_started_ahead_is_taken_once() -> None:
    start_ahead(5)
    start_ahead(6)
    first, other, second = take_process(5), take_process(6), take_process(5)
    try:
        assert len({started.process.pid for started in (first, other, second)}) == 3
        numbers = [list(map(str, started.process.args))[4] for started in (first, other, second)]
        assert numbers == ["5", "6", "5"]
    finally:
        for started in (first, other, second):
            started.socket.close()
    # they end when their socket is closed
    assert [started.process.wait(60) for started in (first, other, second)] == [0, 0, 0]
