"""The start of a prediction: choose the processes, find the parameters, and import torch meanwhile.

Importing torch takes longer than everything else before the network's first block, and mostly waits for
files. While it is imported, `start` lets, in this order,

    processes compile the kernels that the cache lacks      `kernels`
    a worker for each device import torch, and do as below  `device_workers`, if there are several devices
    processes prepare the sampling of features              `prepare.sampling_process`
    the other ranks of this host import torch               `rank_processes`, with --gpus-per-target
    threads open the GPU and read the first network's file  `preloading`, if this process predicts

This process loads the kernels that sample features only if it samples: numba would delay the import.
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
from foldcli.logs import log_time_since_start
from foldcli.pipeline.network.kernels import KernelCompilation, compile_for_run
from foldcli.pipeline.network.preloading import start_preloading, start_worker
from foldcli.pipeline.network.processes import Processes
from foldcli.pipeline.network.rank_processes import RankProcesses
from foldcli.pipeline.prepare.sampling_process import SamplingProcesses, prepare_features
from foldcli.pipeline.processes.background import run_in_background
from foldcli.pipeline.processes.worker_pool import WORKER_OPTIONS
from foldcli.process_state import set_triton_cache_folder
from msa.base.hardware import gpu_numbers
from msa.base.services.pool import CALLS
from msa.base.services.service import Service

_NO_PROCESSES = Processes()


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
        processes: the processes of the run.
    """

    sources: list[Source] = field(default_factory=list)
    arrays: "Future[object] | None" = None
    compilation: "Future[KernelCompilation | None] | None" = None
    worker_services: tuple[Service, ...] = ()
    rank_processes: RankProcesses | None = None
    sampling: SamplingProcesses | None = None
    networks: dict[Source, Network] = field(default_factory=dict)
    processes: Processes = _NO_PROCESSES


def start(
    options: NetworkOptions,
    preload: bool = True,
    sources: list[Source] | None = None,
    processes: Processes = _NO_PROCESSES,
    networks: dict[Source, Network] | None = None,
) -> Startup:
    """Find the parameters, and import torch while background threads load what predictions need.

    Args:
        options: options of the network.
        preload: False if no prediction follows, as in a dry run, or if all targets are finished.
        sources: result of `Family.sources`; by default for a run without targets.
        processes: the processes to start.
        networks: see `Startup`.

    Raises:
        MissingError: there are no parameters; raised before torch is imported.
    """
    family = find_family(options.params)
    sources = sources or family.sources(options, family.needed_families(options, ()))
    preload = preload and family.has_network
    set_triton_cache_folder()
    compilation = start_compilation(options, sources) if preload else None
    workers = _start_workers(processes.worker_devices, sources[0]) if preload else ()
    sampling = None
    if processes.sampling and any(family_of(source).samples_elsewhere for source in sources):
        sampling = SamplingProcesses(processes.sampling)
        sampling.start()
    elif preload:
        run_in_background(prepare_features)
    threads = processes.rank_threads
    rank_processes = None if threads is None else RankProcesses(options, threads, sources[0])
    arrays = start_preloading(options.device, sources[0]) if preload and not workers else None
    import torch  # noqa: F401

    log_time_since_start("torch is imported")
    networks = {} if networks is None else networks
    return Startup(sources, arrays, compilation, workers, rank_processes, sampling, networks, processes)


def _start_workers(devices: Sequence[str], source: Source) -> tuple[Service, ...]:
    """Start a worker process for each device."""
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
