"""The start of processes with this folder in PYTHONPATH: those that simulate a GPU use fast threads."""

import os

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    from tests.cuda.alignment import block_threads

    block_threads.install()
