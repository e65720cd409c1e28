"""How the process ends."""

import subprocess
import sys

from foldcli.version import VERSION

BUSY = """
import atexit, sys, threading
from foldcli.__main__ import main
threading.Thread(target=threading.Event().wait, daemon=True).start()
atexit.register(print, "put away")
sys.argv = ["foldcli", *sys.argv[1:]]
main()
"""


def test_it_ends_at_once_while_a_background_thread_is_busy() -> None:
    """Python would cut the thread off, and CUDA's libraries abort the process over one that is in them."""
    for arguments, code, said in ((["--version"], 0, f"{VERSION}\n"), (["--nonsense"], 2, "")):
        command = [sys.executable, "-c", BUSY, *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (code, said), result.stderr
