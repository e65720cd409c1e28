"""The current GPU, what is kept on each of its streams, and the kernels made ready for it."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda
from numba.core import config

from cuda.alignment.compiled import compiled_kernel, generated_function, prepare_launch
from cuda.alignment.gapless.generator import Variant, source
from cuda.alignment.gapless.launch_table import Launch
from cuda.alignment.gapless.signatures import SIGNATURES

_INTEGER_MAXIMUM_FROM = (9, 0)
# the simulator's shuffles are barriers of the block: it gets one warp; two blocks show that they share work
_SIMULATED_GRID, _SIMULATED_THREADS = 2, 32


@dataclass(frozen=True)
class Device:
    """A GPU.

    Args:
        number: of those that the driver shows this process.
        name: as the driver gives it.
        capability: compute capability.
        multiprocessors: how many it has.
        shared_bytes: shared memory that a block may have.
    """

    number: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int

    @classmethod
    def current(cls) -> "Device":
        """The one that this thread uses."""
        if config.ENABLE_CUDASIM:
            return cls(0, "simulator", (9, 0), 1, 2**18)
        device = cuda.get_current_device()
        name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
        shared = device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        return cls(device.id, name, tuple(device.compute_capability), device.MULTIPROCESSOR_COUNT, shared)

    @property
    def integer_maximum(self) -> bool:
        """It takes maxima of packed 16-bit integers."""
        return self.capability >= _INTEGER_MAXIMUM_FROM

    def grid(self, blocks: int, threads: int) -> tuple[int, int]:
        """Blocks and threads of a launch with so many blocks per multiprocessor."""
        if config.ENABLE_CUDASIM:
            return _SIMULATED_GRID, _SIMULATED_THREADS
        return blocks * self.multiprocessors, threads


@dataclass
class StreamState:
    """What all calls on one stream share, whatever the query: they follow each other, and each leaves the
    counters at zero.

    Args:
        stream: numba's, or 0.
    """

    stream: Any
    _arrays: dict[str, Any] = field(default_factory=dict)

    def counters(self, name: str, count: int) -> Any:
        """int32 [≥ count] on the GPU, zeros at first; what it held is lost when it has to grow."""
        array = self._arrays.get(name)
        if array is None or array.size < count:
            array = cuda.device_array(count, np.int32)
            array[:2].copy_to_device(np.zeros(min(2, count), np.int32), stream=self.stream)
            self._arrays[name] = array
        return array

    @property
    def work(self) -> Any:
        """int32 [2]: work taken, and warps or blocks that found no more."""
        return self.counters("work", 2)


_AS_WORDS = "_foldcli_as_words"
_states: dict[tuple[int, int], StreamState] = {}


def handle(stream: Any) -> int:
    """What the driver calls a stream of numba's; 0 for the default one."""
    return 0 if config.ENABLE_CUDASIM else int(getattr(stream, "handle", stream) or 0)


def stream_state(device: Device, stream: Any) -> StreamState:
    """The state of a stream of numba's, or of 0, the default one."""
    state = _states.setdefault((device.number, handle(stream)), StreamState(stream))
    state.stream = stream  # the driver may give a later stream the same handle
    return state


def as_words(residues: Any) -> Any:
    """Device uint8 [bytes] as int32 [bytes / 4], kept with the array: a view takes longer than a launch."""
    words = getattr(residues, _AS_WORDS, None)
    if words is None:
        words = residues.view(np.int32)
        with contextlib.suppress(AttributeError):
            setattr(residues, _AS_WORDS, words)
    return words


class Uploaded:
    """A host array that is copied to the GPU when a stream first asks for it, and no sooner: a copy outside a
    stream would wait for the work of all.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self._copies: dict[int, Any] = {}
        self._sent: Any = None

    def send(self) -> None:
        """Copy it now, for every stream; waits for nothing but the copy."""
        upload, _ = _upload_stream(Device.current().number)
        copy = cuda.to_device(self._array, stream=upload)
        upload.synchronize()
        self._sent = copy

    def on(self, stream: Any) -> Any:
        """The copy that work queued on this stream may read."""
        if self._sent is not None:
            return self._sent
        key = handle(stream)
        copy = self._copies.get(key)
        if copy is None:
            # the driver waits for the stream before it copies from pageable memory: one of its own is idle
            upload, sent = _upload_stream(Device.current().number)
            copy = self._copies[key] = cuda.to_device(self._array, stream=upload)
            sent.record(upload)
            sent.wait(stream)
        return copy


@cache
def _upload_stream(device: int) -> tuple[Any, Any]:
    """A stream for uploads to a GPU, and an event."""
    return cuda.stream(), cuda.event()


@dataclass(frozen=True)
class Ready:
    """A kernel that can be launched.

    Args:
        device: the GPU.
        launch: its shape.
        dispatcher: numba's.
        blocks: that a multiprocessor holds at once.
    """

    device: Device
    launch: Launch
    dispatcher: Any
    blocks: int

    @property
    def groups(self) -> int:
        """Targets that the GPU works on at once."""
        blocks, threads = self.device.grid(self.blocks, self.launch.threads)
        return blocks * threads // self.launch.layout.lanes

    @property
    def spilled_bytes(self) -> int:
        """Local memory of a thread, which holds what registers do not: none in a kernel that is fast."""
        return 0 if config.ENABLE_CUDASIM else int(self.dispatcher.local_bytes)

    def on(self, stream: Any, few: bool = False) -> Callable[..., None]:
        """To be called with the kernel's arguments: queued, as many blocks as the GPU holds.

        Args:
            stream: numba's, or 0.
            few: one block for each multiprocessor instead.
        """
        grid, threads = self.device.grid(1 if few else self.blocks, self.launch.threads)
        return self.dispatcher[grid, threads, stream, self.launch.layout.table_bytes]


@cache
def ready(variant: Variant, launch: Launch, folder: Path, device: Device) -> Ready:
    """Compile a kernel, or load it from the cache.

    Raises:
        OSError: the folder cannot be written.
        RuntimeError: the GPU has not the shared memory.
    """
    bounds = (launch.threads, launch.blocks)
    function = generated_function(source(variant), variant.name, folder, bounds)
    dispatcher = compiled_kernel(function, SIGNATURES[variant.kind], bounds)
    blocks = prepare_launch(dispatcher, launch.threads, launch.layout.table_bytes)
    return Ready(device, launch, dispatcher, blocks)
