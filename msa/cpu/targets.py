"""The arrays of a target database, as the kernels take them."""

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Targets:
    """Residues of many targets in one array.

    Args:
        residues: uint8 [bytes], letter codes with the mask bit.
        offsets: int64 [n], where each target starts in `residues`.
        lengths: int32 [n], residues of each target.
    """

    residues: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    def __post_init__(self) -> None:
        # plain read-only views of anything, memory maps too: numba compiles once for all of them
        kinds = {"residues": np.uint8, "offsets": np.int64, "lengths": np.int32}
        for field in fields(self):
            view = np.ascontiguousarray(getattr(self, field.name), kinds[field.name]).view()
            view.flags.writeable = False
            object.__setattr__(self, field.name, view)

    def __len__(self) -> int:
        return len(self.lengths)

    def codes(self, index: int) -> np.ndarray:
        """Residue bytes of one target, uint8 [length]."""
        start = int(self.offsets[index])
        return self.residues[start : start + int(self.lengths[index])]

    def byte_range(self, first: int, end: int) -> tuple[int, int]:
        """Where the residues of targets `first` to `end` begin and end; both may be behind the last."""
        start, stop = (int(self.offsets[k]) if k < len(self) else len(self.residues) for k in (first, end))
        return start, stop
