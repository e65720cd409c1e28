"""Background threads that load what predictions need while the main thread imports torch.

Reading files, computing checksums and opening the driver do not hold the interpreter's lock. Imports are
inside functions here, so that they run at the right time.
"""

from concurrent.futures import Future

from foldcli.families.registry import family_of
from foldcli.families.settings import Source
from foldcli.pipeline.prepare.sampling_process import prepare_features
from foldcli.pipeline.processes.background import run_in_background
from foldcli.process_state import set_triton_cache_folder
from msa.base.hardware import gpu_numbers
from msa.gpu.device.cuda_context import create_context


def start_worker(device: str, source: Source) -> None:
    """Import torch in a worker process, while a thread opens its GPU."""
    set_triton_cache_folder()
    if device != "cpu":
        run_in_background(lambda: _open_gpu(device))
    family_of(source).import_libraries()


def start_preloading(device: str, source: Source) -> "Future[object] | None":
    """Prepare features and the GPU, and read the parameters, each in a background thread.

    Errors are ignored here; the first use reports them.

    Returns:
        The future arrays of its file, as `Family.read_file` returns them; None if there is no file.
    """
    # imported before the threads start, because all of them import it
    import numpy  # noqa: F401

    run_in_background(prepare_features)
    if device != "cpu":
        run_in_background(lambda: _open_gpu(device))
    return None if source.file is None else run_in_background(lambda: family_of(source).read_file(source))


def _open_gpu(device: str) -> None:
    """Open the GPU, and compute the checksum of Triton that is part of its kernels' names."""
    if create_context(gpu_numbers(device)[0]):
        from triton.runtime.cache import triton_key  # Triton, which only GPUs need

        triton_key()
