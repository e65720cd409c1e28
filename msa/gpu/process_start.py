"""The start of a process that drives a GPU, before the searching process has imported what it needs itself.

Neither this module nor its imports need numpy.
"""

import sys
from collections.abc import Sequence

from msa.child_process import StartedProcess, start_process

COMMAND = (
    sys.executable,
    "-c",
    # the driver starts while numpy is imported
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from msa.gpu.opening import open_in_background; open_in_background('cuda:' + sys.argv[2]); "
    "from msa.gpu.worker_process import main; main()",
)
"""Arguments: the file descriptor of a socket, the number of the GPU, and Python's search path."""


_started_ahead: dict[int, StartedProcess] = {}


def start_ahead(gpu: int) -> None:
    """Start a process for a GPU that `take_process` will return; it ends with this process."""
    _started_ahead[gpu] = start_process(COMMAND, str(gpu))


def is_started_ahead(gpu: int) -> bool:
    """Return whether `take_process` would return a process that was started ahead."""
    return gpu in _started_ahead


def take_process(gpu: int, command: Sequence[str] = COMMAND) -> StartedProcess:
    """Return the process that was started ahead for a GPU, or start one.

    Args:
        gpu: number of the GPU.
        command: takes the same arguments as COMMAND.
    """
    started = _started_ahead.pop(gpu, None) if command is COMMAND else None
    return start_process(command, str(gpu)) if started is None else started
