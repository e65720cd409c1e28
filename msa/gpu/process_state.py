"""Process-wide interpreter settings that the GPU engine changes, and why.

Garbage collection is paused while large libraries are imported: their objects are never freed, and a sixth of
the import time would be spent looking for garbage.

The thread switch interval is shortened while a GPU is driven: a thread releases the interpreter lock at every
kernel launch and waits up to this interval to get it back. With Python's default, that would be one launch
every 5 ms while another thread works.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator

SWITCH_SECONDS = 1e-4
"""Thread switch interval while a GPU is driven."""


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Pause garbage collection for imports, and exempt what they created from later collections."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def short_switch_interval() -> Iterator[None]:
    """Shorten the thread switch interval."""
    previous = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(previous)
