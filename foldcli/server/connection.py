"""One client of the server: what it has sent so far, what it is still to be sent, and its request."""

import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

from foldcli.logs import logger
from foldcli.server.protocol import Unframer
from foldcli.server.scheduler import Job

ENOUGH_UNREAD_BYTES = 8 << 20
"""Results that a client has not read, from which on its search waits for it."""

_READ_BYTES = 1 << 18


class Connection:
    """A client that is connected.

    The search's thread sends to it; everything else is the server's loop. Nothing here waits: what cannot be
    written yet is kept, and `has_room` says when that is enough.

    Args:
        peer: the connected socket.
        name: for messages in the log.
        limit: bytes that a request may have.
        changed: called, from any thread, when there is something to write.
    """

    def __init__(
        self, peer: socket.socket, name: str, limit: int, changed: Callable[["Connection"], None]
    ) -> None:
        peer.setblocking(False)
        self.peer, self.name = peer, name
        self.job: Job | None = None  # of which the results are not complete
        self.closing = False
        self._changed = changed
        self._unframer = Unframer(limit)
        self._lock = Lock()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._told_to_wait = False
        self._gone = False

    def has_room(self) -> bool:
        full = self.full
        newly, self._told_to_wait = full and not self._told_to_wait, full
        if newly:
            logger.debug("%s: its search waits until more of its results are read", self.name)
        return not full

    def send(self, message: bytes) -> None:
        with self._lock:
            self._keep(message)
        self._changed(self)

    def _keep(self, message: bytes) -> None:
        if not self._gone:
            self._unsent.append(memoryview(message))
            self._unsent_bytes += len(message)

    def send_last(self, message: bytes) -> None:
        """Send a message after which there is nothing to say, nor to listen to."""
        self.send(message)
        with self._lock:
            self._gone = True
        self.closing = True

    def finish(self, message: bytes) -> None:
        with self._lock:
            # at once: who has read this message may ask anew, and who has not is not to be left yet
            self.job = None
            self._keep(message)
        self._changed(self)

    @property
    def full(self) -> bool:
        """Whether so much is left to write that nothing should be added to it."""
        return self._unsent_bytes >= ENOUGH_UNREAD_BYTES

    @property
    def unsent(self) -> bool:
        """Whether something is left to write."""
        return bool(self._unsent_bytes)

    @property
    def idle(self) -> bool:
        """Whether nothing is left to search for, nor to write."""
        with self._lock:
            return self.job is None and not self._unsent_bytes

    def received(self) -> Iterator[dict[str, Any]]:
        """The messages that have become complete.

        Raises:
            ConnectionError: the client is gone.
            InputError: what it sends is no message, or too long.
        """
        try:
            data = self.peer.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError
        yield from self._unframer.feed(data)

    def write(self) -> bool:
        """Write what the client takes at once; whether a search that waited for it may go on.

        Raises:
            ConnectionError: the client is gone.
        """
        with self._lock:
            before = self._unsent_bytes
            with contextlib.suppress(BlockingIOError):
                while self._unsent:
                    sent = self.peer.send(self._unsent[0])
                    self._unsent_bytes -= sent
                    if sent < len(self._unsent[0]):
                        self._unsent[0] = self._unsent[0][sent:]
                    else:
                        self._unsent.popleft()
            return before >= ENOUGH_UNREAD_BYTES > self._unsent_bytes

    def close(self) -> None:
        """Let go of the client; what is sent to it from now on is thrown away."""
        with self._lock:
            self._gone = True
            self._unsent.clear()
            self._unsent_bytes = 0
        self.peer.close()
