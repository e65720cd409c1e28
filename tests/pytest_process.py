"""A process that runs single tests with environment variables that must be set before imports.

These variables enable numba's simulator and Triton's interpreter (see `PytestProcess` in conftest.py). The
process reads node ids from standard input, one JSON string per line, and answers each with a JSON list of
exit status and output. What was imported for one test is used by the next.
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
