"""Options of predictions that are divided among several processes, the ranks."""

from collections.abc import Sequence

import click

from foldcli.options.common import available_cores, combine, number_option
from model.parallel.rank_assignment import RankAssignment

rank_options = combine(
    number_option(
        "--gpus-per-target",
        numbers=click.IntRange(1),
        default=1,
        help="For long proteins: divide each prediction among N GPUs of this host, or with --device cpu "
        "among N processes. With torchrun, N is its number of processes; see docs/parallel.md.",
    ),
    number_option(
        "--rank-timeout",
        numbers=click.FloatRange(0, min_open=True),
        default=600.0,
        metavar="SECONDS",
        help="End the run if the processes of --gpus-per-target make no progress for this long.",
    ),
)


def number_of_ranks(gpus_per_target: int, assignment: RankAssignment | None, unshared: str | None) -> int:
    """Return the number of processes that predict each target together.

    Args:
        gpus_per_target: value of the option.
        assignment: the rank that torchrun has assigned to this process, or None.
        unshared: see `foldcli.families.base.Family`.

    Raises:
        click.UsageError: torchrun has started another number of processes, or there is no network to run.
    """
    if assignment is not None and gpus_per_target not in (1, assignment.size):
        raise click.UsageError(
            f"--gpus-per-target {gpus_per_target}: torchrun has started {assignment.size} processes."
        )
    ranks = gpus_per_target if assignment is None else assignment.size
    if ranks > 1 and unshared is not None:
        raise click.UsageError(unshared)
    return ranks


def predicts_in_workers(devices: int, ranks: int, assignment: RankAssignment | None) -> bool:
    """Return True if there are enough devices for several targets at a time, each in worker processes.

    Args:
        devices: number of devices that `--device` lists.
        ranks: result of `number_of_ranks`.
        assignment: the rank that torchrun has assigned to this process, or None.
    """
    return devices > 1 and (ranks == 1 or (assignment is None and devices >= 2 * ranks))


def sampling_processes(device: str, workers: int) -> int:
    """Return the number of processes that sample features: two for each worker if there are enough cores.

    One samples for the only GPU of a run; on a CPU, the process that predicts samples, too.
    """
    if not workers:
        return 0 if device == "cpu" else 1
    return workers * (2 if available_cores() >= 4 * workers else 1)


def unused_devices(devices: Sequence[str], ranks: int, assignment: RankAssignment | None) -> Sequence[str]:
    """Return the listed devices that are left over when each target takes several of them."""
    if len(devices) < ranks or assignment is not None:
        return ()
    return devices[len(devices) // ranks * ranks :]
