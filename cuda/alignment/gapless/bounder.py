"""Upper bounds of gapless scores on a GPU, faster to compute than the scores.

A query longer than the widest tile is processed tile by tile. An array in GPU memory, the border, passes the
last column of each tile to the next one: one half-precision number per target residue. A launch covers as
many targets as fit in the border.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment.device import Device
from cuda.alignment.gapless.generator import Kind, Variant
from cuda.alignment.gapless.launch_table import Launch, border_launch, choose_launch, max_query_length
from cuda.alignment.gapless.layout import BYTE, MAX_SCORE
from cuda.alignment.gapless.runtime import (
    PreparedKernel,
    StreamBuffers,
    UploadedTable,
    as_words,
    prepare_kernel,
    stream_buffers,
)
from cuda.alignment.gapless.signatures import FILL_UNBOUNDED, THREADS
from cuda.alignment.gapless.tables import ProfileLimits, TableSource, check_profile, profile_limits
from cuda.alignment.kernel_cache import compiled_kernel

_PART_FACTOR = 1.5
"""The longest target that is not cut into parts has this times the residues per group of lanes. A smaller
value would cost more, as each part starts one query length before it; a larger one would leave more groups
without work at the end of a launch."""
MAX_PART = 2**25
"""Limit of this length, so that its multiples are 32-bit numbers."""

BORDER_SPAN = 2**27
"""Size of the range, in residues, in which the targets of one launch start."""
BORDER_OVERHANG = 2**20
"""Number of residues by which a target may extend beyond this range; longer targets get UNBOUNDED."""
_MIN_BORDER_SPAN = 2**22
_NO_END = 2**62


class GaplessBounder:
    """Upper bounds of the gapless scores of one query against targets on the current GPU.

    For a query longer than the widest tile, up to 258 MB of GPU memory per stream are used for the border.

    Args:
        profile: int [query length ≥ 1, 32], half-bits; column = letter code.
        cache: folder for generated and compiled kernels.
        launch: launch configuration of a tile; by default the one in the launch table.
        limits: from `profile_limits`; computed if None.

    Raises:
        ValueError: the profile has another shape.
        OSError: from `bound_all`, if the cache folder is not writable.
    """

    def __init__(
        self,
        profile: np.ndarray,
        cache: Path,
        launch: Launch | None = None,
        limits: ProfileLimits | None = None,
    ) -> None:
        check_profile(profile)
        limits = limits or profile_limits([profile])[0]
        self._device, self._cache = Device.current(), cache
        length = len(profile)
        if launch is None:
            table = self._device.name, self._device.shared_bytes, cache
            tiles = -(-length // max(max_query_length(*table), 1))
            launch = choose_launch(-(-length // tiles), *table)
        if limits.highest_entry > MAX_SCORE:
            launch = None
        if launch is not None and launch.layout.tile < length:
            launch = border_launch(launch)
        self._launch = launch
        self._overlap = np.int32((length + 3) // 4 * 4)
        self._min_part = length
        self._slack = np.int32(limits.slack)
        self._tables: list[UploadedTable] = []
        self._kernel: PreparedKernel | None = None
        if launch is not None:
            width = launch.layout.tile
            tiles_of_profile = [profile[first : first + width] for first in range(0, length, width)]
            self._tables = [
                UploadedTable([TableSource(launch.layout, BYTE, tile)]) for tile in tiles_of_profile
            ]

    @property
    def tables(self) -> list[UploadedTable]:
        """The tables, which may be uploaded ahead of time."""
        return self._tables

    def bound_all(self, targets: DeviceSequences, bounds: Any, stream: Any = 0) -> None:
        """Queue the computation of all bounds on a stream and return at once.

        Fastest for targets sorted by length. If all profile scores are between −4 and 7, a bound exceeds the
        score by at most 4; otherwise it is close to it.

        Args:
            targets: sequences as in a target database: each starts at a multiple of four bytes, in ascending
                order, and the total number of bytes is a multiple of 4. Lengths may be 0.
            bounds: device int16 [n], written: no less than the score. UNBOUNDED where the kernel cannot
                guarantee that: for bounds from 1,024 on, and everywhere if a profile score exceeds 127.
            stream: a stream, or 0 for the default stream.
        """
        if not targets.lengths.size:
            return
        if self._launch is None:
            fill = compiled_kernel(FILL_UNBOUNDED)
            fill[(*self._device.grid(8, THREADS), stream)](bounds)
            return
        buffers = stream_buffers(self._device, stream)
        kind: Kind = "bounds" if len(self._tables) == 1 else "bordered"
        if self._kernel is None:
            variant = Variant(kind, self._launch.layout, BYTE, self._device.integer_maximum)
            self._kernel = prepare_kernel(variant, self._launch, self._cache, self._device)
        kernel, size = self._kernel, targets.residues.size
        launch = kernel.launcher(stream)
        common = as_words(targets.residues), targets.offsets, targets.lengths, buffers.array("work", 2)
        tables = [table.copy_for(stream) for table in self._tables]
        if kind == "bounds":
            part = max(int(_PART_FACTOR * size / kernel.groups), self._min_part)
            longest_part = np.int32(min(part, MAX_PART))
            launch(tables[0], *common, bounds, self._slack, longest_part, self._overlap)
            return
        border = _border(buffers, size)
        for from_byte, to_byte in launch_ranges(size, border.size):
            for tile, table in enumerate(tables):
                launch(
                    table,
                    *common,
                    bounds,
                    self._slack,
                    border,
                    np.int32(tile == 0),
                    np.int64(from_byte),
                    np.int64(to_byte),
                )


def launch_ranges(residues: int, border_words: int) -> Iterator[tuple[int, int]]:
    """Yield the byte range in which the targets of each launch start.

    Args:
        residues: bytes of all targets.
        border_words: size of the border, in words of two residues.
    """
    span = 2 * border_words - BORDER_OVERHANG
    if residues <= 2 * border_words:
        yield 0, _NO_END
        return
    for first in range(0, residues, span):
        yield first, first + span


def _border(buffers: StreamBuffers, residues: int) -> Any:
    """Return the border, device int32 [≥ 2], with one word for two residues.

    It covers all residues, at most BORDER_SPAN + BORDER_OVERHANG, and fewer if memory is short.

    Raises:
        Exception: the error of the driver, if memory is too short even for _MIN_BORDER_SPAN.
    """
    span = BORDER_SPAN
    while True:
        try:
            return buffers.array("border", max(min(residues, span + BORDER_OVERHANG) // 2, 2))
        except Exception as error:  # the driver's, or the simulator's
            if "OUT_OF_MEMORY" not in str(error).upper().replace(" ", "_") or span <= _MIN_BORDER_SPAN:
                raise
            span //= 2
