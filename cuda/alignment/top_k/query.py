"""What one query needs on a GPU to be compared with targets."""

from pathlib import Path
from typing import Any

import numpy as np

from cuda.alignment.gapless import GaplessBounds, GaplessFilter


class QueryFilter:
    """Gapless scores of one query: bounds of all targets' and exact ones of a few.

    Args:
        profile: int [query length ≥ 1, 32], half-bits; column = letter code.
        kernels: folder for generated and compiled kernels.

    Raises:
        ValueError: the profile is not of that shape.
        OSError: the folder cannot be written.
    """

    def __init__(self, profile: np.ndarray, kernels: Path) -> None:
        self._bounds = GaplessBounds(profile, kernels)
        self._exact = GaplessFilter(profile, kernels)

    def prepare(self) -> None:
        """Copy the query's tables to the GPU, in any thread, before the first call."""
        self._bounds.prepare()
        self._exact.prepare()

    def bounds(self, residues: Any, offsets: Any, lengths: Any, bounds: Any, stream: Any) -> None:
        """See GaplessBounds.bounds."""
        self._bounds.bounds(residues, offsets, lengths, bounds, stream)

    def rescore(
        self,
        residues: Any,
        offsets: Any,
        lengths: Any,
        listed: Any,
        scores: Any,
        stream: Any,
        few: bool = False,
    ) -> None:
        """See GaplessFilter.rescore."""
        self._exact.rescore(residues, offsets, lengths, listed, scores, stream, few)
