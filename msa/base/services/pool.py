"""Services that call functions."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from msa.base.services.requests import dump_request
from msa.base.services.service import Service, close_all

R = TypeVar("R")
T = TypeVar("T")


class Calls:
    """A handler that calls functions.

    Args:
        report: not used.
        warm_up: called first, for example to import libraries.
    """

    def __init__(self, report: Callable[..., None], warm_up: Callable[[], object] | None = None) -> None:
        if warm_up is not None:
            warm_up()

    def call(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function of a module."""
        return function(*arguments)


CALLS = f"{__name__}:{Calls.__name__}"
"""The entry of a service that calls functions: its method "call" takes a function and its arguments."""


class ServicePool:
    """Processes that call functions, each one at a time.

    A process that dies (killed, or a crash in compiled code) fails only its call, and is replaced.

    Args:
        processes: largest number of processes, at least 1.
        warm_up: see `Calls`. If it is given, `start` or the first call starts all processes, otherwise each
            starts with its first call.
        options: see `Service`.
    """

    def __init__(self, processes: int, warm_up: Callable[[], object] | None = None, **options: Any) -> None:
        # the future result of a call, and the call as bytes; None ends a process
        self._calls: SimpleQueue[tuple[Future[Any], bytes] | None] = SimpleQueue()
        self._processes, self._warm_up = processes, warm_up
        self._start_service = partial(Service, CALLS, warm_up, **options)
        self._threads: list[threading.Thread] = []
        self._services: dict[int, Service] = {}
        self._terminated, self._lock = False, threading.Lock()

    def start(self) -> None:
        """Start the processes, unless they have been started or ended; may be called by any thread."""
        with self._lock:
            if self._threads or self._terminated:
                return
            for index in range(self._processes):
                thread = threading.Thread(target=self._work, args=(index,), daemon=True)
                thread.start()
                # `close` of another thread joins only those that have started
                self._threads.append(thread)

    def submit(self, function: Callable[[T], R], item: T) -> "Future[R]":
        """Queue the call `function(item)`; return its future result.

        Args:
            function: a function of a module; it, the item and the result are pickled.
            item: its argument.
        """
        # as it is now, because the caller may change it
        request = dump_request("call", function, item)
        self.start()
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()
        self._calls.put((future, request))
        return future

    def close(self) -> None:
        """Finish all queued calls, and end the processes."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def terminate(self) -> None:
        """End the processes at once; they remove their temporary files, and all calls fail."""
        with self._lock:
            self._terminated, services = True, list(self._services.values())
        close_all(services)

    def _work(self, index: int) -> None:
        """Make calls in a process of its own; runs in a thread."""
        if self._warm_up is not None:
            # the first call fails with the same error
            with contextlib.suppress(Exception):
                self._service(index)
        while (item := self._calls.get()) is not None:
            future, request = item
            try:
                result = self._service(index).send(request).result()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            # freed before waiting for the next call
            del item, future, request
        if index in self._services:
            self._services[index].close()

    def _service(self, index: int) -> Service:
        """Return the process of a thread, starting one if there is none or it has ended."""
        with self._lock:
            if self._terminated:
                raise ChildProcessError("the workers have been ended")
            service = self._services.get(index)
            if service is None or service.has_ended:
                service = self._services[index] = self._start_service()
            return service
