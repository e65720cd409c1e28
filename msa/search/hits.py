"""Hits of a search, and their local alignments."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from msa.database.database import TargetDatabase
from msa.io.fasta import first_word

OPERATIONS = "MID"
"""Operations of an alignment path; the index is the operation's code. M: residue pair; I (insertion): query
residue opposite a gap; D (deletion): target residue opposite a gap."""


class LocalAlignment(NamedTuple):
    """The best local alignment of a query and one target.

    A NamedTuple because it is fast to create, and a search creates many.

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
    def score(self) -> int:
        """Raw score."""
        return self.alignment.score

    @property
    def cigar(self) -> str:
        """The alignment's path; see LocalAlignment."""
        return self.alignment.cigar

    @property
    def qstart(self) -> int:
        """First query position, from 1."""
        return self.alignment.query_start

    @property
    def qend(self) -> int:
        """Last query position, inclusive."""
        return self.alignment.query_end

    @property
    def tstart(self) -> int:
        """First target position, from 1."""
        return self.alignment.target_start

    @property
    def tend(self) -> int:
        """Last target position, inclusive."""
        return self.alignment.target_end

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
        return (self.qend - self.qstart + 1) / self.query_length

    @property
    def target_coverage(self) -> float:
        """Fraction of the target between the alignment's ends."""
        return (self.tend - self.tstart + 1) / self.target_length

    def aligned(self, query: str) -> tuple[str, str]:
        """Return query and target between the alignment's ends, equally long, with `-` for gaps.

        Args:
            query: the query's residues.
        """
        query_parts, target_parts = [], []
        i, j = self.qstart - 1, self.tstart - 1
        for length, operation in self.alignment.operations:
            gap = "-" * length
            query_parts.append(gap if operation == "D" else query[i : i + length])
            target_parts.append(gap if operation == "I" else self.sequence[j : j + length])
            i += 0 if operation == "D" else length
            j += 0 if operation == "I" else length
        return "".join(query_parts), "".join(target_parts)


class DatabaseHit(Hit):
    """A hit that reads its header and sequence from the database on first use.

    Args:
        database: the database that was searched.
        query_length, target, bits, evalue, alignment: see Hit.
    """

    _database: TargetDatabase

    def __init__(
        self,
        database: TargetDatabase,
        query_length: int,
        target: int,
        bits: float,
        evalue: float,
        alignment: LocalAlignment,
    ) -> None:
        # a frozen dataclass sets its fields one by one, which is slow for tens of thousands of hits
        self.__dict__.update(
            _database=database, query_length=query_length, target=target, bits=bits, evalue=evalue,
            alignment=alignment,
        )  # fmt: skip

    @cached_property
    def header(self) -> str:
        """Header line."""
        return self._database.header(self.target)

    @cached_property
    def sequence(self) -> str:
        """Residues as letters."""
        return self._database.sequence(self.target)

    @property
    def target_length(self) -> int:
        """Residues of the target."""
        return int(self._database.arrays.lengths[self.target])
