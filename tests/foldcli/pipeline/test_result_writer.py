"""Calls that are made beside their caller: in order, a bounded number of them, and nothing is lost."""

from threading import Event, Thread

import pytest

from foldcli.pipeline.result_writer import MOST, Beside, settled


def test_the_caller_goes_on_and_the_calls_keep_their_order() -> None:
    beside, may_end, told = Beside(True), Event(), []
    first = beside.begin(lambda: (may_end.wait(60), told.append("first")))
    second = beside.begin(lambda: told.append("second"))
    assert not first.done() and not second.done()
    may_end.set()
    beside.finish()
    assert told == ["first", "second"] and second.done()


def test_one_too_many_waits_for_the_first() -> None:
    beside, may_end = Beside(True), Event()
    for _ in range(MOST):
        beside.begin(lambda: may_end.wait(60))
    last = Thread(target=lambda: beside.begin(lambda: None))
    last.start()
    last.join(0.1)
    assert last.is_alive()
    may_end.set()
    last.join(60)
    assert not last.is_alive()
    beside.finish()


@pytest.mark.parametrize("in_background", [True, False])
def test_an_error_is_the_results_and_the_next_are_made(in_background: bool) -> None:
    beside = Beside(in_background)

    def fail() -> None:
        raise OSError("no space left")

    failed, made = beside.begin(fail), beside.begin(lambda: 3)
    beside.finish()
    assert made.result() == settled(3).result() == 3
    with pytest.raises(OSError, match="no space left"):
        failed.result()


def test_without_a_thread_all_is_done_at_once_and_an_interrupt_ends_it() -> None:
    beside = Beside(False)
    assert beside.begin(lambda: 3).done()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        beside.begin(interrupted)
