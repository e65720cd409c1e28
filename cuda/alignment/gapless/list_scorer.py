"""Exact gapless scores of listed targets on a GPU, for a batch of queries at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment import DeviceSequences
from cuda.alignment.device import Device
from cuda.alignment.gapless.generator import Variant
from cuda.alignment.gapless.launch_table import Launch, choose_list_launch
from cuda.alignment.gapless.layout import HALF, SHORT, Arithmetic
from cuda.alignment.gapless.lists import MEMBER_SIZE, TargetLists
from cuda.alignment.gapless.runtime import (
    PreparedKernel,
    UploadedArray,
    UploadedTable,
    as_words,
    prepare_kernel,
)
from cuda.alignment.gapless.signatures import RESCORE_LISTED, THREADS
from cuda.alignment.gapless.tables import (
    ProfileLimits,
    TableSource,
    check_profile,
    profile_limits,
    wide_profile,
)
from cuda.alignment.kernel_cache import compiled_kernel

MIN_STRETCH = 1024
"""Minimum length of a stretch, in residues; stretches are never shorter than a query."""

_WIDE_BLOCKS = 8
"""Blocks per multiprocessor of the kernel for large scores."""


def list_variant(launch: Launch, device: Device) -> Variant:
    """Return the kernel for listed targets: with integers where the GPU has maxima of them.

    Their scores may be as large as 30,000; half-precision numbers represent scores up to 2,048 exactly.
    """
    return Variant("listed", launch.layout, _arithmetic(device), device.integer_maximum)


def _arithmetic(device: Device) -> Arithmetic:
    return SHORT if device.integer_maximum else HALF


@dataclass(frozen=True)
class _Group:
    """Consecutive queries with the same kernel."""

    first: int
    count: int
    kernel: PreparedKernel
    table: UploadedTable


class ListScorer:
    """Exact gapless scores of a batch of queries against listed targets on the current GPU.

    Fast for a few thousand targets per query, as several groups of lanes share each long one, and for batches
    in which queries with the same launch follow each other. Queries of more than 2,048 residues, and
    scores that exceed 16 bits, take ten times longer.

    Args:
        profiles: int [query length ≥ 1, 32] each, half-bits; column = letter code.
        cache: folder for generated and compiled kernels.
        limits: from `profile_limits`; computed if None.

    Raises:
        ValueError: a profile has another shape.
        OSError: the cache folder is not writable.
    """

    def __init__(
        self, profiles: Sequence[np.ndarray], cache: Path, limits: Sequence[ProfileLimits] | None = None
    ) -> None:
        for profile in profiles:
            check_profile(profile)
        limits = limits or profile_limits(profiles)
        self._device = device = Device.current()
        arithmetic = _arithmetic(device)
        self._groups: list[_Group] = []
        wide: list[tuple[int, int]] = []

        def launch_of(query: int) -> Launch | None:
            fits_16_bits = limits[query].largest_magnitude <= arithmetic.largest_entry
            return choose_list_launch(len(profiles[query]), device.shared_bytes) if fits_16_bits else None

        for launch, members in groupby(range(len(profiles)), key=launch_of):
            group = list(members)
            if launch is None:
                wide += [(query, 0) for query in group]
                continue
            wide += [
                (query, arithmetic.limit) for query in group if limits[query].best_total >= arithmetic.limit
            ]
            kernel = prepare_kernel(list_variant(launch, device), launch, cache, device)
            sources = [TableSource(launch.layout, arithmetic, profiles[query]) for query in group]
            self._groups.append(_Group(group[0], len(group), kernel, UploadedTable(sources)))
        self._wide_count = len(wide)
        self._wide_profiles = UploadedArray(_rescored_profiles(profiles, wide)) if wide else None

    @property
    def tables(self) -> list[UploadedTable]:
        """The tables, which may be uploaded ahead of time."""
        return [group.table for group in self._groups]

    @property
    def stretch(self) -> int:
        """Residues per stretch, with which the lists have to be cut."""
        tiles = [group.kernel.launch.layout.tile for group in self._groups]
        return max(MIN_STRETCH, *tiles, 0)

    def score(self, targets: DeviceSequences, lists: TargetLists, stream: Any = 0) -> None:
        """Queue the scoring of all unscored targets of the lists on a stream and return at once.

        Exact for scores of any size. Calls on different streams may overlap.

        Args:
            targets: see `GaplessBounder.bound_all`.
            lists: cut into stretches of `stretch` residues; their scores are written.
            stream: a stream, or 0.
        """
        for group in self._groups:
            blocks = self._blocks(group.kernel.blocks, group.count)
            group.kernel.launcher(stream, blocks * group.count)(
                group.table.copy_for(stream), as_words(targets.residues), targets.offsets, targets.lengths,
                lists.state, lists.scores, lists.targets, lists.ends,
                np.int32(group.first), np.int32(blocks), np.int32(self.stretch),
            )  # fmt: skip
        if self._wide_profiles is not None:
            blocks = self._blocks(_WIDE_BLOCKS, self._wide_count)
            _, threads = self._device.grid(1, THREADS)
            compiled_kernel(RESCORE_LISTED)[blocks * self._wide_count, threads, stream](
                self._wide_profiles.copy_for(stream), targets.residues, targets.offsets, targets.lengths,
                lists.targets, lists.scores, lists.state, np.int32(blocks),
            )  # fmt: skip

    def _blocks(self, per_multiprocessor: int, queries: int) -> int:
        """Return the number of blocks for each of several queries."""
        return max(self._device.grid(per_multiprocessor, THREADS)[0] // queries, 1)


def _rescored_profiles(profiles: Sequence[np.ndarray], members: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the argument `profiles` of `rescore_listed` for queries with their limits, int32."""
    scores = [wide_profile(profiles[query]) for query, _ in members]
    first, header = MEMBER_SIZE * len(members), []
    for (query, limit), of_query in zip(members, scores, strict=True):
        header += [query, first, len(profiles[query]), limit]
        first += len(of_query)
    return np.concatenate([np.array(header, np.int32), *scores])
