"""Exact gapless scores on a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment.device import Device, stream_handle
from cuda.alignment.gapless.generator import Kind, Variant
from cuda.alignment.gapless.launch_table import Launch, choose_launch, choose_list_launch
from cuda.alignment.gapless.layout import ARITHMETICS, BYTE, HALF, Arithmetic
from cuda.alignment.gapless.runtime import (
    PreparedKernel,
    UploadedArray,
    UploadedTable,
    as_words,
    prepare_kernel,
    stream_buffers,
)
from cuda.alignment.gapless.signatures import GAPLESS_WIDE, LIST_STRETCHES, THREADS
from cuda.alignment.gapless.tables import ProfileLimits, TableSource, profile_limits
from cuda.alignment.kernel_cache import compiled_kernel

MIN_STRETCH = 256
"""Minimum length of a stretch, in residues; stretches are never shorter than the query."""


def check_profile(profile: np.ndarray) -> None:
    """Check the shape of a profile.

    Raises:
        ValueError: it is not [query length ≥ 1, 32].
    """
    if profile.ndim != 2 or profile.shape[1] != 32 or not len(profile):
        raise ValueError(f"a profile has shape [query length, 32], not {list(profile.shape)}")


class _PackedKernel:
    """A packed 16-bit kernel and the query's table for it."""

    def __init__(self, kernel: PreparedKernel, profile: np.ndarray, arithmetic: Arithmetic) -> None:
        self.kernel = kernel
        self.table = UploadedTable(TableSource(kernel.launch.layout, arithmetic, profile))


class GaplessScorer:
    """Exact gapless scores of one query against targets on the current GPU.

    Queries of more than 2,048 residues fit in no tile and are scored by a kernel that is ten times slower.
    For such queries, compute bounds with `GaplessBounder` first and score only the best targets with
    `score_listed`.

    Args:
        profile: int [query length ≥ 1, 32], half-bits; column = letter code.
        cache: folder for generated and compiled kernels.
        arithmetic: "half" (any GPU from sm_80) or "short" (sm_90).
        launch: launch configuration of `score_all`; by default the one in the launch table.
        limits: from `profile_limits`; computed if None.

    Raises:
        ValueError: the profile has another shape, the launch cannot hold the query, or the GPU does not
            support the arithmetic.
        OSError: from `score_all` and `score_listed`, if the cache folder is not writable.
    """

    def __init__(
        self,
        profile: np.ndarray,
        cache: Path,
        arithmetic: str = "half",
        launch: Launch | None = None,
        limits: ProfileLimits | None = None,
    ) -> None:
        check_profile(profile)
        limits = limits or profile_limits([profile])[0]
        self._profile, self._cache = profile, cache
        self._device = Device.current()
        self._arithmetic: Arithmetic = ARITHMETICS[arithmetic]
        if self._arithmetic is BYTE:
            raise ValueError("byte arithmetic does not give exact scores")
        if self._arithmetic is not HALF and not self._device.integer_maximum:
            raise ValueError(f"{self._device.name} has no packed 16-bit integer arithmetic")
        if launch is not None and launch.layout.tile < len(profile):
            raise ValueError(f"{len(profile)} query columns do not fit in {launch.layout.tile}")
        self._launch = launch
        self._fits_16_bits = limits.largest_magnitude <= self._arithmetic.largest_entry
        self._may_overflow = limits.best_total >= self._arithmetic.limit
        self._packed_kernels: dict[Kind, _PackedKernel | None] = {}
        self._wide_profile: UploadedArray | None = None
        self._listed_launchers: dict[tuple[int, bool], tuple[Callable[..., None], Callable[..., None]]] = {}

    @property
    def tables(self) -> list[UploadedTable]:
        """The tables that `score_listed` needs, which may be uploaded ahead of time."""
        packed = self._packed_kernel("listed")
        return [] if packed is None else [packed.table]

    def score_all(self, targets: DeviceSequences, scores: Any, stream: Any = 0) -> None:
        """Queue the scoring of all targets on a stream and return at once.

        Fastest for targets sorted by length. Exact for scores of any size. Calls on different streams may
        overlap.

        Args:
            targets: sequences as in a target database: each starts at a multiple of four bytes, and the total
                number of bytes is a multiple of 4. Lengths may be 0.
            scores: device int32 [n], written.
            stream: a stream, or 0 for the default stream.
        """
        if not targets.lengths.size:
            return
        packed = self._packed_kernel("exact")
        if packed is not None:
            buffers = stream_buffers(self._device, stream)
            packed.kernel.launcher(stream)(
                packed.table.copy_for(stream), as_words(targets.residues), targets.offsets, targets.lengths,
                buffers.work, buffers.array("flagged", targets.lengths.size + 1), scores,
            )  # fmt: skip
        if packed is None or self._may_overflow:
            self._score_wide(packed is None, None, targets, scores, stream)

    def score_listed(
        self, targets: DeviceSequences, listed: Any, scores: Any, stream: Any = 0, small_grid: bool = False
    ) -> None:
        """Queue the scoring of listed targets on a stream and return at once.

        Fast for a few thousand targets, as several groups share each long one. Exact for scores of any size.

        Args:
            targets: see `score_all`.
            listed: device int32 [n + 1], the number of listed targets, then their indices: distinct, in any
                order.
            scores: device int32 [n], written: scores[k] is that of target listed[1 + k].
            stream: a stream, or 0.
            small_grid: use few blocks, which suffice for a few hundred targets and leave room for other work.
        """
        count = targets.lengths.size
        if not count:
            return
        packed = self._packed_kernel("listed")
        if packed is not None:
            buffers = stream_buffers(self._device, stream)
            overlap = np.int32((len(self._profile) + 3) // 4 * 4)
            stretch = np.int32(max(MIN_STRETCH, overlap))
            capacity = count + targets.residues.size // int(stretch)
            stretches = buffers.array("stretches", 1 + 2 * capacity)
            list_all, score = self._listed_launcher(packed, stream, small_grid)
            list_all(listed, targets.lengths, stretch, stretches, scores)
            score(
                packed.table.copy_for(stream), as_words(targets.residues), targets.offsets, targets.lengths,
                buffers.work, buffers.array("flagged", count + 1), scores, listed, stretches, stretch,
                overlap,
            )  # fmt: skip
        if packed is None or self._may_overflow:
            self._score_wide(packed is None, listed, targets, scores, stream, small_grid)

    def _packed_kernel(self, kind: Kind) -> _PackedKernel | None:
        """Return the packed kernel; None if the profile exceeds 16 bits or no tile holds the query."""
        if kind not in self._packed_kernels:
            length, device = len(self._profile), self._device
            if kind == "listed":
                launch = choose_list_launch(length, device.shared_bytes)
            else:
                launch = self._launch or choose_launch(
                    length, device.name, device.shared_bytes, "exact", self._cache
                )
            packed = None
            if launch is not None and self._fits_16_bits:
                variant = Variant(kind, launch.layout, self._arithmetic, device.integer_maximum)
                kernel = prepare_kernel(variant, launch, self._cache, device)
                packed = _PackedKernel(kernel, self._profile, self._arithmetic)
            self._packed_kernels[kind] = packed
        return self._packed_kernels[kind]

    def _listed_launcher(
        self, packed: _PackedKernel, stream: Any, small_grid: bool
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return launchers of list_stretches and of the scoring kernel; cached, as creating them is slow."""
        key = stream_handle(stream), small_grid
        launchers = self._listed_launchers.get(key)
        if launchers is None:
            cut = compiled_kernel(LIST_STRETCHES)
            grid = self._device.grid(1, THREADS)
            launchers = cut[(*grid, stream)], packed.kernel.launcher(stream, small_grid)
            self._listed_launchers[key] = launchers
        return launchers

    def _score_wide(
        self,
        score_all: bool,
        listed: Any,
        targets: DeviceSequences,
        scores: Any,
        stream: Any,
        small_grid: bool = False,
    ) -> None:
        """Score all targets, or the flagged ones, in 32 bits."""
        buffers = stream_buffers(self._device, stream)
        flagged = buffers.array("flagged", targets.lengths.size + 1)
        if self._wide_profile is None:
            self._wide_profile = UploadedArray(np.ascontiguousarray(self._profile.T, np.int32).reshape(-1))
        wide = compiled_kernel(GAPLESS_WIDE)
        wide[(*self._device.grid(1 if small_grid else 8, THREADS), stream)](
            self._wide_profile.copy_for(stream), np.int32(len(self._profile)),
            targets.residues, targets.offsets, targets.lengths,
            np.int32(score_all), np.int32(listed is not None), flagged if listed is None else listed,
            buffers.work, flagged, scores,
        )  # fmt: skip
