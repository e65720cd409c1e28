"""Upper bounds of gapless scores on a GPU, faster than the scores."""

from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment.compiled import compiled_kernel
from cuda.alignment.gapless.border import (
    FILL_SIGNATURE,
    FILL_THREADS,
    border_words,
    fill_unbounded,
    launches_over,
)
from cuda.alignment.gapless.byte_table import LARGEST, byte_table, slack
from cuda.alignment.gapless.device import Device, Ready, Uploaded, as_words, ready, stream_state
from cuda.alignment.gapless.generator import UNBOUNDED, Kind, Variant
from cuda.alignment.gapless.launch import check_profile
from cuda.alignment.gapless.launch_table import Launch, bordered, choose_launch, widest
from cuda.alignment.gapless.layout import BYTE

SHARED = 1024
"""Residues from which a target may be shared by the groups of a warp."""
SHARED_IN_QUERIES = 8
"""And how many queries long it must be: each group starts a query before its share."""

__all__ = ["UNBOUNDED", "GaplessBounds"]


class GaplessBounds:
    """Upper bounds of the gapless scores of one query against targets on the current GPU.

    A query longer than the widest tile is computed tile after tile, all of one width; a column of cells goes
    from each to the next through GPU memory, up to 258 MB per stream.

    Args:
        profile: int [query length ≥ 1, 32], half-bits; column = letter code.
        cache: folder for generated and compiled kernels.
        launch: of a tile, instead of the one that the launch table has for the query.

    Raises:
        ValueError: the profile is not of that shape.
        OSError: from `bounds`, the cache folder cannot be written.
    """

    def __init__(self, profile: np.ndarray, cache: Path, launch: Launch | None = None) -> None:
        check_profile(profile)
        self._device, self._cache = Device.current(), cache
        length = len(profile)
        if launch is None:
            table = self._device.name, self._device.shared_bytes, "bounds", cache
            tiles = -(-length // max(widest(*table), 1))
            launch = choose_launch(-(-length // tiles), *table)
        if int(profile.max()) > LARGEST:
            launch = None
        if launch is not None and launch.layout.tile < length:
            launch = bordered(launch)
        self._launch = launch
        self._overlap = np.int32((length + 3) // 4 * 4)
        self._least_shared = max(SHARED, SHARED_IN_QUERIES * length)
        self._slack = np.int32(slack(profile))
        self._tables: list[Uploaded] = []
        self._kernel: Ready | None = None
        if launch is not None:
            width = launch.layout.tile
            parts = [profile[first : first + width] for first in range(0, length, width)]
            self._tables = [Uploaded(byte_table(launch.layout, part)) for part in parts]

    def prepare(self) -> None:
        """Copy to the GPU what `bounds` needs there; may be called in another thread before it."""
        for table in self._tables:
            table.send()

    def bounds(self, residues: Any, offsets: Any, lengths: Any, bounds: Any, stream: Any = 0) -> None:
        """Bound scores from above; returns at once, the work is queued on the stream.

        Fastest for targets in order of length. Where no score of the profile is larger than 7 or less than
        −4, a bound is too high by at most 4; elsewhere it is close.

        Args:
            residues: device uint8 [bytes, a multiple of 4]; targets as in a database, each starting at a
                multiple of four bytes.
            offsets: device int64 [n], first byte of each target; ascending.
            lengths: device int32 [n], residues of each target, ≥ 0.
            bounds: device int16 [n], written: no less than the score, and UNBOUNDED where the kernel cannot
                vouch for that: from a bound of 1,024 on, and everywhere if a score of the profile is larger
                than 127.
            stream: numba's, or 0 for the default one.
        """
        if not lengths.size:
            return
        if self._launch is None:
            fill = compiled_kernel(fill_unbounded, FILL_SIGNATURE, (FILL_THREADS, 1))
            fill[(*self._device.grid(8, FILL_THREADS), stream)](bounds)
            return
        state = stream_state(self._device, stream)
        kind: Kind = "bounds" if len(self._tables) == 1 else "bordered"
        if self._kernel is None:
            variant = Variant(kind, self._launch.layout, BYTE, self._device.integer_maximum)
            self._kernel = ready(variant, self._launch, self._cache, self._device)
        kernel = self._kernel
        launch = kernel.on(stream)
        targets = as_words(residues), offsets, lengths, state.work
        tables = [table.on(stream) for table in self._tables]
        if kind == "bounds":
            # the longest come first: one that takes less than half of the whole time keeps nobody waiting
            long_from = max(residues.size // kernel.groups // 2, self._least_shared)
            launch(tables[0], *targets, bounds, self._slack, np.int32(long_from), self._overlap)
            return
        border = border_words(state, residues.size)
        for from_byte, to_byte in launches_over(residues.size, border.size):
            for place, table in enumerate(tables):
                launch(
                    table,
                    *targets,
                    bounds,
                    self._slack,
                    border,
                    np.int32(place == 0),
                    np.int64(from_byte),
                    np.int64(to_byte),
                )
