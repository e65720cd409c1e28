"""The processes of the other ranks of a host, which rank 0 starts before it imports torch.

They import torch, open their GPUs and read the parameters while rank 0 does the same. Imports are inside
functions here, so that this module itself does not import torch.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from foldcli.errors import describe, exit_code_of
from foldcli.families.settings import NetworkOptions
from foldcli.logs import configure, logger
from foldcli.pipeline.network.preloading import start_worker
from foldcli.process_state import set_up_worker_process
from model.parallel.rank_assignment import RankAssignment
from msa.gpu.device.hardware import gpu_numbers


class RankProcesses:
    """The other ranks of this host.

    Args:
        options: options of the network.
        threads: CPU threads of all ranks on this host.
        source: parameters of the first network.
    """

    def __init__(self, options: NetworkOptions, threads: int, source: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes, self._ports = [], list[Connection]()
        for rank in range(1, options.gpus_per_target):
            receiver, sender = context.Pipe(duplex=False)
            arguments = os.getpid(), options, threads, rank, source, receiver, logger.level
            process = context.Process(target=_serve_spawned, args=arguments, daemon=True)
            process.start()
            receiver.close()
            self._processes.append(process)
            self._ports.append(sender)
        self._ending = threading.Event()

    def join(self, port: int, on_end: Callable[[int, int | None], None]) -> None:
        """Let the processes connect to rank 0.

        Args:
            port: port of rank 0's store.
            on_end: called in a thread with the rank and the exit code of processes that end unexpectedly.
        """
        for connection in self._ports:
            try:
                connection.send(port)
            except OSError:
                # the process has ended, which the thread notices
                continue
        threading.Thread(target=self._watch, args=(on_end,), name="ranks", daemon=True).start()

    def expect_end(self) -> None:
        """Regard the end of a process as normal from now on."""
        self._ending.set()

    def kill(self) -> None:
        """End the processes at once."""
        self.expect_end()
        for process in self._processes:
            process.kill()
            process.join()

    def _watch(self, on_end: Callable[[int, int | None], None]) -> None:
        ended = wait([process.sentinel for process in self._processes])
        if self._ending.is_set():
            return
        for rank, process in enumerate(self._processes, 1):
            if process.sentinel in ended:
                process.join()
                on_end(rank, process.exitcode)


def assignment_on_this_host(ranks: int, rank: int, port: int) -> RankAssignment:
    """Return the assignment of one of several ranks that are all on this host.

    Args:
        ranks: number of ranks.
        rank: index of the process.
        port: see `RankAssignment`.
    """
    return RankAssignment(rank, ranks, rank, ranks, "127.0.0.1", port)


def _serve_spawned(
    parent: int,
    options: NetworkOptions,
    threads: int,
    rank: int,
    source: Any,
    port: Connection,
    log_level: int,
) -> None:
    """Run one of the other ranks of this host in a process of its own."""
    set_up_worker_process(parent, lambda number, frame: os._exit(128 + number))
    configure()
    logger.setLevel(log_level)
    try:
        start_worker(_gpu_of(rank, options.device), source)
        from foldcli.pipeline.network.rank_server import serve_rank

        try:
            assignment = assignment_on_this_host(options.gpus_per_target, rank, port.recv())
        except EOFError:
            # rank 0 has failed before it sent its port
            os._exit(0)
        code = serve_rank(options, threads, assignment)
    except Exception as error:
        logger.error("%s", describe(error))
        code = exit_code_of(error)
    os._exit(code)


def _gpu_of(rank: int, device: str) -> str:
    """Return the device that a rank probably uses; `device.choose_rank_device` checks it."""
    if device == "cpu":
        return device
    numbers = gpu_numbers(device) if ":" in device else []
    return f"cuda:{numbers[rank] if rank < len(numbers) else rank}"
