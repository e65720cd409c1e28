"""The ranks of a prediction other than rank 0, and what all ranks share: jobs, joining, and failures.

Rank 0 (`network.ranks`) sends each job with its sampled features to the other ranks, and all ranks
run the passes together.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import torch

from foldcli.errors import ExitCode, describe
from foldcli.families.registry import check_parameters, find_family, with_params
from foldcli.families.settings import Job, JobSettings, NetworkOptions, Source
from foldcli.fingerprints import fingerprint
from foldcli.logs import logger
from foldcli.pipeline.network.device import NetworkMemory, choose_rank_device, set_up_device
from foldcli.pipeline.network.predictor import RankPredictor
from foldcli.pipeline.network.preloading import take_file
from foldcli.process_state import exit_at_once, set_triton_cache_folder
from foldcli.version import VERSION
from model.errors import OutOfMemory, RankMismatch
from model.parallel.communication import RankGroup
from model.parallel.rank_assignment import RankAssignment
from model.parallel.session import (
    DEAD_SECONDS,
    NothingToPredict,
    RankFailure,
    RankSession,
    connect,
    wait_for_rank,
)

# seconds in which a rank that notices broken communication learns which rank has failed
_BLAME_SECONDS = DEAD_SECONDS + 5.0
# key under which rank 0 stores the value of --params, and the families that it uses
NETWORKS_KEY = "foldcli/networks"


@dataclass(frozen=True)
class RankJob:
    """A job that all ranks run together, as rank 0 announces it.

    Args:
        arrays: shape and dtype of each feature.
    """

    source: int
    seed: int
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
            # torch warns about arrays that are read-only; most are not, and may have hundreds of megabytes
            x = np.empty(shape, dtype) if features is None else np.require(features[name], None, ["C", "W"])
            if x.size:
                group.broadcast(torch.from_numpy(x.reshape(-1).view(np.uint8)), 0, "features")
            result[name] = x
        return result


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
        params, families = json.loads(wait_for_rank(store, NETWORKS_KEY, 0))
        if options.params is None:
            # rank 0 has chosen the default
            options = with_params(options, params)
        sources = find_family(options.params).sources(options, families)
        memory, settings, session = join_ranks(options, sources, threads, assignment, device, store)
    except NothingToPredict:
        return ExitCode.DONE
    except RankMismatch as error:
        logger.debug("%s", error)
        return ExitCode.MISSING
    predictor = RankPredictor(sources, settings, memory, session.group, take_file(sources[0]))
    with ending_all_on_failure(session):
        while (text := session.next_job()) is not None:
            job = RankJob(**json.loads(text))
            # rank 0 reports targets that do not fit
            with suppress(OutOfMemory), session.predicting():
                features = job.broadcast(session.group, None)
                predictor.predict_received(Job(sources[job.source], job.seed, ""), features)
    session.close()
    return ExitCode.DONE


def join_ranks(
    options: NetworkOptions,
    sources: Sequence[Source],
    threads: int,
    assignment: RankAssignment,
    device: str,
    store: torch.distributed.TCPStore,
) -> tuple[NetworkMemory, JobSettings, RankSession]:
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
    session = RankSession(store, assignment, identity, end_run, options.rank_timeout)
    session.open_group(torch.device(device).type)
    return memory, settings, session


@contextmanager
def ending_all_on_failure(session: RankSession) -> Iterator[None]:
    """End all ranks if the block raises an error, and report the reason of the rank that has failed first.

    OutOfMemory is different: it is raised before a prediction, on all ranks.
    """
    try:
        yield
    except OutOfMemory:
        raise
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


def end_run(failure: RankFailure, is_reporter: bool) -> None:
    """End this process because a rank has failed; finished results are kept, and the next run continues."""
    if is_reporter:
        fields = {"rank": failure.rank, "host": failure.host, "exit_code": int(ExitCode.SOME_FAILED)}
        message = f"{failure}; run the same command again to continue"
        logger.error("%s", message, extra={"fields": fields})
    # not sys.exit: the main thread may wait for the failed rank forever
    exit_at_once(ExitCode.SOME_FAILED)
