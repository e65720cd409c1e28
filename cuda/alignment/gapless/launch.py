"""Running the gapless filter on a GPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda, types
from numba.core import config

from cuda.alignment.compiled import compiled_kernel, generated_function, prepare_launch
from cuda.alignment.gapless.generator import Variant, source
from cuda.alignment.gapless.launch_table import Launch, choose_launch
from cuda.alignment.gapless.layout import ARITHMETICS, HALF, Arithmetic
from cuda.alignment.gapless.wide import THREADS, gapless_wide

_WORDS = types.int32[::1]
_OFFSETS = types.int64[::1]
PACKED_SIGNATURE = types.void(_WORDS, _WORDS, _OFFSETS, _WORDS, _WORDS, _WORDS, _WORDS)
WIDE_SIGNATURE = types.void(
    _WORDS, types.int32, types.uint8[::1], _OFFSETS, _WORDS, types.int32, _WORDS, _WORDS, _WORDS
)
_INTEGER_MAXIMUM_FROM = (9, 0)
# the simulator's shuffles are barriers of the block: it gets one warp; two blocks show that they share work
_SIMULATED_GRID, _SIMULATED_THREADS = 2, 32


@dataclass(frozen=True)
class _State:
    """What all calls on one stream share: counters, and the targets to be computed again.

    Calls on one stream follow each other, and each leaves the counters at zero.
    """

    work: Any
    flagged: Any


_states: dict[tuple[int, int], _State] = {}


def _state(device: int, stream: Any, count: int) -> _State:
    """The state of a stream, with room for so many targets."""
    key = device, int(getattr(stream, "handle", stream) or 0) if not config.ENABLE_CUDASIM else 0
    state = _states.get(key)
    if state is None or state.flagged.size <= count:
        flagged = cuda.device_array(count + 1, np.int32)
        flagged[:1].copy_to_device(np.zeros(1, np.int32))
        state = _states[key] = _State(cuda.to_device(np.zeros(2, np.int32)), flagged)
    return state


@dataclass(frozen=True)
class _Device:
    """The current GPU."""

    number: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int

    @classmethod
    def current(cls) -> "_Device":
        if config.ENABLE_CUDASIM:
            return cls(0, "simulator", (9, 0), 1, 2**18)
        device = cuda.get_current_device()
        name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
        shared = device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        return cls(device.id, name, tuple(device.compute_capability), device.MULTIPROCESSOR_COUNT, shared)


class GaplessFilter:
    """Gapless scores of one query against targets on the current GPU.

    Args:
        profile: int [query length ≥ 1, 32], half-bits; column = letter code.
        cache: folder for generated and compiled kernels.
        arithmetic: "half" (any GPU from sm_80) or "short" (sm_90).
        launch: instead of the one that the launch table has for the query.

    Raises:
        ValueError: the profile is not of that shape, the launch does not hold the query, or the GPU has no
            such arithmetic.
        OSError: the cache folder cannot be written.
    """

    def __init__(
        self, profile: np.ndarray, cache: Path, arithmetic: str = "half", launch: Launch | None = None
    ) -> None:
        if profile.ndim != 2 or profile.shape[1] != 32 or not len(profile):
            raise ValueError(f"a profile is [query length, 32], not {list(profile.shape)}")
        device = _Device.current()
        self._length = len(profile)
        self._device = device
        self._arithmetic: Arithmetic = ARITHMETICS[arithmetic]
        integer_maximum = device.capability >= _INTEGER_MAXIMUM_FROM
        if self._arithmetic is not HALF and not integer_maximum:
            raise ValueError(f"{device.name} has no packed 16-bit integer arithmetic")
        launch = launch or choose_launch(self._length, device.name, device.shared_bytes)
        if launch is not None and launch.layout.tile < self._length:
            raise ValueError(f"{self._length} query columns do not fit in {launch.layout.tile}")
        if int(np.abs(profile.astype(np.int64)).max()) > self._arithmetic.largest_entry:
            launch = None
        self._launch = launch
        self._wide_profile = cuda.to_device(np.ascontiguousarray(profile.T, np.int32).reshape(-1))
        self._wide = compiled_kernel(gapless_wide, WIDE_SIGNATURE, (THREADS, 1))
        if launch is not None:
            variant = Variant(launch.layout, self._arithmetic, integer_maximum)
            bounds = (launch.threads, launch.blocks)
            function = generated_function(source(variant), variant.name, cache, bounds)
            self._packed = compiled_kernel(function, PACKED_SIGNATURE, bounds)
            self._table = cuda.to_device(launch.layout.table(profile, self._arithmetic))
            self._blocks = prepare_launch(self._packed, launch.threads, launch.layout.table_bytes)

    def scores(self, residues: Any, offsets: Any, lengths: Any, scores: Any, stream: Any = 0) -> None:
        """Score targets; returns at once, the work is queued on the stream.

        Fastest for targets in order of length. Exact for scores of any size. Calls on one stream follow each
        other; calls on several may run at once.

        Args:
            residues: device uint8 [bytes, a multiple of 4]; targets as in a database, each starting at a
                multiple of four bytes.
            offsets: device int64 [n], first byte of each target.
            lengths: device int32 [n], residues of each target, ≥ 0.
            scores: device int32 [n], written.
            stream: numba's, or 0 for the default one.
        """
        count = lengths.size
        if not count:
            return
        state = _state(self._device.number, stream, count)
        every = self._launch is None
        if self._launch is not None:
            threads, grid = self._launch.threads, self._blocks * self._device.multiprocessors
            if config.ENABLE_CUDASIM:
                threads, grid = _SIMULATED_THREADS, _SIMULATED_GRID
            self._packed[grid, threads, stream, self._launch.layout.table_bytes](
                self._table, residues.view(np.int32), offsets, lengths, state.work, state.flagged, scores
            )
        grid = _SIMULATED_GRID if config.ENABLE_CUDASIM else 8 * self._device.multiprocessors
        threads = _SIMULATED_THREADS if config.ENABLE_CUDASIM else THREADS
        self._wide[grid, threads, stream](
            self._wide_profile, np.int32(self._length), residues, offsets, lengths, np.int32(every),
            state.work, state.flagged, scores,
        )  # fmt: skip
