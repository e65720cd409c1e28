"""The GPU of a search is opened while other modules are imported; this module does not import numpy."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from foldcli.values import parse_size
from msa.base.errors import InputError
from msa.base.hardware import gpu_numbers, has_nvidia_hardware
from msa.gpu.device.cuda_context import open_in_background
from msa.gpu.worker.process_start import GpuProcess

# of about 300 proteins, whose search in this process takes as long as one in another with its start
_MANY_QUERY_BYTES = 50_000


def open_gpu(device: str, many_queries: bool) -> GpuProcess | None:
    """Begin to open the only GPU of a device: in this process, or for many queries in another.

    The other one works while this process holds the interpreter's lock, and a further one scores candidates
    (`msa.gpu.remote_worker`). For a few queries, its start would take longer than the search.

    Returns:
        The process that opens the GPU, if it is another one.
    """
    numbers = gpu_numbers(device)
    if device != "cpu" and len(numbers) == 1 and many_queries and has_nvidia_hardware():
        return GpuProcess(numbers[0], scores=True)
    open_in_background(device)
    return None


def are_many(queries: Sequence[str]) -> bool:
    """Return True if files have many queries; those that cannot be read are reported later."""
    total = 0
    for path in map(Path, queries):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total >= _MANY_QUERY_BYTES


def max_gpu_bytes() -> int | None:
    """Return $FOLDCLI_GPU_MEMORY in bytes, or None if it is not set.

    Raises:
        InputError: it is not a size.
    """
    text = os.environ.get("FOLDCLI_GPU_MEMORY", "")
    if not text:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise InputError(f"FOLDCLI_GPU_MEMORY: {error}") from None
