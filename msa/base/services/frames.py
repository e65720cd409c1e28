"""The frames that two processes exchange over a socket: a number, a kind, and a pickled value."""

import contextlib
import socket
import struct
import threading
from enum import IntEnum

# number, kind and size of a frame
_HEADER = struct.Struct("<QBQ")
# smaller frames are sent with one system call
_SMALL = 1 << 16


class Kind(IntEnum):
    """The kind of a frame: the first two are sent to the process, the others by it."""

    REQUEST = 0
    CANCEL = 1
    RESULT = 2
    ERROR = 3
    ITEM = 4
    PROGRESS = 5
    LOG = 6


class Channel:
    """One end of a socket between two processes; any thread may send, one receives."""

    def __init__(self, own: socket.socket) -> None:
        self._socket, self._lock = own, threading.Lock()

    def send(self, number: int, kind: Kind, payload: bytes) -> None:
        """Send a frame; nothing happens if the other end is closed, which the receiving thread notices."""
        header = _HEADER.pack(number, kind, len(payload))
        parts = [header + payload] if len(payload) < _SMALL else [header, payload]
        with self._lock:
            try:
                for part in parts:
                    self._socket.sendall(part)
            except OSError:
                pass
            except BaseException:
                # interrupted: the other end would wait for the rest of the frame
                self.hang_up()
                raise

    def receive(self) -> tuple[int, int, bytearray]:
        """Wait for a frame; return its number, kind and pickled value, or raise EOFError at the end."""
        number, kind, size = _HEADER.unpack(self._read(_HEADER.size))
        return number, kind, self._read(size)

    def _read(self, size: int) -> bytearray:
        block = bytearray(size)
        view = memoryview(block)
        while view:
            try:
                count = self._socket.recv_into(view)
            except OSError:
                count = 0
            if not count:
                raise EOFError
            view = view[count:]
        return block

    def hang_up(self) -> None:
        """End the connection; both ends notice."""
        # the other end may have done so already
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the socket."""
        with self._lock:
            self._socket.close()
