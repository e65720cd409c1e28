"""Running checks in a process apart: one that crashes or hangs is broken, and the others are still made."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from foldcli.doctor.checks import remedy_for
from foldcli.doctor.outcome import Context, Outcome, Status

_PARTING_SECONDS = 5

_CHILD = """\
import json, sys
told, path, device, params, names = json.loads(sys.argv[1])
sys.path[:] = path
from foldcli.doctor.worker import work
work(told, device, params, names)
"""


def run_checks(
    names: Sequence[str], context: Context, seconds: float, notice: Callable[[str], None]
) -> Iterator[Outcome]:
    """What checks find, as it is found.

    Args:
        names: of the checks; see checks.names_of_checks.
        context: what is asked about.
        seconds: that one check may take.
        notice: told the name of each check as it begins.
    """
    left = list(names)
    while left:
        yield from _made_by_one_process(left, context, seconds, notice)


def _made_by_one_process(
    left: list[str], context: Context, seconds: float, notice: Callable[[str], None]
) -> Iterator[Outcome]:
    """Make checks, each then taken out of `left`, until all are made or the process is no more."""
    with tempfile.TemporaryFile() as said, _process(left, context, said) as (process, stream):
        # if none begins, the process could not even start
        under_way = left[0]
        try:
            for line in _lines(stream, seconds):
                if "begins" in line:
                    under_way = line["begins"]
                    notice(under_way)
                elif "ends" in line:
                    left.remove(line["ends"])
                else:
                    told = line["outcome"]
                    yield Outcome(**told | {"status": Status(told["status"])})
            why = _how_it_ended(process, said)
        except TimeoutError:
            why = f"no answer for {seconds:.0f} s"
    if left:
        name = under_way if under_way in left else left[0]
        left.remove(name)
        yield Outcome(name, Status.BROKEN, why, remedy_for(name))


@contextlib.contextmanager
def _process(
    names: list[str], context: Context, said: IO[bytes]
) -> Iterator[tuple["subprocess.Popen[bytes]", IO[bytes]]]:
    """A process that sees the packages that this one sees, and what it tells; its own words go to a file."""
    reading, writing = os.pipe()
    arguments = json.dumps([writing, sys.path, context.device, str(context.params), names])
    with os.fdopen(reading, "rb", buffering=0) as stream:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[writing],
            )
        finally:
            os.close(writing)
        try:
            yield process, stream
        finally:
            process.kill()
            process.wait()


def _lines(stream: IO[bytes], seconds: float) -> Iterator[dict]:
    """JSON lines until the other side ends.

    Raises:
        TimeoutError: a check takes too long.
    """
    before, until = b"", time.monotonic() + seconds
    while True:
        if not select.select([stream], [], [], max(until - time.monotonic(), 0))[0]:
            raise TimeoutError
        block = stream.read(1 << 16)
        if not block:
            return
        *lines, before = (before + block).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "ends" in told:
                until = time.monotonic() + seconds
            yield told


def _how_it_ended(process: "subprocess.Popen[bytes]", said: IO[bytes]) -> str:
    """How a process that tells no more ended, and the last it said."""
    try:
        status = process.wait(_PARTING_SECONDS)
    except subprocess.TimeoutExpired:
        return "neither went on nor ended"
    said.seek(0)
    lines = [line.strip() for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1]}" if lines else ""
    how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    return how + last
