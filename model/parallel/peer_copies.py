"""Transfers between the GPUs of one host by their copy engines.

NCCL's transfers are kernels. They occupy multiprocessors, while the network's kernels are persistent: one
program runs on each multiprocessor, and the slowest ends the kernel. Therefore a transfer that overlaps with
such a kernel delays it by about the duration of the transfer. Copy engines need no multiprocessor.

The receiver of a transfer announces in shared memory where the tensor is to be written. When its current
stream has finished all earlier work on that memory, it sets a flag in the sender's memory. A stream of the
sender waits for this flag, copies, and sets a flag in the receiver's memory, for which the receiver's stream
waits. The value of a flag is the number of the transfer, counted for each pair of sender and receiver.

A transfer that is captured in a CUDA graph has flags of its own, since a graph always writes the same values:
they are set to 1, and back to 0 by whoever has waited for them. All ranks must capture the same transfers.
"""

import ctypes
import mmap
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

HANDLE_BYTES = 64
# maximum number of pending announcements from one rank to another
ENTRIES = 1024
ANNOUNCEMENT = np.dtype(
    [("handle", np.uint8, HANDLE_BYTES), ("offset", np.uint64), ("number", np.uint64)], align=True
)
# Each flag has its own cache line. A rank has two kinds of flags for each other rank: that rank is ready to
# receive, and its tensor has arrived. The first of each kind is for transfers outside of graphs.
FLAG_BYTES = 128
FLAGS = 256
# cuStreamWaitValue32 waits until the flag is at least the value, cyclically
GREATER_OR_EQUAL = 0
# seconds in which a rank notices that another one has failed to capture the same transfers
CAPTURE_SECONDS = 10.0
# end of that error, whose cause is the error of the other rank
NOT_CAPTURED = "has not captured the same transfers"
# mode in which a thread that captures a graph may open memory
RELAXED_CAPTURE = 2
LAZY_PEER_ACCESS = 1
# attribute of an address: the number of its allocation, which is never used again in the process
BUFFER_ID = 7
SHARED_MEMORY = "/dev/shm"


class PeerCopyError(RuntimeError):
    """A failure of the driver, or its lack of support for copies between processes."""


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE_BYTES),)


class Driver:
    """The functions of the CUDA driver that copies between processes need."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise PeerCopyError("there is no NVIDIA driver") from error
        pointer, stream = ctypes.c_uint64, ctypes.c_void_p
        out = ctypes.POINTER(pointer)
        self.attribute_of = self._function(library, "cuPointerGetAttribute", out, ctypes.c_int, pointer)
        self.handle_of = self._function(library, "cuIpcGetMemHandle", ctypes.POINTER(_Handle), pointer)
        self.open = self._function(library, "cuIpcOpenMemHandle_v2", out, _Handle, ctypes.c_uint)
        self.exchange_capture_mode = self._function(
            library, "cuThreadExchangeStreamCaptureMode", ctypes.POINTER(ctypes.c_int)
        )
        self.close = self._function(library, "cuIpcCloseMemHandle", pointer)
        self.range_of = self._function(
            library, "cuMemGetAddressRange_v2", out, ctypes.POINTER(ctypes.c_size_t), pointer
        )
        self.copy = self._function(library, "cuMemcpyDtoDAsync_v2", pointer, pointer, ctypes.c_size_t, stream)
        self.wait_value = self._function(
            library, "cuStreamWaitValue32_v2", stream, pointer, ctypes.c_uint32, ctypes.c_uint
        )
        self.write_value = self._function(
            library, "cuStreamWriteValue32_v2", stream, pointer, ctypes.c_uint32, ctypes.c_uint
        )

    @staticmethod
    def _function(library: ctypes.CDLL, name: str, *types: Any) -> Callable[..., None]:
        function = getattr(library, name)
        function.argtypes, function.restype = types, ctypes.c_int

        def call(*arguments: Any) -> None:
            if code := function(*arguments):
                raise PeerCopyError(f"{name} has failed with error {code}")

        return call


class PeerCopies:
    """The transfers of one rank; all ranks construct this at the same time.

    Raises:
        PeerCopyError: these ranks do not support it; raised on all of them.
    """

    def __init__(self, process_group: distributed.ProcessGroup | None, device: torch.device) -> None:
        self._process_group = process_group
        self.rank, self.size = distributed.get_rank(process_group), distributed.get_world_size(process_group)
        self._sent, self._received = [0] * self.size, [0] * self.size
        self._streams = [torch.cuda.Stream(device, priority=-1) for _ in range(self.size)]
        self._allocations: dict[int, tuple[int, bytes]] = {}
        self._opened: dict[bytes, int] = {}
        self._flags = torch.zeros(2 * self.size * FLAGS * FLAG_BYTES, dtype=torch.uint8, device=device)
        torch.cuda.synchronize(device)
        error, flags = "", (b"", 0)
        try:
            self._driver = Driver()
            flags = self._locate(self._flags)
        except PeerCopyError as failure:
            error = str(failure)
        peers = self._gather_values((socket.gethostname(), *flags), error)
        if len({host for host, _, _ in peers}) > 1:
            raise PeerCopyError("the ranks are on several hosts")
        try:
            self._peer_flags = [
                self._flags.data_ptr() if rank == self.rank else self._open(handle, offset)
                for rank, (_, handle, offset) in enumerate(peers)
            ]
        except PeerCopyError as failure:
            error = str(failure)
        self._gather_values(None, error)
        self._permanent_handles = set(self._opened)
        board = self._share_board()
        self._numbers, self._offsets = board["number"], board["offset"]  # each [receiver, sender, ENTRIES]
        self._handles = board["handle"]  # [receiver, sender, ENTRIES, HANDLE_BYTES]

    def _gather_values(self, value: Any, error: str) -> list[Any]:
        """Return the values of all ranks.

        Raises:
            PeerCopyError: one of them has an error.
        """
        gathered: list[Any] = [None] * self.size
        distributed.all_gather_object(gathered, (value, error), self._process_group)
        for rank, (_, message) in enumerate(gathered):
            if message:
                raise PeerCopyError(f"rank {rank}: {message}")
        return [value for value, _ in gathered]

    def _share_board(self) -> np.ndarray:
        """Return memory that all ranks share: [receiver, sender, ENTRIES] announcements."""
        size, path, error = self.size**2 * ENTRIES * ANNOUNCEMENT.itemsize, Path(), ""
        if self.rank == 0:
            try:
                descriptor, name = tempfile.mkstemp(prefix="foldcli-", dir=SHARED_MEMORY)
                path = Path(name)
                os.ftruncate(descriptor, size)
                os.close(descriptor)
            except OSError as failure:
                error = f"no shared memory: {failure}"
        path, board = self._gather_values(path, error)[0], np.empty(0, ANNOUNCEMENT)
        try:
            with path.open("r+b") as file:
                board = np.frombuffer(mmap.mmap(file.fileno(), size), ANNOUNCEMENT)
        except OSError as failure:
            error = f"no shared memory: {failure}"
        try:
            self._gather_values(None, error)
        finally:
            if self.rank == 0:
                path.unlink()
        return board.reshape(self.size, self.size, ENTRIES)

    def _locate(self, x: torch.Tensor) -> tuple[bytes, int]:
        """Return the handle of the allocation that holds a tensor, and the tensor's offset in it."""
        address, identity = x.data_ptr(), ctypes.c_uint64()
        self._driver.attribute_of(identity, BUFFER_ID, address)
        if identity.value not in self._allocations:
            base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), _Handle()
            self._driver.range_of(base, size, address)
            self._driver.handle_of(handle, base)
            self._allocations[identity.value] = base.value, bytes(handle.reserved)
        start, reserved = self._allocations[identity.value]
        return reserved, address - start

    def _open(self, handle: bytes, offset: int) -> int:
        """Return the address of a tensor of another rank."""
        if handle not in self._opened:
            address = ctypes.c_uint64()
            self._driver.open(address, _Handle.from_buffer_copy(handle), LAZY_PEER_ACCESS)
            self._opened[handle] = address.value
        return self._opened[handle] + offset

    def release(self) -> None:
        """Close the memory of the other ranks, which can then free it; all ranks call this at the same time.

        All transfers must have been waited for, and graphs with transfers must have been released.
        """
        for stream in self._streams:
            stream.synchronize()
        for handle in self._opened.keys() - self._permanent_handles:
            self._driver.close(self._opened.pop(handle))
        self._allocations.clear()
        self._gather_values(None, "")

    def align(self) -> None:
        """Let all ranks count on from one number after a failed capture; all call this at the same time."""
        newest = max(map(max, self._gather_values([*self._sent, *self._received], "")))
        self._sent, self._received = [newest] * self.size, [newest] * self.size

    def _flag(self, owner: int, other: int, kind: int, number: int, is_captured: bool) -> tuple[int, int]:
        """Return the address of a flag in the memory of a rank, and its value when set by another rank.

        Kind 0 says that the other rank is ready to receive, 1 that its tensor has arrived.
        """
        index = 1 + number % (FLAGS - 1) if is_captured else 0
        offset = ((kind * self.size + other) * FLAGS + index) * FLAG_BYTES
        return self._peer_flags[owner] + offset, 1 if is_captured else number

    def _set(self, stream: int, flag: tuple[int, int]) -> None:
        """Let a stream set a flag."""
        self._driver.write_value(stream, *flag, 0)

    def _wait(self, stream: int, flag: tuple[int, int], is_captured: bool) -> None:
        """Let a stream wait for a flag of this rank."""
        self._driver.wait_value(stream, *flag, GREATER_OR_EQUAL)
        if is_captured:
            self._driver.write_value(stream, flag[0], 0, 0)

    def start(
        self, sent: Mapping[int, torch.Tensor], received: Mapping[int, torch.Tensor]
    ) -> Callable[[], None]:
        """Start to send a contiguous tensor to each of some ranks, and to receive one from each.

        Returns:
            A function that has the current stream wait for the transfers. Until then the tensors must stay
            alive.
        """
        current, is_captured = torch.cuda.current_stream(), torch.cuda.is_current_stream_capturing()
        sent, received = ({r: x for r, x in y.items() if x.numel()} for y in (sent, received))
        with self._opening_memory():
            for rank, x in received.items():
                self._received[rank] += 1
                self._announce(rank, x, self._received[rank])
            for rank in sent:
                self._sent[rank] += 1
            targets = {rank: self._wait_for_address(rank, self._sent[rank], is_captured) for rank in sent}
        for rank in received:
            ready = self._flag(rank, self.rank, 0, self._received[rank], is_captured)
            self._set(current.cuda_stream, ready)
        memory_is_free, copy_events = current.record_event(), []
        for rank, x in sent.items():
            stream, number = self._streams[rank], self._sent[rank]
            stream.wait_event(memory_is_free)
            self._wait(stream.cuda_stream, self._flag(self.rank, rank, 0, number, is_captured), is_captured)
            self._driver.copy(targets[rank], x.data_ptr(), x.nbytes, stream.cuda_stream)
            self._set(stream.cuda_stream, self._flag(rank, self.rank, 1, number, is_captured))
            copy_events.append(stream.record_event())
        arrivals = [self._flag(self.rank, rank, 1, self._received[rank], is_captured) for rank in received]

        def wait() -> None:
            stream = torch.cuda.current_stream()
            # first what is sent: a graph may run its branches one after another, in this order
            for event in copy_events:
                stream.wait_event(event)
            for arrived in arrivals:
                self._wait(stream.cuda_stream, arrived, is_captured)

        return wait

    @contextmanager
    def _opening_memory(self) -> Iterator[None]:
        """Allow this thread to open memory while it captures a graph."""
        mode = ctypes.c_int(RELAXED_CAPTURE)
        self._driver.exchange_capture_mode(mode)
        try:
            yield
        finally:
            self._driver.exchange_capture_mode(mode)

    def _announce(self, sender: int, x: torch.Tensor, number: int) -> None:
        """Announce to a sender where to write the tensor of the transfer with a number."""
        entry = self.rank, sender, number % ENTRIES
        handle, self._offsets[entry] = self._locate(x)
        self._handles[entry] = np.frombuffer(handle, np.uint8)
        # written last: the sender reads the other fields once it finds the number
        self._numbers[entry] = number

    def _wait_for_address(self, receiver: int, number: int, is_captured: bool) -> int:
        """Wait for a receiver's announcement of a transfer, and return the address."""
        entry, start = (receiver, self.rank, number % ENTRIES), time.monotonic()
        while self._numbers[entry] != number:
            time.sleep(0)
            if is_captured and time.monotonic() > start + CAPTURE_SECONDS:
                raise PeerCopyError(f"rank {receiver} {NOT_CAPTURED}")
        return self._open(self._handles[entry].tobytes(), int(self._offsets[entry]))
