"""What is aligned, and what comes out."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Query:
    """A query as the kernels take it.

    Args:
        profile: int16 [length ≥ 1, 32], half-bits.
        codes: uint8 [length]; they only count identities.
    """

    profile: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True)
class DeviceTargets:
    """Targets in the memory of the current GPU.

    Args:
        residues: device uint8 [bytes], letter codes with the mask bit.
        offsets: device int64 [targets], where each starts.
        lengths: device int32 [targets].
    """

    residues: Any
    offsets: Any
    lengths: Any


@dataclass(frozen=True)
class Pairs:
    """Which query is aligned to which target, in any order.

    Args:
        query: int32 [n], index in the queries.
        target: int64 [n], index in the targets.
        length: int32 [n], residues of that target.
    """

    query: np.ndarray
    target: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.query)

    def part(self, chosen: np.ndarray) -> "Pairs":
        """Some of them, by place."""
        return Pairs(self.query[chosen], self.target[chosen], self.length[chosen])


@dataclass(frozen=True)
class Alignments:
    """Local alignments as msa.cpu.smith_waterman finds them.

    Args:
        found: int32 [n, 8]: score, first and last query position, first and last target position (from 0,
            inclusive), identical pairs, columns, runs; all 0 where the score is.
        runs: int32 [all runs], first to last: length · 4 + operation (0 pair, 1 query residue against a gap,
            2 target residue against a gap).
        starts: int64 [n + 1], where each alignment's runs begin.
    """

    found: np.ndarray
    runs: np.ndarray
    starts: np.ndarray
