"""Local alignments of a query and its targets."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cuda.alignment import AlignmentPaths

OPERATIONS = "MID"
"""Operations of an alignment path; the index is the operation's code. M: residue pair; I (insertion): query
residue opposite a gap; D (deletion): target residue opposite a gap."""


class LocalAlignment(NamedTuple):
    """The best local alignment of a query and one target.

    Args:
        score: raw score, ≥ 0; if it is 0, all other fields are 0 or empty.
        query_start, query_end, target_start, target_end: positions from 1, inclusive.
        identities: aligned pairs of equal residues other than X.
        columns: aligned pairs and gap residues.
        runs: int32 [runs], in order: length · 4 + index in OPERATIONS.
    """

    score: int
    query_start: int
    query_end: int
    target_start: int
    target_end: int
    identities: int
    columns: int
    runs: np.ndarray

    @property
    def operations(self) -> list[tuple[int, str]]:
        """Length and operation of each run."""
        return [(run >> 2, OPERATIONS[run & 3]) for run in self.runs.tolist()]

    @property
    def cigar(self) -> str:
        """The path in CIGAR notation, such as 10M2D5M, with the letters of OPERATIONS."""
        return "".join(f"{length}{operation}" for length, operation in self.operations)


NO_ALIGNMENT = LocalAlignment(0, 0, 0, 0, 0, 0, 0, np.empty(0, np.int32))
"""The alignment of two sequences without a residue pair that scores above 0."""


def local_alignment(paths: AlignmentPaths, index: int) -> LocalAlignment:
    """Return the alignment with an index."""
    score, qstart, qend, tstart, tend, identities, columns, _ = paths.records[index].tolist()
    if score == 0:
        return NO_ALIGNMENT
    runs = paths.runs[paths.run_offsets[index] : paths.run_offsets[index + 1]]
    return LocalAlignment(score, qstart + 1, qend + 1, tstart + 1, tend + 1, identities, columns, runs)


def alignment_paths(alignments: Sequence[LocalAlignment]) -> AlignmentPaths:
    """Convert alignments to arrays."""
    numbers = [(*alignment[:7], len(alignment.runs)) for alignment in alignments]
    records = np.array(numbers, np.int32).reshape(-1, 8)
    records[:, 1:5] -= records[:, :1] > 0
    runs = np.concatenate([np.empty(0, np.int32), *(alignment.runs for alignment in alignments)])
    return AlignmentPaths.of_records(records, runs)
