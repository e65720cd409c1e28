"""Which kernel shapes there are to choose from on which GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import cuda

from cuda.alignment.smith_waterman.source import Shape


@dataclass(frozen=True)
class Shapes:
    """The shapes to choose from, narrowest first; of the wide ones the last serves longer queries in tiles.

    Args:
        packed: for 16-bit pairs, most cells per second; empty where the GPU has no such arithmetic.
        swift: for 16-bit pairs, least time per target, for queries of the same lengths; empty as well.
        wide: for 32 bits, columns a multiple of 8.
    """

    packed: tuple[Shape, ...]
    swift: tuple[Shape, ...]
    wide: tuple[Shape, ...]


_WIDE = (Shape(32, 8, 128), Shape(32, 16, 128))
HOPPER = Shapes(
    tuple(Shape(4, columns, 128) for columns in range(8, 49, 4))
    + tuple(Shape(8, columns, 128) for columns in range(28, 49, 4))
    + tuple(Shape(16, columns, 128) for columns in (28, 32, 40, 48))
    + tuple(Shape(32, columns, 128) for columns in (28, 32)),
    tuple(Shape(32, columns, 128) for columns in range(4, 33, 4)),
    _WIDE,
)
"""From compute capability 9.0 on."""
PLAIN = Shapes((), (), _WIDE)


def available_shapes() -> Shapes:
    """The shapes for the current GPU."""
    return HOPPER if tuple(cuda.get_current_device().compute_capability) >= (9, 0) else PLAIN


def narrowest(shapes: Sequence[Shape], lengths: np.ndarray) -> np.ndarray:
    """int64, for each query length the index of the narrowest shape that holds it, or of the last."""
    places = np.searchsorted([shape.width for shape in shapes], lengths)
    return np.minimum(places, len(shapes) - 1)
