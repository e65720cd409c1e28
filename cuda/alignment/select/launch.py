"""Launches of the selection kernels."""

from typing import Any

import numpy as np
from numba import cuda

from cuda.alignment.select.kernel import BINS, THREADS, kernels_for


class TopSelector:
    """Chooses the best scores on the current GPU, again and again in the same memory.

    Args:
        most: how many are chosen at most, ≥ 1.
        stream: what to launch on.
        blocks: of the kernels that read the scores.
        threads: per block, a power of 2 up to THREADS.
        bins: of the histogram, a multiple of threads up to BINS; scores further than this above the smallest
            take one more pass for each 2^8 … 2^12 times as far.
    """

    def __init__(
        self, most: int, stream: Any = 0, blocks: int = 264, threads: int = THREADS, bins: int = BINS
    ) -> None:
        self._most, self._stream, self._blocks, self._threads = most, stream, blocks, threads
        self._histogram = cuda.to_device(np.zeros(bins, np.int32), stream=stream)
        self._state = cuda.device_array(3, np.int64, stream=stream)
        self._counts = cuda.device_array((blocks, 2), np.int32, stream=stream)
        self._chosen = cuda.device_array((most, 2), np.int64, stream=stream)

    def _wait(self) -> None:
        if self._stream:
            self._stream.synchronize()

    def _count(self, scores: Any, low: int, shift: int) -> None:
        kernels_for(scores.dtype).count[self._blocks, self._threads, self._stream](
            scores, low, shift, self._histogram
        )

    def _narrowed(self, scores: Any, low: int) -> int:
        """A score that more than `most` scores reach, and less than a histogram below the last chosen one."""
        bins = self._histogram.shape[0]
        step = bins.bit_length() - 2
        for shift in range(32 // step * step, -1, -step):
            self._count(scores, low, shift)
            histogram = self._histogram.copy_to_host(stream=self._stream)
            self._wait()
            self._histogram.copy_to_device(np.zeros(bins, np.int32), stream=self._stream)
            reaching = np.cumsum(histogram[::-1])[::-1]
            low += int(np.flatnonzero(reaching > self._most)[-1]) << shift
        return low

    def select(self, scores: Any, smallest: int) -> tuple[np.ndarray, np.ndarray]:
        """The best scores.

        Args:
            scores: device int16 or int32 [n].
            smallest: score that is needed.

        Returns:
            Indices, int64 [≤ most], and scores, int64, best first, equal ones by index: exactly
            msa.search.best_targets.
        """
        none = np.empty(0, np.int64)
        if not scores.shape[0]:
            return none, none
        self._count(scores, smallest, 0)
        limit, chosen = self._choose(scores, smallest)
        if limit == smallest + self._histogram.shape[0] - 1:
            # what lies in the last bin, and beyond it, cannot be told apart
            low = self._narrowed(scores, smallest)
            self._count(scores, low, 0)
            _, chosen = self._choose(scores, low)
        order = np.argsort(-chosen[:, 1], kind="stable")
        return chosen[order, 0], chosen[order, 1]

    def _choose(self, scores: Any, low: int) -> tuple[int, np.ndarray]:
        """Limit, and index and score of what passes, int64 [≤ most, 2] by index."""
        shape, kernels = (self._blocks, self._threads, self._stream), kernels_for(scores.dtype)
        kernels.limit[1, self._threads, self._stream](self._histogram, low, self._most, self._state)
        kernels.passing[shape](scores, self._state, self._counts)
        kernels.write[shape](scores, self._state, self._counts, self._chosen)
        state = self._state.copy_to_host(stream=self._stream)
        chosen = self._chosen.copy_to_host(stream=self._stream)
        self._wait()
        return int(state[0]), chosen[: int(state[1] + state[2])]


def select_top(
    scores: Any, most: int, smallest: int, base_index: int = 0, stream: Any = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The best scores of one array; `TopSelector` for many.

    Args:
        scores: device int16 or int32 [n], half-bits.
        most: how many may pass; of equal ones at the limit the first do.
        smallest: score that is needed.
        base_index: added to the indices.
        stream: what to launch on.

    Returns:
        Indices, int64 [≤ most], and scores, int64, best first, equal ones by index.
    """
    if most < 1:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    indices, best = TopSelector(most, stream).select(scores, smallest)
    return indices + base_index, best
