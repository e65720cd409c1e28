"""What a search found: one target aligned to the query."""

from dataclasses import dataclass, field
from functools import cached_property

from msa.database.database import TargetDatabase
from msa.io.fasta import first_word
from msa.search.local_alignment import LocalAlignment


@dataclass(frozen=True)
class Hit:
    """A target that passed every threshold of a search, with its best local alignment.

    Attributes:
        target: its place in the database.
        header: its header line.
        sequence: its residues.
        query_length: residues of the query.
        bits: bit score.
        evalue: expected number of chance hits at least as good in the whole database.
        alignment: positions and path; see LocalAlignment.
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
        """Raw score, half-bits."""
        return self.alignment.score

    @property
    def cigar(self) -> str:
        """M pairs, I query residues against a gap, D target residues against a gap."""
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
        """Both sequences between the alignment's ends, with `-` for gaps, equally long.

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
    """A hit that reads its header and sequence from the database when they are asked for: tables need few.

    Args:
        database: what was searched.
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
        # at once: a frozen dataclass sets its fields one by one, and there are tens of thousands of hits
        self.__dict__.update(
            _database=database, query_length=query_length, target=target, bits=bits, evalue=evalue,
            alignment=alignment,
        )  # fmt: skip

    @cached_property
    def header(self) -> str:
        """Its header line."""
        return self._database.header(self.target)

    @cached_property
    def sequence(self) -> str:
        """Its residues."""
        return self._database.sequence(self.target)

    @property
    def target_length(self) -> int:
        """Residues of the target."""
        return int(self._database.lengths[self.target])
