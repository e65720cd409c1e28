"""The start of processes that drive a GPU or score, before the searching one has imported what it needs.

Neither this module nor its imports need numpy.
"""

import socket
import sys
from collections.abc import Sequence

from msa.base.child_process import StartedProcess, main_command, start_process
from msa.gpu.device.opening import open_in_background

COMMAND = main_command(__name__)
"""Arguments: the file descriptor of a socket, the number of the GPU, and the file descriptor of a socket for
alignments that another process requests, or an empty text."""

SCORING_COMMAND = main_command("msa.search.scoring.scoring_worker")
"""Arguments: the file descriptor of a socket, the number of the GPU, and the file descriptor of a socket to
its process."""


_started_ahead: dict[int, StartedProcess] = {}
_scoring: dict[int, StartedProcess] = {}


def start_ahead(gpu: int, scores: bool = False, command: Sequence[str] = COMMAND) -> None:
    """Start a process for a GPU that `take_process` will return; it ends with this process.

    Args:
        gpu: number of the GPU.
        scores: also start one that scores candidates, for `take_scoring_process`.
        command: takes the same arguments as COMMAND.
    """
    if not scores:
        _started_ahead[gpu] = start_process(command, str(gpu), "")
        return
    aligning, scoring = socket.socketpair()
    with aligning, scoring:
        number = aligning.fileno()
        _started_ahead[gpu] = start_process(command, str(gpu), str(number), pass_fds=[number])
        number = scoring.fileno()
        _scoring[gpu] = start_process(SCORING_COMMAND, str(gpu), str(number), pass_fds=[number])


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
    return start_process(command, str(gpu), "") if started is None else started


def take_scoring_process(gpu: int) -> StartedProcess | None:
    """Return the process that scores candidates beside that of a GPU, if it was started ahead."""
    return _scoring.pop(gpu, None)


def main() -> None:
    """Drive a GPU; see COMMAND."""
    # the driver starts while numpy is imported
    open_in_background(f"cuda:{sys.argv[2]}")
    from msa.gpu.worker import worker_process

    worker_process.main()
