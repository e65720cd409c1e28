"""The start of a process that drives a GPU, before the searching process has imported what it needs itself.

Neither this module nor its imports need numpy.
"""

import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

COMMAND = (
    sys.executable,
    "-c",
    # the driver starts while numpy is imported
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from msa.gpu.opening import open_in_background; open_in_background('cuda:' + sys.argv[2]); "
    "from msa.gpu.worker_process import main; main()",
)
"""Arguments: the file descriptor of a socket, the number of the GPU, and Python's search path."""


@dataclass(frozen=True)
class StartedProcess:
    """A process, and the searching process's end of the socket between them; it ends when that is closed."""

    process: "subprocess.Popen[bytes]"
    socket: socket.socket


_started_ahead: dict[int, StartedProcess] = {}


def start_process(gpu: int, command: Sequence[str] = COMMAND) -> StartedProcess:
    """Start a process for a GPU.

    Args:
        gpu: number of the GPU.
        command: its arguments are appended; see COMMAND.
    """
    own, other = socket.socketpair()
    with other:
        process = subprocess.Popen(
            [*command, str(other.fileno()), str(gpu), *sys.path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[other.fileno()],
            # interrupts from the terminal are handled by this process alone
            start_new_session=True,
        )
    return StartedProcess(process, own)


def start_ahead(gpu: int) -> None:
    """Start a process for a GPU that `take_process` will return; it ends with this process."""
    _started_ahead[gpu] = start_process(gpu)


def take_process(gpu: int, command: Sequence[str] = COMMAND) -> StartedProcess:
    """Return the process that was started ahead for a GPU, or start one."""
    started = _started_ahead.pop(gpu, None) if command is COMMAND else None
    return start_process(gpu, command) if started is None else started
