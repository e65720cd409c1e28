"""Ctrl-C around calls of RDKit, which replaces the handler of SIGINT while it embeds and leaves its own."""

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Iterator

# at least the size of `struct sigaction`, whose content is not looked at
_SIGACTION_BYTES = 256
_lock = threading.Lock()


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Restore this process's handler of SIGINT after the block, which one thread at a time enters.

    RDKit raises KeyboardInterrupt in the thread that calls it. If that is not the main thread, SIGINT is sent
    again, so that the main thread is interrupted too.
    """
    libc, handler = ctypes.CDLL(None), ctypes.create_string_buffer(_SIGACTION_BYTES)
    with _lock:
        libc.sigaction(signal.SIGINT, None, handler)
        try:
            yield
        except KeyboardInterrupt:
            libc.sigaction(signal.SIGINT, handler, None)
            if threading.current_thread() is not threading.main_thread():
                os.kill(os.getpid(), signal.SIGINT)
            raise
        finally:
            libc.sigaction(signal.SIGINT, handler, None)
