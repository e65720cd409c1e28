"""`foldcli` and `python -m foldcli`."""

import contextlib
import logging
import os
import sys
import threading

from foldcli.cli import cli
from foldcli.errors import run_with_exit_codes


def main() -> None:
    """Run the command line; every failure becomes one line on stderr and an exit code."""
    code = run_with_exit_codes(cli)
    # a thread that is still opening a GPU, as after an early error, would be cut off within CUDA's libraries,
    # which then abort the process
    if "numba.cuda" in sys.modules or any(thread.daemon for thread in threading.enumerate()):
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> None:
    """End the process at once: Python and numba take a quarter of a second to put away what goes anyway."""
    logging.shutdown()
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
