"""Stand-in for cuda.alignment.best."""

from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda
from numba.core import config

from cuda.alignment.gapless import GaplessFilter
from cuda.alignment.select import TopSelector


class QueryFilter:
    def __init__(self, profile: np.ndarray, kernels: Path) -> None:
        self.exact = GaplessFilter(profile, kernels)


class BestTargets:
    bytes_per_target = 4

    def __init__(self, most: int, smallest: int, room: int, stream: Any = 0, allocate: Any = cuda.device_array) -> None:
        self.most, self.smallest, self.stream = most, smallest, stream
        self.scores = allocate(room, np.dtype(np.int32))
        if config.ENABLE_CUDASIM:
            self.selector = TopSelector(most, stream, blocks=1, threads=4, bins=64)
        else:
            self.selector = TopSelector(most, stream)

    def find(self, query: QueryFilter, residues: Any, offsets: Any, lengths: Any, found: Any) -> None:
        scores = self.scores[: lengths.size]
        query.exact.scores(residues, offsets, lengths, scores, self.stream)
        places, best = self.selector.select(scores, self.smallest)
        order = np.argsort(places)
        row = np.zeros(1 + 2 * self.most, np.int32)
        row[0] = len(places)
        row[1 : 1 + len(places)] = places[order]
        row[1 + self.most : 1 + self.most + len(places)] = best[order]
        found.copy_to_device(row)
