"""What a prediction needs beside torch, begun in background threads while torch is imported.

That import takes longer than all else before the first block. Files, checksums and the driver are waited for
without the interpreter's lock, and numba's import waits for files as often as torch's does.
"""

import os
import sys
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from foldcli.paths import cache_dir
from foldcli.pipeline.background import in_background

if TYPE_CHECKING:
    import numpy as np


BYTE_CODE = "bytecode"


def keep_byte_code() -> None:
    """Have Python keep what it compiles in the cache, where the installation neither has it nor takes it.

    Installers that compile nothing and containers that nobody may write to are common, and to compile the
    modules of torch alone takes seconds each time.
    """
    if sys.pycache_prefix is not None or (torch := find_spec("torch")) is None:
        return
    if not (torch.origin and torch.cached) or Path(torch.cached).exists():
        return
    if sys.dont_write_bytecode or not os.access(Path(torch.origin).parent, os.W_OK):
        sys.pycache_prefix, sys.dont_write_bytecode = str(cache_dir() / BYTE_CODE), False


def begin(device: str, parameters: Path | None) -> "Future[dict[str, np.ndarray]] | None":
    """Get ready what features and kernels need, and read the parameters.

    What fails here fails again where it is missed, and is told there.

    Args:
        device: as `--device` has it.
        parameters: the file of the first network, or None if it has none.

    Returns:
        The file's arrays, as `model.parameter_files.read_arrays` gives them.
    """
    # by one thread, since all import it
    import numpy  # noqa: F401

    in_background(_ready_features)
    if device != "cpu":
        in_background(lambda: _ready_gpu(device))
    return None if parameters is None else in_background(lambda: _read(parameters))


def _ready_features() -> None:
    """Make, pack, unpack and draw some: numba looks for its compiled code when a kernel is first called."""
    from features.deterministic import make_features
    from features.encoding import decode, encode
    from features.sampling import SamplingSettings, sample_features
    from msa.io.alignments import parse_alignment

    blocks, layout = encode(make_features([parse_alignment(b">a\nAC\n>b\nAG\n>c\nCC\n")]))
    features = decode({name: memoryview(block) for name, block in blocks.items()}, layout)
    sample_features(features, SamplingSettings(max_seq=2, max_extra_seq=1), 1, 0)


def _ready_gpu(device: str) -> None:
    """Open the GPU, and have Triton take the checksum of itself that its kernels' names hold."""
    from msa.gpu.opening import open_context
    from msa.search.engine_selection import gpu_numbers

    if open_context(gpu_numbers(device)[0]):
        from triton.runtime.cache import triton_key

        triton_key()


def _read(path: Path) -> "dict[str, np.ndarray]":
    from model.parameter_files import read_arrays

    return read_arrays(path)
