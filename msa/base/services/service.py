"""Work in another process: a `Service` sends requests to it, and `process.main` answers them there.

The first frame names the entry, a function that builds the handler of all requests; each further one names a
method of the handler. A method may return a value; a `Future`, which is answered when it is done, so that
requests overlap; or a generator, whose items are sent one by one. Log messages and progress are relayed.

The process ends when its end of the socket is closed, or the process that started it ends. Signals that stop
a run reach all its processes; this one ignores them, because its owner decides when it ends.

In an executor of `concurrent.futures`, a request cannot choose the process that holds its GPU or database, no
messages come back before the result, and the death of one process fails the requests of all.

Neither this room nor its imports need numpy.
"""

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import IO

from msa.base.services import process as serving
from msa.base.services.requests import Requests

# seconds that a process has to end by itself; a driver needs a fraction of a second to free GPU memory
GRACE_SECONDS = 10.0


class ServiceEnded(ChildProcessError):
    """The end of a process before it has answered a request.

    Args:
        exit_code: negative if a signal has killed it.
    """

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(exit_code)

    def __str__(self) -> str:
        return exit_reason(self.exit_code)


def exit_reason(code: int) -> str:
    """Return how a process has ended, given its exit code in the form of `subprocess`."""
    if code < 0:
        return f"its process was killed by {signal_name(-code)}"
    return f"its process ended with exit code {code}"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as "SIGKILL", or its number if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class Service:
    """A process that answers requests, in any order; see `Requests` for its methods.

    It ends with this process, with `close`, or when this object is collected. If it cannot be started, the
    constructor raises OSError.

    Args:
        entry: "module:function"; the process calls it with a function that reports progress, and
            `arguments`, and the object that it returns has the methods of the requests.
        arguments: pickled.
        ended: returns the error of requests that the process has not answered, from its exit code.
        on_progress: see `Requests`.
        logger: gets the messages that the process sends to the logger of the same name.
        environment: variables that the process gets in addition to those of this one.
        pass_fds: file descriptors that the process inherits.
        output: for its standard output and error, see `subprocess`; by default there is no output, and
            errors go where those of this process do.
    """

    def __init__(
        self,
        entry: str,
        *arguments: object,
        ended: Callable[[int], Exception] = ServiceEnded,
        on_progress: Callable[..., None] | None = None,
        logger: logging.Logger | None = None,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        output: IO[bytes] | int | None = None,
    ) -> None:
        own, other = socket.socketpair()
        start = partial(
            subprocess.Popen,
            _command(other.fileno()),
            env=None if environment is None else os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if output is None else output,
            stderr=output,
            pass_fds=[other.fileno(), *pass_fds],
            # interrupts from the terminal are handled by this process alone
            start_new_session=True,
        )
        started: Future[subprocess.Popen[bytes]] = Future()
        requests = Requests(own, lambda: ended(started.result().returncode), on_progress, logger)
        # The system kills the process when the thread that started it ends, for example because this process
        # was killed. A worker of a killed run could otherwise write files while the next run continues.
        self._thread = threading.Thread(
            target=_attend, args=(start, started, requests), name=f"service {entry}", daemon=True
        )
        self._thread.start()
        try:
            self.process = started.result()
        except BaseException:
            requests.hang_up()
            raise
        finally:
            other.close()
        self.request, self.send, self.stream = requests.request, requests.send, requests.stream
        self.hang_up = weakref.finalize(self, requests.hang_up)
        self._requests = requests
        name, level = ("", 0) if logger is None else (logger.name, logger.level)
        first = pickle.dumps((entry, arguments, name, level), pickle.HIGHEST_PROTOCOL)
        requests.begin(first)

    @property
    def has_ended(self) -> bool:
        """Return True if the process has ended, and no request is pending any more."""
        return self._requests.has_ended

    def close(self) -> None:
        """Let the process remove its temporary files and end; kill it if it does not."""
        self.hang_up()
        self.wait()

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self.process.kill()
        self.close()

    def wait(self) -> None:
        """Wait for the end of the process."""
        # callbacks of requests may call this
        if threading.current_thread() is not self._thread:
            self._thread.join()


def close_all(services: Iterable[Service]) -> None:
    """Let several processes end at the same time; see `Service.close`."""
    services = list(services)
    for service in services:
        service.hang_up()
    for service in services:
        service.wait()


def _command(descriptor: int) -> list[str]:
    """Return the command of a process that serves a socket, with this one's search path and bytecode."""
    state = f"sys.path[:] = {sys.path!r}; sys.pycache_prefix = {sys.pycache_prefix!r}; "
    state += f"sys.dont_write_bytecode = {sys.dont_write_bytecode!r}"
    code = f"import sys; {state}; from {serving.__name__} import main; main()"
    return [sys.executable, "-c", code, str(descriptor), str(os.getpid())]


def _attend(
    start: "Callable[[], subprocess.Popen[bytes]]",
    started: "Future[subprocess.Popen[bytes]]",
    requests: Requests,
) -> None:
    """Start a process, handle its answers, and wait for its end."""
    try:
        process = start()
    except OSError as error:
        started.set_exception(error)
        requests.close()
        return
    started.set_result(process)
    try:
        requests.receive()
    finally:
        requests.hang_up()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        requests.fail_pending()
