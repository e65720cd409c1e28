"""Predictions that several processes, called ranks, compute together (`--gpus-per-target`, torchrun).

Rank 0 alone reads and writes. For each job it sends the sampled features to the other ranks, and all ranks
plan and run the passes together. Rank 0 starts the others (`network.rank_processes`) unless torchrun has.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch

from foldcli.errors import ExitCode, Terminated
from foldcli.families.protocols import AnyJob, SharedNetwork
from foldcli.families.registry import family_of
from foldcli.families.settings import JobSettings, NetworkOptions
from foldcli.logs import logger
from foldcli.params.parameters import UNTRAINED
from foldcli.pipeline.network.device import NetworkMemory, choose_device, choose_rank_device, set_up_device
from foldcli.pipeline.network.predictor import Predictor, RankPredictor
from foldcli.pipeline.network.rank_processes import RankProcesses, assignment_on_this_host
from foldcli.pipeline.network.rank_server import (
    NETWORKS_KEY,
    RankJob,
    end_run,
    ending_all_on_failure,
    join_ranks,
)
from foldcli.pipeline.network.start import Startup
from model.errors import RankMismatch
from model.parallel.rank_assignment import RankAssignment
from model.parallel.session import RankFailure, RankSession, connect
from msa.base.errors import MissingError
from msa.base.services.service import exit_reason


class FirstRankPredictor(RankPredictor):
    """The predictor of rank 0 of a run, which gives its jobs to the other ranks.

    Args:
        startup: from `foldcli.pipeline.network.start.start`.
    """

    def __init__(
        self,
        startup: Startup,
        settings: JobSettings,
        memory: NetworkMemory,
        session: RankSession,
        processes: RankProcesses | None,
    ) -> None:
        super().__init__(
            startup.sources, settings, memory, session.group, startup.arrays, startup.compilation
        )
        self._session, self._processes = session, processes

    def _predict_together(self, network: SharedNetwork, work: AnyJob) -> object:
        arrays = network.arrays(work.sample)
        rank_job = RankJob(
            self.sources.index(work.job.source),
            work.job.seed,
            {name: (x.shape, x.dtype.str) for name, x in arrays.items()},
        )
        with ending_all_on_failure(self._session), self._session.predicting():
            self._session.announce(json.dumps(asdict(rank_job)))
            rank_job.broadcast(self.group, arrays)
            return super()._predict_together(network, work)

    def close(self) -> None:
        """End the other ranks."""
        if self._processes is not None:
            self._processes.expect_end()
        self._session.close()

    def abandon(self) -> None:
        """End the other ranks in the middle of a prediction, without messages of theirs."""
        if self._processes is not None:
            self._processes.kill()
        self._session.abandon()


@contextmanager
def open_predictor(
    options: NetworkOptions,
    startup: Startup,
    threads: int,
    assignment: RankAssignment | None,
    runs_elsewhere: bool,
) -> Iterator[Predictor]:
    """Create the predictor of a run, and the other ranks if there are several; they end with the context.

    Unless an error ends the context, it waits until all kernels are compiled, so that later runs find them.

    Args:
        options: options of the network.
        startup: from `foldcli.pipeline.network.start.start`.
        threads: CPU threads on this host.
        assignment: see `create_first_rank_predictor`.
        runs_elsewhere: whether this predictor runs no jobs, because workers do, or in a dry run.
    """
    if options.gpus_per_target == 1 or runs_elsewhere:
        single = create_predictor(options, startup, threads)
        yield single
        single.wait_for_kernels()
        return
    predictor = create_first_rank_predictor(options, startup, threads, assignment)
    close = predictor.close
    try:
        yield predictor
        predictor.wait_for_kernels()
    except (KeyboardInterrupt, Terminated):
        close = predictor.abandon
        raise
    finally:
        close()


def create_predictor(options: NetworkOptions, startup: Startup, threads: int) -> Predictor:
    """Create the predictor of a run on the device that the options name.

    Args:
        options: options of the network.
        startup: from `foldcli.pipeline.network.start.start`.
        threads: CPU threads of torch.

    Raises:
        MissingError: the GPU, its bf16 or the requested kernels do not exist.
    """
    family = family_of(startup.sources[0])
    if not family.has_network:
        return Predictor(startup.sources, options.predict, NetworkMemory("cpu"))
    torch.set_num_threads(threads)
    device = choose_device(options.device)
    memory, settings = set_up_device(options, device, options.gpus_per_target)
    if any(source.is_untrained for source in startup.sources):
        logger.warning("%s", UNTRAINED)
    return Predictor(startup.sources, settings, memory, startup.arrays, startup.compilation, startup.networks)


def create_first_rank_predictor(
    options: NetworkOptions, startup: Startup, threads: int, assignment: RankAssignment | None
) -> FirstRankPredictor:
    """Create the predictor of rank 0.

    Args:
        options: options of the network; the number of ranks is `gpus_per_target`.
        startup: from `foldcli.pipeline.network.start.start`.
        threads: CPU threads of all ranks on this host.
        assignment: the rank that torchrun has assigned to this process; None if `startup` has started the
            other ranks on this host.

    Raises:
        MissingError: there are not enough GPUs, see `create_predictor`, or the ranks do not fit together.
    """
    if assignment is None:
        assignment = assignment_on_this_host(options.gpus_per_target, 0, 0)
    device = choose_rank_device(options.device, assignment.local_rank, assignment.local_size)
    store = connect(assignment)
    # the other ranks do not read the targets, and choose no default
    families = dict.fromkeys(source.family for source in startup.sources)
    store.set(NETWORKS_KEY, json.dumps([options.params, list(families)]))
    processes = startup.rank_processes
    if processes is not None:
        processes.join(store.port, _end_run_without)
    try:
        memory, settings, session = join_ranks(options, startup.sources, threads, assignment, device, store)
    except RankMismatch as error:
        remedy = "Use the same version, parameters and options on all hosts, and start all ranks."
        raise MissingError(str(error), remedy) from error
    if any(source.is_untrained for source in startup.sources):
        logger.warning("%s", UNTRAINED)
    return FirstRankPredictor(startup, settings, memory, session, processes)


def _end_run_without(rank: int, exit_code: int) -> None:
    """End this process because that of a rank on this host has ended."""
    # a rank with this exit code has reported the reason itself
    if exit_code != ExitCode.SOME_FAILED:
        end_run(RankFailure(rank, socket.gethostname(), exit_reason(exit_code)), True)
