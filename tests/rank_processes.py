"""Groups of processes that call functions together, as the ranks of one prediction do.

The processes are forked from one that has imported torch, so starting them takes no time.
"""

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

TIMEOUT = timedelta(seconds=60)
# gloo sometimes closes a connection while busy processes join their group; the group is then formed again
_ATTEMPTS = 3


class RankProcesses:
    """Processes that are the ranks of a gloo group.

    Args:
        size: number of processes.
    """

    def __init__(self, size: int) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            self._start(size)
            try:
                waiting = list(self._pipes)
                while waiting:
                    for pipe in wait(waiting):
                        assert isinstance(pipe, Connection)
                        pipe.recv()
                        waiting.remove(pipe)
                return
            except (EOFError, ConnectionError):
                for process in self.processes:
                    process.kill()
                self.close()
                if attempt == _ATTEMPTS:
                    raise

    def _start(self, size: int) -> None:
        """Start the processes, each of which sends an empty message when it has joined the group."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "tests.rank_processes", "tests.model.parallel.cases"])
        self._folder = tempfile.TemporaryDirectory()
        self._pipes = []
        self.processes: list[Any] = []
        for rank in range(size):
            pipe, theirs = context.Pipe()
            arguments = theirs, rank, size, str(Path(self._folder.name, "store"))
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(pipe)
            self.processes.append(process)

    def call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function of a module in all processes at the same time, and return the results.

        Raises:
            AssertionError: it failed in a process; the message has all tracebacks.
        """
        for pipe in self._pipes:
            pipe.send((function, arguments))
        answers = [pipe.recv() for pipe in self._pipes]
        errors = [f"rank {rank}:\n{error}" for rank, (_, error) in enumerate(answers) if error]
        assert not errors, "\n".join(errors)
        return [result for result, _ in answers]

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self.processes:
            process.join()
        self._folder.cleanup()


def _serve(pipe: Connection, rank: int, size: int, store: str) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(store, size), rank=rank, world_size=size, timeout=TIMEOUT
    )
    pipe.send(None)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = function(*arguments), ""
        except Exception:
            answer = None, traceback.format_exc()
        pipe.send(answer)
