"""The processes of the other ranks of a host, which rank 0 starts before it imports torch.

They import torch and open their GPUs while rank 0 does the same. Imports are inside
functions here, so that this module itself does not import torch.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from foldcli.errors import describe, exit_code_of
from foldcli.families.settings import NetworkOptions, Source
from foldcli.logs import configure, logger
from foldcli.pipeline.network.preloading import start_worker
from foldcli.process_state import ONE_THREAD
from model.parallel.rank_assignment import RankAssignment
from msa.base.hardware import gpu_numbers
from msa.base.services.service import Service, ServiceEnded

T = TypeVar("T")


class RankProcesses:
    """The other ranks of this host.

    Args:
        threads: CPU threads of all ranks on this host.
        source: parameters of the first network.
    """

    def __init__(self, options: NetworkOptions, threads: int, source: Source) -> None:
        # they write their messages themselves, because rank 0 may end at once
        self.services = [
            Service(f"{__name__}:RankHandler", options, threads, rank, logger.level, environment=ONE_THREAD)
            for rank in range(1, options.gpus_per_target)
        ]
        for service in self.services:
            service.request("prepare", source)
        self._ending = False

    def join(self, port: int, on_end: Callable[[int, int], None]) -> None:
        """Let the processes connect to rank 0.

        Args:
            port: port of rank 0's store.
            on_end: called with the rank and the exit code of processes that end unexpectedly.
        """
        for rank, service in enumerate(self.services, 1):
            served = service.request("serve", port)
            served.add_done_callback(partial(self._report_end, on_end, rank))

    def expect_end(self) -> None:
        """Regard the end of a process as normal from now on."""
        self._ending = True

    def kill(self) -> None:
        """End the processes at once."""
        self.expect_end()
        for service in self.services:
            service.kill()

    def _report_end(self, on_end: Callable[[int, int], None], rank: int, served: "Future[None]") -> None:
        error = served.exception()
        if not self._ending and isinstance(error, ServiceEnded):
            on_end(rank, error.exit_code)


def assignment_on_this_host(ranks: int, rank: int, port: int) -> RankAssignment:
    """Return the assignment of one of several ranks that are all on this host."""
    return RankAssignment(rank, ranks, rank, ranks, "127.0.0.1", port)


class RankHandler:
    """One of the other ranks of this host; its methods end the process at an error.

    Args:
        report: not used.
        threads: CPU threads of all ranks on this host.
    """

    def __init__(
        self, report: Callable[..., None], options: NetworkOptions, threads: int, rank: int, log_level: int
    ) -> None:
        configure()
        logger.setLevel(log_level)
        self._options, self._threads, self._rank = options, threads, rank

    def prepare(self, source: Source) -> None:
        """Import torch, and begin to open the GPU."""
        _end_at_error(lambda: start_worker(_gpu_of(self._rank, self._options.device), source))

    def serve(self, port: int) -> None:
        """Run jobs until rank 0 ends, and end the process."""
        from foldcli.pipeline.network.rank_server import serve_rank  # imports torch

        assignment = assignment_on_this_host(self._options.gpus_per_target, self._rank, port)
        raise SystemExit(_end_at_error(lambda: serve_rank(self._options, self._threads, assignment)))


def _end_at_error(work: Callable[[], T]) -> T:
    """Return a result; report an error and end the process."""
    try:
        return work()
    except Exception as error:
        logger.error("%s", describe(error))
        raise SystemExit(int(exit_code_of(error))) from None


def _gpu_of(rank: int, device: str) -> str:
    """Return the device that a rank probably uses; `device.choose_rank_device` checks it."""
    if device == "cpu":
        return device
    numbers = gpu_numbers(device) if ":" in device else []
    return f"cuda:{numbers[rank] if rank < len(numbers) else rank}"
