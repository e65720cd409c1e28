"""Tests of the exit of the process."""

import subprocess
import sys

from foldcli.version import VERSION

BUSY = """
import atexit, sys, threading
from foldcli.__main__ import main
threading.Thread(target=threading.Event().wait, daemon=True).start()
atexit.register(print, "clean-up")
sys.argv = ["foldcli", *sys.argv[1:]]
main()
"""


def test_process_ends_at_once_while_a_background_thread_is_busy() -> None:
    """Check that Python's cleanup is skipped: it would stop the thread, which CUDA's libraries abort on."""
    for arguments, code, stdout in ((["--version"], 0, f"{VERSION}\n"), (["--nonsense"], 2, "")):
        command = [sys.executable, "-c", BUSY, *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (code, stdout), result.stderr
