"""The processes in which a run predicts, chosen by its devices, ranks and targets."""

from collections.abc import Sequence
from dataclasses import dataclass

from foldcli.families.settings import NetworkOptions
from foldcli.logs import logger
from model.parallel.rank_assignment import RankAssignment
from msa.base.hardware import available_cores, has_nvidia_hardware


@dataclass(frozen=True)
class Processes:
    """The processes in which a run predicts and samples; none is started yet.

    Args:
        in_workers: whether worker processes predict instead of this one.
        worker_devices: their devices; fewer than those of the run if there are few targets.
        rank_threads: CPU threads of all ranks on this host, to start the others in processes; None if there
            are none, or torchrun has started them.
        sampling: number of processes that sample features; 0 to sample in this process.
        has_work: whether the run will work on a target.
    """

    in_workers: bool = False
    worker_devices: Sequence[str] = ()
    rank_threads: int | None = None
    sampling: int = 0
    has_work: bool = True

    @classmethod
    def choose(
        cls,
        options: NetworkOptions,
        assignment: RankAssignment | None,
        num_targets: int,
        threads: int,
        has_work: bool,
        dry_run: bool,
    ) -> "Processes":
        """Choose the processes of a run.

        Args:
            options: options of the network.
            assignment: the first rank if torchrun has started several, else None.
            num_targets: number of targets.
            threads: value of `--threads`.
            has_work: whether the run will work on a target.
            dry_run: whether nothing is predicted.
        """
        devices, ranks = options.devices, options.gpus_per_target
        in_workers = predicts_in_workers(len(devices), ranks, assignment)
        if unused := unused_devices(devices, ranks, assignment):
            use = "used only for targets that do not fit the others" if in_workers else "not used"
            logger.warning(
                "%s: %s, because each target takes %d of %d devices (--gpus-per-target)",
                ", ".join(unused), use, ranks, len(devices),
            )  # fmt: skip
        worker_devices = devices[: min(len(devices) // ranks, num_targets) * ranks] if in_workers else ()
        starts_ranks = ranks > 1 and assignment is None and not (dry_run or in_workers)
        sampling = sampling_processes(options.device, len(worker_devices) // ranks) if has_work else 0
        return cls(in_workers, worker_devices, threads if starts_ranks else None, sampling, has_work)


def predicts_in_workers(devices: int, ranks: int, assignment: RankAssignment | None) -> bool:
    """Return True if there are enough devices for several targets at a time, each in worker processes."""
    return devices > 1 and (ranks == 1 or (assignment is None and devices >= 2 * ranks))


def sampling_processes(device: str, workers: int) -> int:
    """Return the number of processes that sample features: two for each worker if there are enough cores.

    One samples for the only GPU of a run; on a CPU, the process that predicts samples, too.
    """
    if not workers:
        return int(device != "cpu" and has_nvidia_hardware())
    return workers * (2 if available_cores() >= 4 * workers else 1)


def unused_devices(devices: Sequence[str], ranks: int, assignment: RankAssignment | None) -> Sequence[str]:
    """Return the listed devices that are left over when each target takes several of them."""
    if len(devices) < ranks or assignment is not None:
        return ()
    return devices[len(devices) // ranks * ranks :]
