"""Background threads that load what predictions need while the main thread imports torch.

Reading files, computing checksums and opening the driver do not hold the interpreter's lock. Other imports
hold it, and would delay torch's. Imports are inside functions here, so that they run at the right time.
"""

from concurrent.futures import Future

from foldcli.families.registry import family_of
from foldcli.families.settings import Source
from foldcli.pipeline.processes.background import run_in_background
from foldcli.process_state import set_triton_cache_folder
from msa.base.hardware import gpu_numbers
from msa.gpu.device.cuda_context import create_context

# in a worker process: the file that `start_worker` reads
_files: dict[Source, "Future[object] | None"] = {}


def start_worker(device: str, source: Source) -> None:
    """Import torch in a worker process, while threads open its GPU and read the parameters."""
    set_triton_cache_folder()
    _files[source] = start_preloading(device, source)
    family_of(source).import_libraries()
    import foldcli.pipeline.network.job_runners  # noqa: F401  # imports torch


def take_file(source: Source) -> "Future[object] | None":
    """Return the file of a source that `start_worker` reads, once; None if it reads none."""
    return _files.pop(source, None)


def start_preloading(device: str, source: Source) -> "Future[object] | None":
    """Open the GPU and read the parameters, each in a background thread.

    Errors are ignored here; the first use reports them.

    Returns:
        The future arrays of its file, as `Family.read_file` returns them; None if there is no file.
    """
    # imported before the threads start, because the main thread imports it, too
    import numpy  # noqa: F401

    if device != "cpu":
        run_in_background(lambda: _open_gpu(device))
    return None if source.file is None else run_in_background(lambda: family_of(source).read_file(source))


def _open_gpu(device: str) -> None:
    """Open the GPU, and compute the checksum of Triton that is part of its kernels' names."""
    if create_context(gpu_numbers(device)[0]):
        from triton.runtime.cache import triton_key  # Triton, which only GPUs need

        triton_key()
