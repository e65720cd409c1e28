"""A process that runs single tests under numba's simulator.

The simulator must be enabled before numba is imported, so tests marked `simulator` run in this process (see
conftest.py). It reads node ids from standard input, one JSON string per line, and answers each with a JSON
list of exit status and output.
"""

import contextlib
import io
import json
import os
import sys

import pytest

from tests.plain_pytest import PLAIN_OPTIONS


def main() -> None:
    """Serve until standard input is closed."""
    # tests may write to the standard output
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = int(pytest.main([*PLAIN_OPTIONS, json.loads(line)]))
        print(json.dumps([status, output.getvalue()]), file=answers, flush=True)


if __name__ == "__main__":
    main()
