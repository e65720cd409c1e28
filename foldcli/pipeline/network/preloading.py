"""Background threads that load what predictions need while the main thread imports torch.

Reading files, computing checksums and opening the driver do not hold the interpreter's lock. Imports are
inside functions here, so that they run at the right time.
"""

from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.pipeline.prepare.sampling_process import prepare_features
from foldcli.pipeline.processes.background import run_in_background
from foldcli.process_state import set_triton_cache_folder
from msa.gpu.device.hardware import gpu_numbers
from msa.gpu.device.opening import create_context
from msa.gpu.device.process_state import without_collection

if TYPE_CHECKING:
    import numpy as np


def start_worker(device: str, parameters: Path | None) -> None:
    """Import torch in a worker process, while threads open its GPU and read the parameters.

    Args:
        device: device of the worker.
        parameters: see `start_preloading`.
    """
    set_triton_cache_folder()
    if device != "cpu":
        run_in_background(lambda: _open_gpu(device))
    if parameters is not None:
        read_ahead(parameters)
    with without_collection():
        # these import torch and most of what a prediction needs
        import foldcli.pipeline.network.loading
        import foldcli.pipeline.network.template_copies  # noqa: F401


@cache
def read_ahead(parameters: Path) -> "Future[dict[str, np.ndarray]]":
    """Begin to read a file of parameters in a thread; return its arrays' future, the same at each call."""
    return run_in_background(lambda: _read_parameters(parameters))


def take_parameters(file: Path) -> "Future[dict[str, np.ndarray]]":
    """Return the future arrays of a file that `read_ahead` may have begun to read, and do not keep them."""
    arrays = read_ahead(file)
    read_ahead.cache_clear()
    return arrays


def start_preloading(
    device: str,
    parameters: Path | None,
    reads_features: bool = True,
) -> "Future[dict[str, np.ndarray]] | None":
    """Prepare features and the GPU, and read the parameters, each in a background thread.

    Errors are ignored here; the first use reports them.

    Args:
        device: value of `--device`.
        parameters: file of the first network; None if it has none.
        reads_features: see `start`.

    Returns:
        The future arrays of the file, as `model.checkpoints.deepmind.read_arrays` returns them.
    """
    # imported before the threads start, because all of them import it
    import numpy  # noqa: F401

    if reads_features:
        run_in_background(prepare_features)
    if device != "cpu":
        run_in_background(lambda: _open_gpu(device))
    return None if parameters is None else run_in_background(lambda: _read_parameters(parameters))


def _open_gpu(device: str) -> None:
    """Open the GPU, and compute the checksum of Triton that is part of its kernels' names."""
    if create_context(gpu_numbers(device)[0]):
        from triton.runtime.cache import triton_key

        triton_key()


def _read_parameters(path: Path) -> "dict[str, np.ndarray]":
    from model.checkpoints.deepmind import read_arrays

    return read_arrays(path)
