"""The start of a prediction: choose the processes, find the parameters, and import torch meanwhile.

Importing torch takes longer than everything else before the network's first block, and mostly waits for
files. While it is imported, `start` lets, in this order,

    processes compile the kernels that the cache lacks      `kernels`
    a worker for each device import torch                   `device_workers`, if there are several devices
    processes prepare the sampling of features              `prepare.sampling_process`
    the other ranks of this host import torch               `rank_processes`, with --gpus-per-target
    threads open the GPU and read the first network's file  `preloading`, if this process predicts

The search process has been started before (`search.search_process`), and the GPU is warmed up afterwards
(`Predictor.warm_up`).
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from foldcli.families.protocols import Network
from foldcli.families.registry import family_of, find_family
from foldcli.families.settings import NetworkOptions, Source
from foldcli.logs import log_time_since_start, logger
from foldcli.options.ranks import predicts_in_workers, sampling_processes, unused_devices
from foldcli.pipeline.network.kernels import KernelCompilation, compile_for_run
from foldcli.pipeline.network.preloading import start_preloading, start_worker
from foldcli.pipeline.network.rank_processes import RankProcesses
from foldcli.pipeline.prepare.sampling_process import SamplingProcesses, prepare_features
from foldcli.pipeline.processes.background import run_in_background
from foldcli.pipeline.processes.worker_pool import WORKER_OPTIONS
from foldcli.process_state import set_triton_cache_folder
from model.parallel.rank_assignment import RankAssignment
from msa.base.hardware import gpu_numbers
from msa.base.services.pool import CALLS
from msa.base.services.service import Service


@dataclass(frozen=True)
class Startup:
    """The parameters of a run, and the background tasks that load or compile what it needs.

    Args:
        sources: models in the order in which they run.
        arrays: future arrays of the first source's file; None if no task reads them.
        compilation: future compilation of the kernels; None if there is none.
        worker_services: processes in which workers will predict, in the order of the devices.
        rank_processes: the other ranks of this host; None if there are none.
        sampling: processes that sample the features of all predictions; None to sample in this process.
        networks: loaded networks by their sources, to which the predictor adds those that it loads.
    """

    sources: list[Source] = field(default_factory=list)
    arrays: "Future[object] | None" = None
    compilation: "Future[KernelCompilation | None] | None" = None
    worker_services: tuple[Service, ...] = ()
    rank_processes: RankProcesses | None = None
    sampling: SamplingProcesses | None = None
    networks: dict[Source, Network] = field(default_factory=dict)


@dataclass(frozen=True)
class Processes:
    """The processes in which a run predicts and samples; none is started yet.

    Args:
        in_workers: whether worker processes predict instead of this one.
        worker_devices: their devices; fewer than those of the run if there are few targets.
        rank_threads: CPU threads of all ranks on this host, to start the others in processes; None if there
            are none, or torchrun has started them.
        sampling: number of processes that sample features; 0 to sample in this process.
    """

    in_workers: bool = False
    worker_devices: Sequence[str] = ()
    rank_threads: int | None = None
    sampling: int = 0

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
            assignment: the rank that torchrun has assigned to this process, or None.
            num_targets: number of targets.
            threads: value of `--threads`.
            has_work: whether a target is not finished.
            dry_run: whether nothing is predicted.
        """
        devices, ranks = options.devices, options.gpus_per_target
        in_workers = predicts_in_workers(len(devices), ranks, assignment)
        _warn_of_unused_devices(devices, ranks, assignment, in_workers)
        worker_devices = devices[: min(len(devices) // ranks, num_targets) * ranks] if in_workers else ()
        starts_ranks = ranks > 1 and assignment is None and not (dry_run or in_workers)
        # other ranks get their features from the first one
        samples = has_work and (assignment is None or assignment.rank == 0)
        sampling = sampling_processes(options.device, len(worker_devices) // ranks) if samples else 0
        return cls(in_workers, worker_devices, threads if starts_ranks else None, sampling)


def _warn_of_unused_devices(
    devices: Sequence[str], ranks: int, assignment: RankAssignment | None, in_workers: bool
) -> None:
    """Warn of listed devices that are left over when each target takes several of them."""
    if unused := unused_devices(devices, ranks, assignment):
        use = "used only for targets that do not fit the others" if in_workers else "not used"
        logger.warning(
            "%s: %s, because each target takes %d of %d devices (--gpus-per-target)",
            ", ".join(unused), use, ranks, len(devices),
        )  # fmt: skip


def start(
    options: NetworkOptions,
    preload: bool = True,
    kinds: Sequence[str] = (),
    processes: Processes = Processes(),
    networks: dict[Source, Network] | None = None,
) -> Startup:
    """Find the parameters, and import torch while background threads load what predictions need.

    Args:
        options: options of the network.
        preload: False if no prediction follows, as in a dry run.
        kinds: families of networks that the targets need; see `Family.kinds`. By default those of
            a run without targets.
        processes: the processes to start.
        networks: see `Startup`.

    Raises:
        MissingError: there are no parameters; raised before torch is imported.
    """
    family = find_family(options.params)
    sources = family.sources(options, kinds or family.kinds(options, ()))
    preload = preload and family.has_network
    set_triton_cache_folder()
    compilation = start_compilation(options, sources) if preload else None
    workers = _start_workers(processes.worker_devices, sources[0]) if preload else ()
    sampling = None
    if processes.sampling and any(family_of(source).samples_elsewhere for source in sources):
        sampling = SamplingProcesses(processes.sampling)
        sampling.start()
    threads = processes.rank_threads
    rank_processes = None if threads is None else RankProcesses(options, threads, sources[0])
    arrays = start_preloading(options.device, sources[0]) if preload and not workers else None
    import torch  # noqa: F401

    log_time_since_start("torch is imported")
    networks = {} if networks is None else networks
    return Startup(sources, arrays, compilation, workers, rank_processes, sampling, networks)


def _start_workers(devices: Sequence[str], source: Source) -> tuple[Service, ...]:
    """Start a worker process for each device, and prepare this process to encode their features."""
    if devices:
        run_in_background(prepare_features)
    return tuple(
        Service(CALLS, partial(start_worker, device, source), **WORKER_OPTIONS) for device in devices
    )


def start_compilation(
    options: NetworkOptions, sources: Sequence[Source]
) -> "Future[KernelCompilation | None] | None":
    """Start to compile the kernels of all networks in processes; None if no fused kernels are requested."""
    if options.device == "cpu" or options.kernels == "reference":
        return None
    networks = [config for source in sources for config in family_of(source).kernel_configs([source])]
    if not networks:
        return None
    number = gpu_numbers(options.device)[0]
    # the driver takes a while to start
    return run_in_background(lambda: compile_for_run(networks, options.precision, number))
