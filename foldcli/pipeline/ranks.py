"""Predictions that several processes, called ranks, compute together (`--gpus-per-target`, torchrun).

Rank 0 alone reads, plans and writes. For each job it sends the sampled features to the other ranks, and all
ranks run the passes together. Rank 0 starts the others unless torchrun has.
"""

import json
import logging
import multiprocessing
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait

import numpy as np
import torch

from foldcli.errors import ExitCode, describe, exit_code_of
from foldcli.logs import configure, logger
from foldcli.params.parameters import UNTRAINED, NetworkKind, ParameterSource, find_parameters
from foldcli.params.verify import check_parameters
from foldcli.pipeline.device import NetworkMemory, choose_rank_device
from foldcli.pipeline.identity import Job, fingerprint
from foldcli.pipeline.network_loading import load_network, recycling_settings
from foldcli.pipeline.predictor import (
    NetworkJob,
    Predictor,
    RankPredictor,
    create_predictor,
    set_up_device,
)
from foldcli.pipeline.settings import NetworkOptions, PredictSettings
from foldcli.pipeline.startup import Startup
from foldcli.pipeline.template_copies import TemplateCopier
from foldcli.pipeline.worker_pool import exit_reason
from foldcli.process_state import set_triton_cache_folder, set_up_worker_process
from foldcli.version import VERSION
from model.alphafold import AlphaFold
from model.errors import OutOfMemory, RankMismatch
from model.memory_plan import CPU_CHUNK_ELEMENTS
from model.parallel.communication import RankGroup
from model.parallel.network import ParallelAlphaFold
from model.parallel.rank_assignment import RankAssignment
from model.parallel.session import (
    DEAD_SECONDS,
    NothingToPredict,
    RankFailure,
    RankSession,
    connect,
    wait_for_rank,
)
from model.prediction import Prediction
from model.recycling import predict
from msa.errors import MissingError

# seconds in which a rank that notices broken communication learns which rank has failed
_BLAME_SECONDS = DEAD_SECONDS + 5.0
# key under which rank 0 stores the kinds of networks that it uses
_KINDS_KEY = "foldcli/network kinds"


class RankedPredictor(RankPredictor):
    """The predictor of rank 0 of a run, which gives its jobs to the other ranks.

    Args:
        startup: from `foldcli.pipeline.startup.start`.
        settings: settings of the predictions.
        memory: the device of this rank.
        session: the ranks.
        processes: the other ranks that this process has started.
    """

    def __init__(
        self,
        startup: Startup,
        settings: PredictSettings,
        memory: NetworkMemory,
        session: RankSession,
        processes: "_RankProcesses | None",
    ) -> None:
        super().__init__(
            startup.sources, settings, memory, session.group, startup.arrays, startup.compilation
        )
        self._session, self._processes = session, processes

    def _start(self, work: NetworkJob) -> Callable[[], Prediction]:
        plan = self._plan(work)
        rank_job = _RankJob(
            self.sources.index(work.job.source),
            work.recycling.seed,
            CPU_CHUNK_ELEMENTS if plan is None else plan.chunk_elements,
            {name: (x.shape, x.dtype.str) for name, x in work.sample.items()},
        )
        with _ending_all_on_failure(self._session), self._session.predicting():
            self._session.announce(json.dumps(asdict(rank_job)))
            rank_job.broadcast(self.group, work.sample)
            prediction = work.predict(rank_job.chunk_elements)
        return lambda: prediction

    def close(self) -> None:
        """End the other ranks."""
        if self._processes is not None:
            self._processes.expect_end()
        self._session.close()


@dataclass(frozen=True)
class _RankJob:
    """A job that all ranks run together, as rank 0 announces it.

    Args:
        source: index of the parameters.
        seed: see `Job`.
        chunk_elements: see `model.memory_plan.MemoryPlan`.
        arrays: shape and dtype of each feature.
    """

    source: int
    seed: int
    chunk_elements: int
    arrays: Mapping[str, tuple[Sequence[int], str]]

    def broadcast(self, group: RankGroup, features: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        """Send the features from rank 0 to all ranks.

        Args:
            group: the ranks.
            features: the features on rank 0, None on the others.

        Returns:
            The features, on every rank.
        """
        result = {}
        for name, (shape, dtype) in self.arrays.items():
            # copied, because torch warns about arrays that are read-only
            x = np.empty(shape, dtype) if features is None else np.array(features[name], order="C")
            if x.size:
                group.broadcast(torch.from_numpy(x.reshape(-1).view(np.uint8)), 0, "features")
            result[name] = x
        return result


@contextmanager
def open_predictor(
    options: NetworkOptions,
    startup: Startup,
    threads: int,
    assignment: RankAssignment | None,
    runs_elsewhere: bool,
) -> Iterator[Predictor | TemplateCopier]:
    """Create the predictor of a run, and the other ranks if there are several; they end with the context.

    Args:
        options: options of the network.
        startup: from `foldcli.pipeline.startup.start`.
        threads: CPU threads on this host.
        assignment: see `create_ranked_predictor`.
        runs_elsewhere: whether this predictor runs no jobs, because workers do, or in a dry run.

    Raises:
        MissingError: see `create_predictor` and `create_ranked_predictor`.
    """
    if options.gpus_per_target == 1 or runs_elsewhere:
        yield create_predictor(options, startup, threads)
        return
    predictor = create_ranked_predictor(options, startup, threads, assignment)
    try:
        yield predictor
    finally:
        predictor.close()


def create_ranked_predictor(
    options: NetworkOptions, startup: Startup, threads: int, assignment: RankAssignment | None
) -> RankedPredictor:
    """Create the predictor of rank 0.

    Args:
        options: options of the network; the number of ranks is `gpus_per_target`.
        startup: from `foldcli.pipeline.startup.start`.
        threads: CPU threads of all ranks on this host.
        assignment: the rank that torchrun has assigned to this process; None to start the other ranks here.

    Raises:
        MissingError: there are not enough GPUs, see `create_predictor`, or the ranks do not fit together.
    """
    processes = None
    own_processes = assignment is None
    if assignment is None:
        assignment = _assignment_on_this_host(options, 0, 0)
    device = choose_rank_device(options.device, assignment.local_rank, assignment.local_size)
    store = connect(assignment)
    # the other ranks do not read the targets
    kinds = dict.fromkeys("multimer" if source.is_multimer else "monomer" for source in startup.sources)
    store.set(_KINDS_KEY, json.dumps(list(kinds)))
    if own_processes:
        processes = _RankProcesses(options, threads, store.port)
    try:
        memory, settings, session = _join(options, startup.sources, threads, assignment, device, store)
    except RankMismatch as error:
        remedy = "Use the same version, parameters and options on all hosts, and start all ranks."
        raise MissingError(str(error), remedy) from error
    if any(source.is_untrained for source in startup.sources):
        logger.warning("%s", UNTRAINED)
    return RankedPredictor(startup, settings, memory, session, processes)


def serve_rank(options: NetworkOptions, threads: int, assignment: RankAssignment) -> int:
    """Run the jobs that rank 0 announces until it ends.

    Args:
        options: options of the network.
        threads: CPU threads of all ranks on this host.
        assignment: the rank of this process.

    Returns:
        The exit code. Errors are left to rank 0 to report.
    """
    set_triton_cache_folder()
    device = choose_rank_device(options.device, assignment.local_rank, assignment.local_size)
    store = connect(assignment)
    try:
        kinds = _network_kinds(store)
        sources = find_parameters(options.params, options.models, options.model_type, kinds)
        memory, settings, session = _join(options, sources, threads, assignment, device, store)
    except NothingToPredict:
        return ExitCode.DONE
    except RankMismatch as error:
        logger.debug("%s", error)
        return ExitCode.MISSING
    networks: dict[ParameterSource, AlphaFold] = {}
    with _ending_all_on_failure(session):
        while (text := session.next_job()) is not None:
            job = _RankJob(**json.loads(text))
            source = sources[job.source]
            with session.predicting():
                features = job.broadcast(session.group, None)
                if source not in networks:
                    network = load_network(source, settings, memory.device)
                    networks[source] = ParallelAlphaFold(network, session.group)
                recycling = recycling_settings(settings, Job(source, job.seed, ""))
                predict(networks[source], features, recycling, None, job.chunk_elements)
    session.close()
    return ExitCode.DONE


def _network_kinds(store: torch.distributed.TCPStore) -> list[NetworkKind]:
    """Return the kinds of networks that rank 0 uses; raises the exceptions of `wait_for_rank`."""
    kinds: list[NetworkKind] = json.loads(wait_for_rank(store, _KINDS_KEY, 0))
    return kinds


def _assignment_on_this_host(options: NetworkOptions, rank: int, port: int) -> RankAssignment:
    return RankAssignment(rank, options.gpus_per_target, rank, options.gpus_per_target, "127.0.0.1", port)


def _join(
    options: NetworkOptions,
    sources: list[ParameterSource],
    threads: int,
    assignment: RankAssignment,
    device: str,
    store: torch.distributed.TCPStore,
) -> tuple[NetworkMemory, PredictSettings, RankSession]:
    """Set up the device of this process, and join the other ranks.

    Raises:
        MissingError: see `set_up_device`.
        RankMismatch: the ranks do not fit together.
    """
    torch.set_num_threads(max(1, threads // assignment.local_size))
    memory, settings = set_up_device(options, device, assignment.size)
    if device != "cpu":
        torch.cuda.set_device(device)
    identity = {
        "foldcli": VERSION,
        "torch": torch.__version__,
        "parameters with hash": fingerprint(check_parameters(sources))[:16],
        "precision": settings.precision,
        "kernels": settings.kernels,
        "settings with hash": fingerprint(settings)[:16],
        "devices of type": torch.device(device).type,
    }
    session = RankSession(store, assignment, identity, _end_run, options.rank_timeout)
    session.open_group(torch.device(device).type)
    return memory, settings, session


@contextmanager
def _ending_all_on_failure(session: RankSession) -> Iterator[None]:
    """End all ranks if the block raises an error, and report the reason of the rank that has failed first."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        session.report(f"not enough memory: {str(error).partition('. ')[0]}")
        session.wait_for_failure(_BLAME_SECONDS)
        raise OutOfMemory(str(error)) from None
    except Exception as error:
        # the failure of one rank breaks the communication of the others
        if not session.wait_for_failure(_BLAME_SECONDS):
            session.report(describe(error).splitlines()[0])
            session.wait_for_failure(_BLAME_SECONDS)
        raise


def _end_run(failure: RankFailure, is_reporter: bool) -> None:
    """End this process because a rank has failed; finished results are kept, and the next run continues."""
    if is_reporter:
        fields = {"rank": failure.rank, "host": failure.host, "exit_code": int(ExitCode.SOME_FAILED)}
        message = f"{failure}; run the same command again to continue"
        logger.error("%s", message, extra={"fields": fields})
    logging.shutdown()
    # not sys.exit: the main thread may wait for the failed rank forever
    os._exit(ExitCode.SOME_FAILED)


class _RankProcesses:
    """The other ranks of this host, started by rank 0; the end of one of them ends the run.

    Args:
        options: options of the network.
        threads: CPU threads of all ranks on this host.
        port: port of the store.
    """

    def __init__(self, options: NetworkOptions, threads: int, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes = []
        for rank in range(1, options.gpus_per_target):
            assignment = _assignment_on_this_host(options, rank, port)
            arguments = os.getpid(), options, threads, assignment, logger.level
            process = context.Process(target=_serve_spawned, args=arguments, daemon=True)
            process.start()
            self._processes.append(process)
        self._ending = threading.Event()
        threading.Thread(target=self._watch, name="ranks", daemon=True).start()

    def expect_end(self) -> None:
        """Regard the end of a process as normal from now on."""
        self._ending.set()

    def _watch(self) -> None:
        ended = wait([process.sentinel for process in self._processes])
        if self._ending.is_set():
            return
        for rank, process in enumerate(self._processes, 1):
            if process.sentinel in ended:
                process.join()
                # a rank with this exit code has reported the reason itself
                if process.exitcode != ExitCode.SOME_FAILED:
                    _end_run(RankFailure(rank, socket.gethostname(), exit_reason(process.exitcode)), True)


def _serve_spawned(
    parent: int, options: NetworkOptions, threads: int, assignment: RankAssignment, log_level: int
) -> None:
    """Run one of the other ranks of this host in a process of its own."""
    set_up_worker_process(parent, lambda number, frame: os._exit(128 + number))
    configure()
    logger.setLevel(log_level)
    try:
        code = serve_rank(options, threads, assignment)
    except Exception as error:
        logger.error("%s", describe(error))
        code = exit_code_of(error)
    os._exit(code)
