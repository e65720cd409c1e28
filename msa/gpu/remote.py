"""GPUs that have a process each, as the process of the search sees them.

The host needs a millisecond or two of Python for each query and GPU. In one process the threads of all GPUs
would share one interpreter, and four GPUs would be no faster than two.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from msa.database.sequence_arrays import SequenceArrays
from msa.gpu.compiling import Progress
from msa.gpu.devices import Gpu, GpuUnavailable
from msa.gpu.gpu_worker import Best, Paths
from msa.gpu.limits import Limits
from msa.gpu.settings import GpuSettings
from msa.gpu.wire import Database, Failure, Status
from msa.search.engine import QueryProfile

_COMMAND = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = sys.argv[2:]; from msa.gpu.process import main; main()",
)
_END_SECONDS = 10.0
"""For a process to end by itself. The driver takes a fraction of a second to give back a GPU's memory."""


def remote_workers(
    gpus: Sequence[int],
    settings: GpuSettings,
    compiling: Progress = lambda done, needed: None,
    command: Sequence[str] = _COMMAND,
) -> list["RemoteWorker"]:
    """Start a process for each GPU; they end with this process, or when nothing refers to them any more.

    Args:
        gpus: their numbers.
        settings: of each.
        compiling: called with how many kernels were compiled and how many have to be, on all together.
        command: starts a process that calls msa.gpu.process.main.
    """
    tally = _Tally(len(gpus), compiling)
    processes = [GpuProcess(gpu, command, partial(tally, place)) for place, gpu in enumerate(gpus)]
    fleet = _Fleet()
    weakref.finalize(fleet, _end, processes)
    shares = [(place, len(gpus)) for place in range(len(gpus))]
    return [
        RemoteWorker(process, settings, share, fleet)
        for process, share in zip(processes, shares, strict=True)
    ]


class RemoteWorker:
    """A GPU with a process of its own; see msa.gpu.gpu_worker.Member.

    Args:
        process: the process, just started.
        settings: see GpuSettings.
        share: see Compiling.
        fleet: held as long as the process is wanted.
    """

    def __init__(
        self, process: "GpuProcess", settings: GpuSettings, share: tuple[int, int], fleet: "_Fleet"
    ) -> None:
        self._process, self._settings, self._fleet = process, settings, fleet
        self._opened = process.ask("open", process.gpu, settings, share)
        self._numbers = count()

    @property
    def gpu(self) -> Gpu:
        """Which it is, once it has been opened.

        Raises:
            GpuUnavailable: it cannot be used.
        """
        gpu: Gpu = self._opened.result()
        return gpu

    @property
    def budget(self) -> int:
        """Bytes of GPU memory that targets may take."""
        return self._settings.budget(self.gpu.free_bytes)

    @property
    def stays(self) -> bool:
        """Whether the targets stay on the GPU, as far as is known."""
        return self._process.status.stays

    @property
    def seconds(self) -> dict[str, float]:
        """What each stage has taken so far."""
        return self._process.status.seconds

    def hold(self, targets: SequenceArrays, part: tuple[int, int]) -> "Future[None]":
        """Have these targets from now on."""
        return self._process.ask("hold", Database.of(targets), part)

    def filter(
        self, batch: Sequence[QueryProfile], limits: Limits, again: bool, stopped: threading.Event
    ) -> "RemoteBatch":
        """Queue the filter of a batch; the process learns from `drain` that it is stopped."""
        number = next(self._numbers)
        best = self._process.ask("filter", number, list(batch), limits, again)
        return RemoteBatch(self._process, number, best)

    def aligning(self, batch: Sequence[QueryProfile], targets: SequenceArrays) -> "RemoteAligning":
        """A batch for other targets than those held."""
        number = next(self._numbers)
        begun = self._process.ask("aligning", number, list(batch), Database.of(targets))
        return RemoteAligning(self._process, number, begun)

    def drain(self) -> "Future[None]":
        """Give up the search under way."""
        return self._process.ask("drain")

    def rest(self) -> "Future[None]":
        """Give back GPU memory that is not needed between searches."""
        return self._process.ask("rest")

    def close(self) -> None:
        """End the process."""
        self._process.hang_up()
        self._process.wait()


class RemoteAligning:
    """A batch on a GPU of another process; see msa.gpu.gpu_worker.Aligning.

    Args:
        process: the process.
        number: the batch's, there.
        begun: the answer to its announcement.
    """

    def __init__(self, process: "GpuProcess", number: int, begun: "Future[Any]") -> None:
        self._process, self._number, self._begun = process, number, begun

    def scores(
        self, owners: np.ndarray, places: np.ndarray, gaps: tuple[int, int], reverse: bool = False
    ) -> "Future[np.ndarray]":
        """Scores of alignments, int32 [n]."""
        return self._process.ask("scores", self._number, owners, places, gaps, reverse)

    def paths(self, kept: np.ndarray) -> "Future[Paths]":
        """The alignments of the pairs at some places of those scored."""
        return self._process.ask("paths", self._number, kept)


class RemoteBatch(RemoteAligning):
    """A batch that is filtered first; see msa.gpu.gpu_worker.Batch."""

    def best(self) -> "Future[Best]":
        """What the filter found."""
        return self._begun


class GpuProcess:
    """A process that runs msa.gpu.process, and what it has been asked.

    Args:
        gpu: number of its GPU.
        command: starts it; the number of its socket and the module search path are added.
        compiling: called with kernels compiled and to be compiled.
    """

    def __init__(self, gpu: int, command: Sequence[str], compiling: Progress) -> None:
        self.gpu, self._compiling = gpu, compiling
        self.status = Status(False, {})
        # one to send, another for what is asked: answers are taken while a request is being sent
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._numbers = count()
        self._asked: dict[int, Future[Any]] = {}
        self._gone: Exception | None = None
        self._socket, other = socket.socketpair()
        with other:
            self.process = subprocess.Popen(
                [*command, str(other.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                # an interrupt from the terminal is for this process alone to answer
                start_new_session=True,
            )
        self._connection = Connection(os.dup(self._socket.fileno()))
        threading.Thread(target=self._read, name=f"answers of GPU {gpu}", daemon=True).start()

    def ask(self, name: str, *arguments: object) -> "Future[Any]":
        """What a request is answered with.

        The result raises GpuUnavailable, naming the GPU, when the process has ended.
        """
        answer: Future[Any] = Future()
        with self._sending:
            with self._lock:
                if self._gone is not None:
                    answer.set_exception(self._gone)
                    return answer
                number = next(self._numbers)
                self._asked[number] = answer
            try:
                self._connection.send((number, name, arguments))
            except ConnectionError:
                # who reads finds the end too, and tells all who wait
                pass
            except BaseException:
                # interrupted: of what was sent in part, the rest would be waited for
                self.hang_up()
                raise
        return answer

    def hang_up(self) -> None:
        """Let the process end."""
        # unless it has ended before
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Until it has ended, by force in the end."""
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._socket.close()

    def _read(self) -> None:
        try:
            while True:
                self._take(self._connection.recv())
        except (EOFError, OSError):
            pass
        finally:
            self._tell_of_the_end()

    def _tell_of_the_end(self) -> None:
        """Answer all that was asked, once the process has ended."""
        self.wait()
        gone = GpuUnavailable(
            f"the process of GPU {self.gpu} has ended: {_status(self.process.returncode)}",
            "What it said stands above; of memory or the driver the machine's log (dmesg) may tell.",
        )
        with self._lock:
            self._gone = gone
            left = list(self._asked.values())
            self._asked.clear()
        for answer in left:
            answer.set_exception(gone)
        with self._sending:
            self._connection.close()

    def _take(self, message: tuple[Any, ...]) -> None:
        """An answer, or progress of compilation."""
        if message[0] is None:
            self._compiling(*message[1:])
            return
        number, failed, value, self.status = message
        with self._lock:
            answer = self._asked.pop(number)
        if failed:
            failure: Failure = value
            answer.set_exception(failure.error(self.gpu))
        else:
            answer.set_result(value)


class _Fleet:
    """What all the workers that were started together hold; their processes end when it goes."""


class _Tally:
    """Progress of all processes as one.

    Args:
        count: of processes.
        progress: told the sums.
    """

    def __init__(self, count: int, progress: Callable[[int, int], None]) -> None:
        self._progress, self._lock = progress, threading.Lock()
        self._each = [(0, 0)] * count

    def __call__(self, place: int, done: int, needed: int) -> None:
        """Progress of one."""
        with self._lock:
            self._each[place] = done, needed
            self._progress(*map(sum, zip(*self._each, strict=True)))


def _end(processes: Sequence[GpuProcess]) -> None:
    """End them side by side."""
    for process in processes:
        process.hang_up()
    for process in processes:
        process.wait()


def _status(code: int) -> str:
    """What the end of a process says: "signal SIGKILL" or "exit status 1"."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
