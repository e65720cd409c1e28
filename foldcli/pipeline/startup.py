"""The start of a prediction: find the parameters, and import torch while threads load everything else.

Importing torch takes longer than everything else before the network's first block, and mostly waits for
files. Reading other files, computing checksums and opening the driver do not hold the interpreter's lock, so
background threads do this meanwhile. Imports are inside functions here, so that they run at the right time.
"""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.inputs.targets import TargetInput, is_complex
from foldcli.logs import log_time_since_start
from foldcli.params.parameters import (
    TEMPLATE,
    TEMPLATE_COPY,
    NetworkKind,
    ParameterSource,
    find_parameters,
    network_kinds,
)
from foldcli.pipeline.background import run_in_background
from foldcli.pipeline.cpu_kernels import prepare_features
from foldcli.pipeline.kernels import KernelCompilation, compile_for_run
from foldcli.pipeline.settings import NetworkOptions
from foldcli.pipeline.worker_pool import WorkerPool
from foldcli.process_state import keep_bytecode, set_triton_cache_folder
from msa.gpu.hardware import gpu_numbers
from msa.gpu.opening import create_context
from msa.gpu.process_state import without_collection

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Startup:
    """The parameters of a run, and the background tasks that load or compile what it needs.

    Args:
        sources: models in the order in which they run.
        arrays: future arrays of the first source's file; None if no task reads them.
        preload: whether predictions in this process follow.
        compilation: future compilation of the kernels; None if there is none.
        worker_pools: pools with a process each, in the order of the devices, in which workers will predict.
    """

    sources: list[ParameterSource]
    arrays: "Future[dict[str, np.ndarray]] | None" = None
    preload: bool = True
    compilation: "Future[KernelCompilation | None] | None" = None
    worker_pools: tuple[WorkerPool, ...] = ()


def start(
    options: NetworkOptions,
    preload: bool = True,
    worker_devices: Sequence[str] = (),
    kinds: Sequence[NetworkKind] = ("monomer",),
    cpu_kernels: "Future[None] | None" = None,
) -> Startup:
    """Find the parameters, and import torch while background threads load what predictions need.

    Args:
        options: options of the network.
        preload: False if no prediction follows, as in a dry run.
        worker_devices: devices of the processes that predict instead of this one; they are started here.
        kinds: kinds of networks that the targets need; see `needed_kinds`.
        cpu_kernels: compilation of CPU kernels that these threads wait for before they load them.

    Raises:
        MissingError: there are no parameters; raised before torch is imported.
    """
    if options.params == TEMPLATE:
        sources, preload = [TEMPLATE_COPY], False
    else:
        sources = find_parameters(options.params, options.models, options.model_type, kinds)
    set_triton_cache_folder()
    keep_bytecode()
    compilation = start_compilation(options, sources) if preload else None
    file, pools = sources[0].file, tuple[WorkerPool, ...]()
    if preload and worker_devices:
        pools = tuple(WorkerPool(1, partial(start_worker, device, file)) for device in worker_devices)
        for pool in pools:
            pool.start()
        preload = False
    arrays = start_preloading(options.device, file, cpu_kernels) if preload else None
    with without_collection():
        import torch  # noqa: F401
    log_time_since_start("torch is imported")
    return Startup(sources, arrays, preload, compilation, pools)


def start_worker(device: str, parameters: Path | None) -> None:
    """Import torch in a worker process, while threads open its GPU and read the parameters.

    Args:
        device: device of the worker.
        parameters: see `start_preloading`.
    """
    set_triton_cache_folder()
    keep_bytecode()
    if device != "cpu":
        run_in_background(lambda: _open_gpu(device))
    if parameters is not None:
        read_ahead(parameters)
    with without_collection():
        # these import torch and most of what a prediction needs
        import foldcli.pipeline.network_loading
        import foldcli.pipeline.template_copies  # noqa: F401


@cache
def read_ahead(parameters: Path) -> "Future[dict[str, np.ndarray]]":
    """Begin to read a file of parameters in a thread; return its arrays' future, the same at each call."""
    return run_in_background(lambda: _read_parameters(parameters))


def needed_kinds(
    options: NetworkOptions, targets: Sequence[tuple[str, TargetInput]]
) -> tuple[NetworkKind, ...]:
    """Return the kinds of networks that targets need.

    Args:
        options: options of the network.
        targets: names and inputs.
    """
    complexes = [is_complex(target) for _, target in targets]
    return network_kinds(options.model_type, not all(complexes), any(complexes))


def start_compilation(
    options: NetworkOptions, sources: list[ParameterSource]
) -> "Future[KernelCompilation | None] | None":
    """Start to compile the kernels of all networks in processes; None if no fused kernels are requested.

    Args:
        options: options of the network.
        sources: the models.
    """
    if options.device == "cpu" or options.kernels == "reference":
        return None
    networks = [source.config for source in sources]
    number = gpu_numbers(options.device)[0]
    # the driver takes a while to start
    return run_in_background(lambda: compile_for_run(networks, options.precision, number))


def start_preloading(
    device: str, parameters: Path | None, cpu_kernels: "Future[None] | None" = None
) -> "Future[dict[str, np.ndarray]] | None":
    """Prepare features and the GPU, and read the parameters, each in a background thread.

    Errors are ignored here; the first use reports them.

    Args:
        device: value of `--device`.
        parameters: file of the first network; None if it has none.
        cpu_kernels: see `start`.

    Returns:
        The future arrays of the file, as `model.parameter_files.read_arrays` returns them.
    """
    # imported before the threads start, because all of them import it
    import numpy  # noqa: F401

    def prepare() -> None:
        if cpu_kernels is not None:
            wait([cpu_kernels])
        prepare_features()

    run_in_background(prepare)
    if device != "cpu":
        run_in_background(lambda: _open_gpu(device))
    return None if parameters is None else run_in_background(lambda: _read_parameters(parameters))


def _open_gpu(device: str) -> None:
    """Open the GPU, and compute the checksum of Triton that is part of its kernels' names."""
    if create_context(gpu_numbers(device)[0]):
        from triton.runtime.cache import triton_key

        triton_key()


def _read_parameters(path: Path) -> "dict[str, np.ndarray]":
    from model.parameter_files import read_arrays

    return read_arrays(path)
