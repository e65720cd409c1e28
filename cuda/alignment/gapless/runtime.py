"""The current GPU, buffers per stream, uploaded tables, and kernels prepared for launch."""

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import device as gpu
from cuda.alignment.device import Device, stream_handle
from cuda.alignment.gapless.generator import Variant, source
from cuda.alignment.gapless.launch_table import Launch
from cuda.alignment.gapless.signatures import GENERATED_SIGNATURES
from cuda.alignment.gapless.tables import TableSource, write_tables
from cuda.alignment.kernel_cache import KernelSource, compiled_kernel, generated_function, prepare_launch

_AS_WORDS = "_foldcli_as_words"
_STAGING_BUFFERS = 2


@dataclass
class StreamBuffers:
    """Buffers shared by all launches on one stream.

    Launches on a stream run one after the other, and each resets its counters to zero.
    """

    stream: Any
    _arrays: dict[str, Any] = field(default_factory=dict)

    def array(self, name: str, count: int) -> Any:
        """Return the array with a name, device int32 [≥ count].

        The first two numbers of a new array, its counters, are zero. The content is lost when the array has
        to grow.
        """
        array = self._arrays.get(name)
        if array is None or array.size < count:
            if array is not None:
                # queued work may still use it, and its memory may be reused as soon as it is freed
                self._wait()
            array = gpu.device_array(count, np.int32)
            array[:2].copy_to_device(np.zeros(min(2, count), np.int32), stream=self.stream)
            self._arrays[name] = array
        return array

    def _wait(self) -> None:
        """Wait for all work queued on the stream."""
        if self.stream:
            self.stream.synchronize()
        else:
            gpu.synchronize()


_buffers: dict[tuple[int, int], StreamBuffers] = {}


def stream_buffers(device: Device, stream: Any) -> StreamBuffers:
    """Return the buffers of a stream, or of the default stream 0."""
    buffers = _buffers.setdefault((device.number, stream_handle(stream)), StreamBuffers(stream))
    buffers.stream = stream  # the driver may reuse the handle for a later stream
    return buffers


def as_words(residues: Any) -> Any:
    """View device uint8 [bytes] as int32 [bytes / 4]; cached, as making a view takes longer than a launch."""
    words = getattr(residues, _AS_WORDS, None)
    if words is None:
        words = residues.view(np.int32)
        with contextlib.suppress(AttributeError):
            setattr(residues, _AS_WORDS, words)
    return words


class _Uploaded(ABC):
    """Data of the host, copied to the GPU by a `TableUploader`, or else on first use.

    The copy on first use is made on a separate stream; on the default stream it would wait for the work on
    all streams.
    """

    def __init__(self) -> None:
        self._copy: Any = None
        self._copies: dict[int, Any] = {}

    @property
    @abstractmethod
    def array(self) -> np.ndarray:
        """The array to copy."""

    def set_copy(self, copy: Any) -> None:
        """Set the device copy for all streams."""
        self._copy = copy

    def copy_for(self, stream: Any) -> Any:
        """Return a device copy for work that is queued on this stream after the call."""
        if self._copy is not None:
            return self._copy
        key = stream_handle(stream)
        copy = self._copies.get(key)
        if copy is None:
            # before copying pageable memory the driver waits for the stream; the upload stream is idle
            upload, uploaded = _upload_stream(Device.current().number)
            copy = self._copies[key] = gpu.to_device(self.array, stream=upload)
            uploaded.record(upload)
            uploaded.wait(stream)
        return copy


class UploadedArray(_Uploaded):
    """An array on the GPU."""

    def __init__(self, array: np.ndarray) -> None:
        super().__init__()
        self._array = array

    @property
    def array(self) -> np.ndarray:
        """The array on the host."""
        return self._array


class UploadedTable(_Uploaded):
    """Tables on the GPU, one after the other.

    Args:
        sources: at least one, all of the same arithmetic.
    """

    def __init__(self, sources: Sequence[TableSource]) -> None:
        super().__init__()
        self.sources = sources

    @property
    def words(self) -> int:
        """Size of all tables in words."""
        return sum(source.words for source in self.sources)

    @cached_property
    def array(self) -> np.ndarray:
        """The tables, int32 [words]; not needed if a `TableUploader` builds them."""
        tables = np.empty(self.words, np.int32)
        write_tables(self.sources, tables)
        return tables


class TableUploader:
    """Builds tables and copies them to the GPU, many with one transfer, without waiting; used by one thread.

    Args:
        allocate: (count, dtype) → device array of at least `count` elements; may raise.
    """

    def __init__(self, allocate: Callable[[int, np.dtype[Any]], Any]) -> None:
        self._allocate, self._stream = allocate, gpu.new_stream(urgent=True)
        # pinned host memory, and the event after the copy from it
        self._staging: deque[tuple[np.ndarray, Any]] = deque()

    def upload(self, tables: Sequence[UploadedTable], arrays: Sequence[UploadedArray] = ()) -> Any:
        """Build at least one table, and queue the copy of all, for use on every stream.

        Args:
            tables: the tables.
            arrays: int32 arrays to copy with them.

        Returns:
            The event that a stream has to wait for before it uses the copies.
        """
        by_arithmetic: dict[str, list[UploadedTable]] = {}
        for table in tables:
            by_arithmetic.setdefault(table.sources[0].arithmetic.name, []).append(table)
        total = sum(table.words for table in tables) + sum(each.array.size for each in arrays)
        on_device = self._allocate(total, np.dtype(np.int32))[:total]
        staging = self._take_staging(total)
        end = 0
        for group in by_arithmetic.values():
            first = end
            for table in group:
                start, end = end, end + table.words
                table.set_copy(on_device[start:end])
            write_tables([source for table in group for source in table.sources], staging[first:end])
        for each in arrays:
            start, end = end, end + each.array.size
            staging[start:end] = each.array.reshape(-1)
            each.set_copy(on_device[start:end].reshape(*each.array.shape))
        on_device.copy_to_device(staging[:total], stream=self._stream)
        copied = gpu.event()
        copied.record(self._stream)
        self._staging.append((staging, copied))
        return copied

    def _take_staging(self, words: int) -> np.ndarray:
        """Return pinned memory from which nothing is being copied."""
        if len(self._staging) == _STAGING_BUFFERS:
            staging, copied = self._staging.popleft()
            copied.synchronize()
            if len(staging) >= words:
                return staging
        return gpu.pinned_array(1 << max(words - 1, 1).bit_length(), np.int32)


@cache
def _upload_stream(device: int) -> tuple[Any, Any]:
    """Return the stream for uploads to a GPU, and an event."""
    return gpu.stream(), gpu.event()


@dataclass(frozen=True)
class PreparedKernel:
    """A compiled kernel with its launch configuration.

    Args:
        device: the GPU.
        launch: the configuration.
        kernel: result of `compiled_kernel`.
        blocks: number of blocks that fit on a multiprocessor at once.
    """

    device: Device
    launch: Launch
    kernel: Any
    blocks: int

    @property
    def groups(self) -> int:
        """Number of targets that the GPU works on at once."""
        blocks, threads = self.device.grid(self.blocks, self.launch.threads)
        return blocks * threads // self.launch.layout.lanes

    @property
    def spilled_bytes(self) -> int:
        """Local memory per thread, used for spilled registers."""
        return int(self.kernel.local_bytes)

    def launcher(self, stream: Any, blocks: int | None = None) -> Callable[..., None]:
        """Return a function that takes the kernel's arguments and queues it on a stream.

        Args:
            stream: a stream, or 0.
            blocks: number of blocks; by default as many as fit on the GPU.
        """
        grid, threads = self.device.grid(self.blocks, self.launch.threads)
        return self.kernel[blocks or grid, threads, stream, self.launch.layout.table_bytes]


@cache
def prepare_kernel(variant: Variant, launch: Launch, folder: Path, device: Device) -> PreparedKernel:
    """Compile a kernel, or load it from the cache.

    Raises:
        OSError: the folder is not writable.
        RuntimeError: the GPU does not have enough shared memory.
    """
    kernel = compiled_kernel(kernel_source(variant, (launch.threads, launch.blocks), folder))
    blocks = prepare_launch(kernel, launch.threads, launch.layout.table_bytes)
    return PreparedKernel(device, launch, kernel, blocks)


def kernel_source(variant: Variant, launch_bounds: tuple[int, int], folder: Path) -> KernelSource:
    """Describe a generated kernel; its module is written to a folder if it has to be compiled."""

    def make() -> Callable[..., Any]:
        return generated_function(source(variant), variant.name, folder, launch_bounds)

    signature = GENERATED_SIGNATURES[variant.kind]
    return KernelSource(variant.name, variant.name, signature, launch_bounds, make)
