"""Hits of a search, and their local alignments."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np

from cuda.alignment import AlignmentPaths
from msa.alphabet import decode, encode
from msa.database.sequence_arrays import SequenceArrays
from msa.hits.filtered_targets import FilteredTargets
from msa.hits.local_alignments import LocalAlignment, alignment_paths, local_alignment
from msa.io.fasta import first_word


@dataclass(frozen=True)
class Hit:
    """A target that passed all thresholds of a search, with its best local alignment.

    Attributes:
        target: index in the database.
        header: header line.
        sequence: residues as letters.
        query_length: residues of the query.
        bits: bit score.
        evalue: expected number of chance hits with at least this score in the whole database.
        alignment: see LocalAlignment.
    """

    target: int
    header: str
    sequence: str = field(repr=False)
    query_length: int
    bits: float
    evalue: float
    alignment: LocalAlignment

    @property
    def id(self) -> str:
        """First word of the header."""
        return first_word(self.header)

    @property
    def target_length(self) -> int:
        """Residues of the target."""
        return len(self.sequence)

    @property
    def identity(self) -> float:
        """Identical pairs as a fraction of the alignment's columns, gaps included."""
        return self.alignment.identities / self.alignment.columns

    @property
    def query_coverage(self) -> float:
        """Fraction of the query between the alignment's ends."""
        return (self.alignment.query_end - self.alignment.query_start + 1) / self.query_length

    @property
    def target_coverage(self) -> float:
        """Fraction of the target between the alignment's ends."""
        return (self.alignment.target_end - self.alignment.target_start + 1) / self.target_length

    def aligned(self, query: str) -> tuple[str, str]:
        """Return query and target between the alignment's ends, equally long, with `-` for gaps."""
        query_parts, target_parts = [], []
        i, j = self.alignment.query_start - 1, self.alignment.target_start - 1
        for length, operation in self.alignment.operations:
            gap = "-" * length
            query_parts.append(gap if operation == "D" else query[i : i + length])
            target_parts.append(gap if operation == "I" else self.sequence[j : j + length])
            i += 0 if operation == "D" else length
            j += 0 if operation == "I" else length
        return "".join(query_parts), "".join(target_parts)


class SequenceSource(Protocol):
    """The sequences that hits refer to, such as a target database."""

    @property
    def arrays(self) -> SequenceArrays:
        """Residues, offsets and lengths."""
        ...

    def header(self, index: int, /) -> str:
        """Return the header line of a sequence."""
        ...

    def are_reversed(self, indices: np.ndarray, /) -> np.ndarray:
        """Return which sequences are reverse complements, bool [n]."""
        ...

    def headers(self, indices: np.ndarray, /) -> list[str]:
        """Return the header lines of sequences, int64 [n]."""
        ...


@dataclass(frozen=True)
class StoredSequences:
    """Sequences with their headers in memory; implements SequenceSource.

    Args:
        lines: header lines.
        arrays: the sequences.
        reversed_rows: indices of those that are reverse complements.
    """

    lines: Sequence[str]
    arrays: SequenceArrays
    reversed_rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def are_reversed(self, indices: np.ndarray) -> np.ndarray:
        """Return which sequences are reverse complements, bool [n]."""
        return np.isin(indices, self.reversed_rows)

    def header(self, index: int) -> str:
        """Return the header line of a sequence."""
        return self.lines[index]

    def headers(self, indices: np.ndarray) -> list[str]:
        """Return the header lines of sequences, int64 [n]."""
        return [self.lines[index] for index in indices.tolist()]


# the source of hits that are sent to a process that has opened their database
NO_SOURCE: Any = None


@dataclass(frozen=True, eq=False)
class Hits(Sequence[Hit]):
    """The hits of one query, best first, stored as arrays; single hits are created on access.

    Args:
        query_length: residues of the query.
        source: the sequences of the targets.
        rows: int64 [n], indices of the targets in `source`.
        targets: int64 [n], indices of the targets in the database.
        bits: float64 [n], bit scores.
        evalues: float64 [n].
        alignments: [n], positions from 0.
        capped: whether further targets would have been hits, but `max_seqs` limited their number.
        filtered: the targets that passed the gapless filter, if they were kept.
    """

    query_length: int
    source: SequenceSource
    rows: np.ndarray
    targets: np.ndarray
    bits: np.ndarray
    evalues: np.ndarray
    alignments: AlignmentPaths
    capped: bool = False
    filtered: FilteredTargets | None = None

    @classmethod
    def from_sequence(cls, query_length: int, hits: Sequence[Hit]) -> "Hits":
        """Convert hits of one query to Hits, unless they already are."""
        if isinstance(hits, Hits):
            return hits
        arrays = SequenceArrays.concatenate([encode(hit.sequence) for hit in hits])
        return cls(
            query_length,
            StoredSequences([hit.header for hit in hits], arrays),
            np.arange(len(hits)),
            np.array([hit.target for hit in hits], np.int64),
            np.array([hit.bits for hit in hits], np.float64),
            np.array([hit.evalue for hit in hits], np.float64),
            alignment_paths([hit.alignment for hit in hits]),
        )

    def __len__(self) -> int:
        return len(self.targets)

    @overload
    def __getitem__(self, index: int) -> Hit: ...

    @overload
    def __getitem__(self, index: slice) -> "Hits": ...

    def __getitem__(self, index: int | slice) -> "Hit | Hits":
        if isinstance(index, slice):
            return self.subset(np.arange(len(self))[index])
        return ArrayHit(self, range(len(self))[index])

    def subset(self, indices: np.ndarray) -> "Hits":
        """Return the hits with these indices, int [m], or of this mask, bool [n]; keeps `capped`."""
        kept = np.flatnonzero(indices) if indices.dtype == bool else indices
        return replace(
            self,
            rows=self.rows[kept],
            targets=self.targets[kept],
            bits=self.bits[kept],
            evalues=self.evalues[kept],
            alignments=self.alignments.subset(kept),
        )

    @property
    def headers(self) -> list[str]:
        """Header lines of the targets."""
        return self.source.headers(self.rows)

    @property
    def target_lengths(self) -> np.ndarray:
        """Residues of the targets, int32 [n]."""
        return self.source.arrays.lengths[self.rows]

    @property
    def target_spans(self) -> np.ndarray:
        """First and last position of each alignment in its target, from 0, int64 [n, 2].

        Those in reverse complements are positions of the given strand, and descend.
        """
        spans = self.alignments.records[:, 3:5].astype(np.int64)
        is_reversed = self.source.are_reversed(self.rows)
        return np.where(is_reversed[:, None], self.target_lengths[:, None] - 1 - spans, spans)

    @property
    def identities(self) -> np.ndarray:
        """Identical pairs as a fraction of the alignments' columns, float64 [n]."""
        return self.alignments.records[:, 5] / self.alignments.records[:, 6]

    @property
    def query_coverages(self) -> np.ndarray:
        """Fraction of the query between the alignments' ends, float64 [n]."""
        records = self.alignments.records
        return (records[:, 2] - records[:, 1] + 1) / self.query_length

    @property
    def target_coverages(self) -> np.ndarray:
        """Fraction of the targets between the alignments' ends, float64 [n]."""
        records = self.alignments.records
        return (records[:, 4] - records[:, 3] + 1) / self.target_lengths


class ArrayHit(Hit):
    """A hit whose values are read from the arrays of `Hits`."""

    _hits: Hits
    _index: int

    def __init__(self, hits: Hits, index: int) -> None:
        # a frozen dataclass sets its fields one by one, which is slow for tens of thousands of hits
        self.__dict__.update(
            _hits=hits, _index=index, query_length=hits.query_length, target=int(hits.targets[index]),
            bits=float(hits.bits[index]), evalue=float(hits.evalues[index]),
        )  # fmt: skip

    @cached_property
    def alignment(self) -> LocalAlignment:
        """Best local alignment with the query."""
        return local_alignment(self._hits.alignments, self._index)

    @cached_property
    def header(self) -> str:
        """Header line."""
        return self._hits.source.header(int(self._hits.rows[self._index]))

    @cached_property
    def sequence(self) -> str:
        """Residues as letters."""
        return decode(self._hits.source.arrays.codes(int(self._hits.rows[self._index])))

    @property
    def target_length(self) -> int:
        """Residues of the target."""
        return int(self._hits.target_lengths[self._index])


@dataclass(frozen=True)
class QueryHits:
    """The hits of one query in one iteration.

    Args:
        hits: by E-value, then score, then database order.
        is_member: bool [n], True for hits with an E-value small enough to join the query's family.
    """

    hits: Hits
    is_member: np.ndarray

    @property
    def member_hits(self) -> Hits:
        """The hits that may join the query's family."""
        return self.hits.subset(self.is_member)
