"""Exact gapless scores of all targets on a GPU."""

from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment.device import Device
from cuda.alignment.gapless.generator import Variant
from cuda.alignment.gapless.launch_table import Launch, choose_launch
from cuda.alignment.gapless.layout import ARITHMETICS, BYTE, HALF, Arithmetic
from cuda.alignment.gapless.runtime import (
    PreparedKernel,
    UploadedArray,
    UploadedTable,
    as_words,
    prepare_kernel,
    stream_buffers,
)
from cuda.alignment.gapless.signatures import GAPLESS_WIDE, THREADS
from cuda.alignment.gapless.tables import ProfileLimits, TableSource, profile_limits, wide_profile
from cuda.alignment.kernel_cache import compiled_kernel


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
        self.table = UploadedTable([TableSource(kernel.launch.layout, arithmetic, profile)])


class GaplessScorer:
    """Exact gapless scores of one query against targets on the current GPU.

    Queries of more than 2,048 residues fit in no tile and are scored by a kernel that is ten times slower.
    For such queries, compute bounds with `GaplessBounder` first and score only the best targets with
    `ListScorer`.

    Args:
        profile: int [query length ≥ 1, 32], half-bits; column = letter code.
        cache: folder for generated and compiled kernels.
        arithmetic: "half" (any GPU from sm_80) or "short" (sm_90).
        launch: launch configuration of `score_all`; by default the one in the launch table.
        limits: from `profile_limits`; computed if None.

    Raises:
        ValueError: the profile has another shape, the launch cannot hold the query, or the GPU does not
            support the arithmetic.
        OSError: from `score_all`, if the cache folder is not writable.
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
        self._packed_kernel: _PackedKernel | None = None
        self._wide_profile: UploadedArray | None = None

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
        buffers = stream_buffers(self._device, stream)
        flagged = buffers.array("flagged", targets.lengths.size + 1)
        packed = self._prepared()
        if packed is not None:
            packed.kernel.launcher(stream)(
                packed.table.copy_for(stream), as_words(targets.residues), targets.offsets, targets.lengths,
                buffers.work, flagged, scores,
            )  # fmt: skip
        if packed is None or self._may_overflow:
            if self._wide_profile is None:
                self._wide_profile = UploadedArray(wide_profile(self._profile))
            wide = compiled_kernel(GAPLESS_WIDE)
            wide[(*self._device.grid(8, THREADS), stream)](
                self._wide_profile.copy_for(stream), np.int32(len(self._profile)),
                targets.residues, targets.offsets, targets.lengths, np.int32(packed is None),
                buffers.work, flagged, scores,
            )  # fmt: skip

    def _prepared(self) -> _PackedKernel | None:
        """Return the packed kernel; None if the profile exceeds 16 bits or no tile holds the query."""
        if self._packed_kernel is None:
            length, device = len(self._profile), self._device
            launch = self._launch or choose_launch(
                length, device.name, device.shared_bytes, "exact", self._cache
            )
            if launch is not None and self._fits_16_bits:
                variant = Variant("exact", launch.layout, self._arithmetic, device.integer_maximum)
                kernel = prepare_kernel(variant, launch, self._cache, device)
                self._packed_kernel = _PackedKernel(kernel, self._profile, self._arithmetic)
        return self._packed_kernel
