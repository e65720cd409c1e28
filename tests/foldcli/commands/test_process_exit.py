"""Tests of the exit of the process."""

import subprocess
import sys

from foldcli.version import VERSION

CLEAN_UP = """
import atexit, sys
from foldcli.__main__ import main
atexit.register(print, "clean-up")
sys.argv = ["foldcli", *sys.argv[1:]]
main()
"""


def test_process_ends_at_once() -> None:
    """Check that Python's cleanup, in which a signal would change the exit code, is skipped."""
    for arguments, code, stdout in ((["--version"], 0, f"{VERSION}\n"), (["--nonsense"], 2, "")):
        command = [sys.executable, "-c", CLEAN_UP, *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (code, stdout), result.stderr
