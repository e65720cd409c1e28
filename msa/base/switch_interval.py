"""The thread switch interval, which is shortened for a whole process while it drives a GPU.

A thread releases the interpreter lock at every kernel launch and waits up to this interval to get it back.
With Python's default, that would be one launch every 5 ms while another thread works.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator

_SWITCH_SECONDS = 1e-4
"""Thread switch interval while a GPU is driven."""


def shorten_switch_interval() -> None:
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
