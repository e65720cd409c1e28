"""A stand-in for the CUDA driver of `model.parallel.peer_copies`, with which processes on the CPU copy."""

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

BYTES = 2**20


class HostStream:
    """A stream on which all work is done at once."""

    cuda_stream, device = 0, "cpu"

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record_event(self) -> None:
        """Return an event that has happened."""

    def synchronize(self) -> None:
        """Wait for all work."""

    def wait_stream(self, stream: "HostStream") -> None:
        """Wait for all work of another stream."""

    def wait_event(self, event: None) -> None:
        """Wait for an event that has happened."""


class HostDriver:
    """Memory of this process that others can open, and operations on it."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(BYTES))
        self.path, self.opened = path, []
        self.memory, self.base = self._map(path)
        self.used = 0
        # what streams do, while a graph is captured
        self.recorded: list[Callable[[], None]] | None = None

    def exchange_capture_mode(self, mode: ctypes.c_int) -> None:
        """Do nothing, as the memory of hosts can always be opened."""

    def _run(self, work: Callable[[], None]) -> None:
        work()
        if self.recorded is not None:
            self.recorded.append(work)

    def _map(self, path: Path) -> tuple[torch.Tensor, int]:
        with path.open("r+b") as file:
            memory = torch.frombuffer(mmap.mmap(file.fileno(), BYTES), dtype=torch.uint8)
        self.opened.append(memory)
        return memory, memory.data_ptr()

    def allocate(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of this memory."""
        size = torch.Size(shape).numel() * dtype.itemsize
        x = self.memory[self.used : self.used + size].view(dtype).view(shape)
        self.used += -(-size // 128) * 128
        return x

    def attribute_of(self, value: ctypes.c_uint64, attribute: int, address: int) -> None:
        """Return the number of the only allocation."""
        value.value = 1

    def range_of(self, base: ctypes.c_uint64, size: ctypes.c_size_t, address: int) -> None:
        """Return the start of the memory."""
        base.value, size.value = self.base, BYTES

    def handle_of(self, handle: ctypes.Structure, base: ctypes.c_uint64) -> None:
        """Return the end of the path as a handle."""
        name = self.path.name.encode()
        ctypes.memmove(ctypes.addressof(handle), name, len(name))

    def open(self, address: ctypes.c_uint64, handle: ctypes.Structure, flags: int) -> None:
        """Map the memory of another process."""
        address.value = self._map(self.path.parent / bytes(handle.reserved).rstrip(b"\0").decode())[1]  # type: ignore[attr-defined]

    def close(self, address: int) -> None:
        """Close the memory of another process; later copies there would fail."""
        self.opened.remove(next(x for x in self.opened if x.data_ptr() == address))

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy bytes."""
        self._run(lambda: ctypes.memmove(target, source, size))

    def write_value(self, stream: int, address: int, value: int, flags: int) -> None:
        """Write a flag."""
        flag = ctypes.c_uint32.from_address(address)
        self._run(lambda: setattr(flag, "value", value))

    def wait_value(self, stream: int, address: int, value: int, flags: int) -> None:
        """Wait for a flag."""
        flag = ctypes.c_uint32.from_address(address)

        def wait() -> None:
            while flag.value < value:
                pass

        self._run(wait)
