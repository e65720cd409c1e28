"""Exact gapless scores on a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment.compiled import compiled_kernel
from cuda.alignment.gapless.device import Device, Ready, Uploaded, as_words, handle, ready, stream_state
from cuda.alignment.gapless.generator import Kind, Variant
from cuda.alignment.gapless.launch_table import Launch, choose_launch, list_launch
from cuda.alignment.gapless.layout import ARITHMETICS, BYTE, HALF, Arithmetic
from cuda.alignment.gapless.signatures import STRETCHES_SIGNATURE, WIDE_SIGNATURE
from cuda.alignment.gapless.stretches import LEAST_STRETCH, list_stretches
from cuda.alignment.gapless.stretches import THREADS as STRETCHES_THREADS
from cuda.alignment.gapless.wide import THREADS as WIDE_THREADS
from cuda.alignment.gapless.wide import gapless_wide


def check_profile(profile: np.ndarray) -> None:
    """Raise ValueError unless it is [query length ≥ 1, 32]."""
    if profile.ndim != 2 or profile.shape[1] != 32 or not len(profile):
        raise ValueError(f"a profile is [query length, 32], not {list(profile.shape)}")


class _Packed:
    """A packed kernel and its table."""

    def __init__(self, kernel: Ready, profile: np.ndarray, arithmetic: Arithmetic) -> None:
        self.kernel = kernel
        self.table = Uploaded(kernel.launch.layout.table(profile, arithmetic))


class GaplessFilter:
    """Gapless scores of one query against targets on the current GPU.

    Queries that no tile holds, of more than 2,048 residues, are scored by a kernel that is an order of
    magnitude slower: to search with them, take `GaplessBounds` first and `rescore` the best.

    Args:
        profile: int [query length ≥ 1, 32], half-bits; column = letter code.
        cache: folder for generated and compiled kernels.
        arithmetic: "half" (any GPU from sm_80) or "short" (sm_90).
        launch: of `scores`, instead of the one that the launch table has for the query.

    Raises:
        ValueError: the profile is not of that shape, the launch does not hold the query, or the GPU has no
            such arithmetic.
        OSError: from `scores` and `rescore`, the cache folder cannot be written.
    """

    def __init__(
        self, profile: np.ndarray, cache: Path, arithmetic: str = "half", launch: Launch | None = None
    ) -> None:
        check_profile(profile)
        self._profile, self._cache = profile, cache
        self._device = Device.current()
        self._arithmetic: Arithmetic = ARITHMETICS[arithmetic]
        if self._arithmetic is BYTE:
            raise ValueError("bytes hold no exact scores")
        if self._arithmetic is not HALF and not self._device.integer_maximum:
            raise ValueError(f"{self._device.name} has no packed 16-bit integer arithmetic")
        if launch is not None and launch.layout.tile < len(profile):
            raise ValueError(f"{len(profile)} query columns do not fit in {launch.layout.tile}")
        self._asked = launch
        self._fits = int(np.abs(profile.astype(np.int64)).max()) <= self._arithmetic.largest_entry
        # what an alignment of the whole query could score
        most = int(np.maximum(profile.max(axis=1), 0).sum(dtype=np.int64))
        self._flags = most >= self._arithmetic.limit
        self._packed: dict[Kind, _Packed | None] = {}
        self._wide_profile: Uploaded | None = None
        self._rescoring: dict[tuple[int, bool], tuple[Callable[..., None], Callable[..., None]]] = {}

    def _packed_kernel(self, kind: Kind) -> _Packed | None:
        """None if 16 bits do not hold the profile, or no tile the query."""
        if kind not in self._packed:
            length, device = len(self._profile), self._device
            if kind == "listed":
                launch = list_launch(length, device.shared_bytes)
            else:
                launch = self._asked or choose_launch(
                    length, device.name, device.shared_bytes, "exact", self._cache
                )
            packed = None
            if launch is not None and self._fits:
                variant = Variant(kind, launch.layout, self._arithmetic, device.integer_maximum)
                kernel = ready(variant, launch, self._cache, device)
                packed = _Packed(kernel, self._profile, self._arithmetic)
            self._packed[kind] = packed
        return self._packed[kind]

    def prepare(self) -> None:
        """Copy to the GPU what `rescore` needs there; may be called in another thread before it."""
        packed = self._packed_kernel("listed")
        if packed is not None:
            packed.table.send()

    def _rescoring_on(
        self, packed: _Packed, stream: Any, few: bool
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        """What cuts and what scores listed targets, kept: to look them up takes as long as a launch."""
        key = handle(stream), few
        launches = self._rescoring.get(key)
        if launches is None:
            cut = compiled_kernel(list_stretches, STRETCHES_SIGNATURE, (STRETCHES_THREADS, 1))
            grid = self._device.grid(1, STRETCHES_THREADS)
            launches = self._rescoring[key] = cut[(*grid, stream)], packed.kernel.on(stream, few)
        return launches

    def _finish(
        self,
        every: bool,
        listed: Any,
        residues: Any,
        offsets: Any,
        lengths: Any,
        scores: Any,
        stream: Any,
        few: bool = False,
    ) -> None:
        """Score what is flagged, or all, without limits."""
        state = stream_state(self._device, stream)
        flagged = state.counters("flagged", lengths.size + 1)
        if self._wide_profile is None:
            self._wide_profile = Uploaded(np.ascontiguousarray(self._profile.T, np.int32).reshape(-1))
        wide = compiled_kernel(gapless_wide, WIDE_SIGNATURE, (WIDE_THREADS, 1))
        wide[(*self._device.grid(1 if few else 8, WIDE_THREADS), stream)](
            self._wide_profile.on(stream), np.int32(len(self._profile)), residues, offsets, lengths,
            np.int32(every), np.int32(listed is not None), flagged if listed is None else listed,
            state.work, flagged, scores,
        )  # fmt: skip

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
        if not lengths.size:
            return
        packed = self._packed_kernel("exact")
        if packed is not None:
            state = stream_state(self._device, stream)
            packed.kernel.on(stream)(
                packed.table.on(stream), as_words(residues), offsets, lengths, state.work,
                state.counters("flagged", lengths.size + 1), scores,
            )  # fmt: skip
        if packed is None or self._flags:
            self._finish(packed is None, None, residues, offsets, lengths, scores, stream)

    def rescore(
        self,
        residues: Any,
        offsets: Any,
        lengths: Any,
        listed: Any,
        scores: Any,
        stream: Any = 0,
        few: bool = False,
    ) -> None:
        """Score listed targets; returns at once, the work is queued on the stream.

        Quick for some thousand targets: long ones are shared out. Exact for scores of any size.

        Args:
            residues, offsets, lengths, stream: see `scores`.
            listed: device int32 [n + 1], how many targets are listed, and which, each once, in any order.
            scores: device int32 [n], written: the score of target listed[1 + k] at place k.
            few: some hundred at most are expected: they leave the GPU to other work.
        """
        if not lengths.size:
            return
        packed = self._packed_kernel("listed")
        if packed is not None:
            state = stream_state(self._device, stream)
            overlap = np.int32((len(self._profile) + 3) // 4 * 4)
            stretch = np.int32(max(LEAST_STRETCH, overlap))
            room = lengths.size + residues.size // int(stretch)
            stretches = state.counters("stretches", 1 + 2 * room)
            cut, score = self._rescoring_on(packed, stream, few)
            cut(listed, lengths, stretch, stretches, scores)
            score(
                packed.table.on(stream), as_words(residues), offsets, lengths, state.work,
                state.counters("flagged", lengths.size + 1), scores, listed, stretches, stretch, overlap,
            )  # fmt: skip
        if packed is None or self._flags:
            self._finish(packed is None, listed, residues, offsets, lengths, scores, stream, few)
