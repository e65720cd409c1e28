"""The start of a prediction: find the parameters, and import torch while threads load everything else.

Importing torch takes longer than everything else before the network's first block, and mostly waits for
files. Meanwhile, other processes are started, and threads load what predictions need
(`foldcli.pipeline.network.preloading`).
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from foldcli.families.registry import family_of, find_family
from foldcli.families.settings import NetworkOptions, Source
from foldcli.logs import log_time_since_start
from foldcli.pipeline.kernels.gpu_kernels import KernelCompilation, compile_for_run
from foldcli.pipeline.network.preloading import start_preloading, start_worker
from foldcli.pipeline.network.rank_processes import RankProcesses
from foldcli.pipeline.prepare.sampling_process import SamplingProcesses, prepare_features
from foldcli.pipeline.processes.background import run_in_background
from foldcli.pipeline.processes.worker_pool import WorkerPool
from foldcli.process_state import set_triton_cache_folder
from msa.gpu.device.hardware import gpu_numbers
from msa.gpu.device.process_state import without_collection


@dataclass(frozen=True)
class Startup:
    """The parameters of a run, and the background tasks that load or compile what it needs.

    Args:
        sources: models in the order in which they run.
        arrays: future arrays of the first source's file; None if no task reads them.
        preload: whether predictions in this process follow.
        compilation: future compilation of the kernels; None if there is none.
        worker_pools: pools with a process each, in the order of the devices, in which workers will predict.
        rank_processes: the other ranks of this host; None if there are none.
        sampling: processes that sample the features of all predictions; None to sample in this process.
    """

    sources: list[Source]
    arrays: "Future[Any] | None" = None
    preload: bool = True
    compilation: "Future[KernelCompilation | None] | None" = None
    worker_pools: tuple[WorkerPool, ...] = ()
    rank_processes: RankProcesses | None = None
    sampling: SamplingProcesses | None = None


def start(
    options: NetworkOptions,
    preload: bool = True,
    worker_devices: Sequence[str] = (),
    kinds: Sequence[str] = ("monomer",),
    rank_threads: int | None = None,
    sampling_processes: int = 0,
    reads_features: bool = True,
) -> Startup:
    """Find the parameters, and import torch while background threads load what predictions need.

    Args:
        options: options of the network.
        preload: False if no prediction follows, as in a dry run.
        worker_devices: devices of the processes that predict instead of this one; they are started here.
        kinds: families of networks that the targets need; see `Family.kinds`.
        rank_threads: CPU threads of all ranks on this host, to start the others in processes; None if there
            are none, or torchrun has started them.
        sampling_processes: number of processes that sample features; 0 to sample in this process.
        reads_features: False if this process probably neither reads features from the cache nor samples any,
            so that numba, which compiles the kernels for that, need not be imported soon.

    Raises:
        MissingError: there are no parameters; raised before torch is imported.
    """
    family = find_family(options.params)
    sources, preload = family.sources(options, kinds), preload and family.has_network
    set_triton_cache_folder()
    compilation = start_compilation(options, sources) if preload else None
    pools = tuple[WorkerPool, ...]()
    if preload and worker_devices:
        pools = tuple(WorkerPool(1, partial(start_worker, device, sources[0])) for device in worker_devices)
        for pool in pools:
            pool.start()
        preload = False
        # this process encodes and decodes their features
        run_in_background(prepare_features)
    sampling = None
    if sampling_processes and any(family_of(source).samples_elsewhere for source in sources):
        sampling = SamplingProcesses(sampling_processes)
        sampling.start()
    rank_processes = None if rank_threads is None else RankProcesses(options, rank_threads, sources[0])
    arrays = start_preloading(options.device, sources[0], reads_features) if preload else None
    with without_collection():
        import torch  # noqa: F401
    log_time_since_start("torch is imported")
    return Startup(sources, arrays, preload, compilation, pools, rank_processes, sampling)


def start_compilation(
    options: NetworkOptions, sources: Sequence[Source]
) -> "Future[KernelCompilation | None] | None":
    """Start to compile the kernels of all networks in processes; None if no fused kernels are requested.

    Args:
        options: options of the network.
        sources: the models.
    """
    if options.device == "cpu" or options.kernels == "reference":
        return None
    networks = [config for source in sources for config in family_of(source).kernel_configs([source])]
    if not networks:
        return None
    number = gpu_numbers(options.device)[0]
    # the driver takes a while to start
    return run_in_background(lambda: compile_for_run(networks, options.precision, number))
