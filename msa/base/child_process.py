"""Processes of this package that exchange messages with the process that starts them.

Neither this module nor its imports need numpy.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_PR_SET_PDEATHSIG = 1
"""The option of prctl(2), from <linux/prctl.h>, that names the signal a process gets when its parent ends."""


@dataclass(frozen=True)
class StartedProcess:
    """A process, and this process's end of the socket between them; it ends when that is closed."""

    process: "subprocess.Popen[bytes]"
    socket: socket.socket

    def connect(self) -> "Connection":
        """Return a connection for messages to the process, which replaces the socket."""
        from multiprocessing.connection import Connection  # not needed before the process works

        with self.socket as own:
            return Connection(os.dup(own.fileno()))


def ignore_stop_signals() -> None:
    """Ignore the signals that end a run: they reach all its processes, and this one ends with its parent."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def end_with_parent() -> None:
    """Let the system kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main_command(module: str) -> list[str]:
    """Return the command that calls `main` of a module in a process with this one's search path."""
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()",
    ]


def start_process(command: Sequence[str], *arguments: str, pass_fds: Sequence[int] = ()) -> StartedProcess:
    """Start a process that serves a socket.

    Args:
        command: the program.
        arguments: follow the file descriptor of the socket.
        pass_fds: further file descriptors that the process inherits.
    """
    own, other = socket.socketpair()
    with other:
        process = subprocess.Popen(
            [*command, str(other.fileno()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[other.fileno(), *pass_fds],
            # interrupts from the terminal are handled by this process alone
            start_new_session=True,
        )
    return StartedProcess(process, own)
