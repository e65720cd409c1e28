"""What a prediction needs beside torch, begun in background threads while torch is imported.

That import takes longer than all else before the first block. Files, checksums and the driver are waited for
without the interpreter's lock, and numba's import waits for files as often as torch's does.
"""

from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.background import in_background

if TYPE_CHECKING:
    import numpy as np


def begin(device: str, parameters: Path | None) -> "Future[dict[str, np.ndarray]] | None":
    """Get ready what features and kernels need, and read the parameters.

    What fails here fails again where it is missed, and is told there.

    Args:
        device: as `--device` has it.
        parameters: the file of the first network, or None if it has none.

    Returns:
        The file's arrays, as `model.npz.read_arrays` gives them.
    """
    # by one thread, since all import it
    import numpy  # noqa: F401

    in_background(_ready_features)
    if device != "cpu":
        in_background(lambda: _ready_gpu(device))
    return None if parameters is None else in_background(lambda: _read(parameters))


def _ready_features() -> None:
    """Import numba, and have it look for its compiled code, which it does at a kernel's first call."""
    import numpy as np

    from features import sampling  # noqa: F401
    from features.ranks import NUM_CODES, rank_residues, unrank_residues

    profile = np.zeros((1, NUM_CODES), np.float32)
    unrank_residues(*rank_residues(np.zeros((1, 1), np.int8), profile), profile)


def _ready_gpu(device: str) -> None:
    """Open the GPU, and have Triton take the checksum of itself that its kernels' names hold."""
    from msa.gpu.opening import open_context

    if open_context(int(device.partition(":")[2].partition(",")[0] or 0)):
        from triton.runtime.cache import triton_key

        triton_key()


def _read(path: Path) -> "dict[str, np.ndarray]":
    from model.npz import read_arrays

    return read_arrays(path)
