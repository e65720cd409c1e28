"""The interpreter settings that programs with a GPU change for a whole process, and why.

Garbage collection is paused while large libraries are imported: their objects are never freed, and a sixth of
the import time would be spent looking for garbage.

The thread switch interval is shortened while a GPU is driven: a thread releases the interpreter lock at every
kernel launch and waits up to this interval to get it back. With Python's default, that would be one launch
every 5 ms while another thread works.
"""

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator

_SWITCH_SECONDS = 1e-4
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


def drive_gpu() -> None:
    """Shorten the thread switch interval of a process that does nothing but drive a GPU."""
    sys.setswitchinterval(_SWITCH_SECONDS)


_users = 0
_previous_seconds = 0.0
_lock = threading.Lock()


@contextlib.contextmanager
def short_switch_interval() -> Iterator[None]:
    """Shorten the thread switch interval until the last of all overlapping blocks ends."""
    global _users, _previous_seconds
    with _lock:
        if not _users:
            _previous_seconds = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_SECONDS)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                sys.setswitchinterval(_previous_seconds)
