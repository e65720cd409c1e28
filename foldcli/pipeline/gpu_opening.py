"""The GPU of a search is opened while other modules are imported; this module does not import numpy."""

import os
from pathlib import Path

from foldcli.options.common import parse_size
from msa.database.file_names import CLUSTERS, RESIDUES
from msa.errors import InputError
from msa.gpu.hardware import gpu_numbers
from msa.gpu.opening import open_in_background
from msa.gpu.process_start import start_ahead


def open_gpu_ahead(db: str, device: str) -> None:
    """Open the only GPU of a device: in this process, or in another if that will stream the database.

    Args:
        db: see DatabaseSource.
        device: value of `--device`.

    Raises:
        InputError: see `max_gpu_bytes`.
    """
    numbers = gpu_numbers(device)
    if device != "cpu" and len(numbers) == 1 and _exceeds(Path(db), max_gpu_bytes()):
        start_ahead(numbers[0])
    else:
        open_in_background(device)


def _exceeds(database: Path, max_bytes: int | None) -> bool:
    """Return whether a database certainly needs more than `max_bytes` of GPU memory, None for no limit."""
    residues = database / RESIDUES
    # with clusters, only a part of the residues is needed
    if max_bytes is None or (database / CLUSTERS).exists() or not residues.is_file():
        return False
    return residues.stat().st_size > max_bytes


def max_gpu_bytes() -> int | None:
    """Return $FOLDCLI_GPU_MEMORY in bytes, or None if it is not set.

    Raises:
        InputError: it is not a size.
    """
    text = os.environ.get("FOLDCLI_GPU_MEMORY", "")
    if not text:
        return None
    size = parse_size(text)
    if size is None:
        raise InputError(f"FOLDCLI_GPU_MEMORY is {text!r}: expected bytes such as 500000000, 500M or 2G")
    return size
