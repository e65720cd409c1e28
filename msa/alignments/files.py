"""Multiple sequence alignments read from A3M, aligned FASTA or Stockholm files, recognised by content.

In every format the result has one column per residue of the query, which is the first row. Residues of
other rows between two of these columns are insertions: their letters are dropped, and their number is stored
in the deletion matrix (AlphaFold2's name) at the following column.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from msa.alignments import a3m, stockholm
from msa.alignments.taxonomy import species
from msa.base.errors import InputError
from msa.io.compression import read_bytes
from msa.io.fasta import SUPPORTED, clean_header
from msa.io.molecules import describe_non_protein

# between two entries of an MMseqs2 result database
_NEXT_ENTRY = re.compile(rb"\0\s*(?=[>#])")


@dataclass(frozen=True, eq=False)
class Alignment:
    """An alignment with one column per residue of its query.

    Attributes:
        names: header of every row, without its `>`.
        letters: uint8 [rows, columns], upper-case ASCII letters and `-`; row 0 is the query, without gaps.
        deletions: unsigned integers [rows, columns]: residues dropped between the previous column and this
            one.
        source: path of the file; `-` for standard input, None if it was not read from a file.
    """

    names: tuple[str, ...]
    letters: np.ndarray = field(repr=False)
    deletions: np.ndarray = field(repr=False)
    source: str | None = None

    def __len__(self) -> int:
        return len(self.letters)

    def take(self, rows: np.ndarray | slice) -> "Alignment":
        """Return some of the rows, by their indices."""
        names = tuple(np.array(self.names, object)[rows])
        return Alignment(names, self.letters[rows], self.deletions[rows], self.source)

    @property
    def query(self) -> str:
        """The query's residues."""
        return self.letters[0].tobytes().decode("ascii")

    @cached_property
    def species(self) -> tuple[str, ...]:
        """The species of every row by its header (`taxonomy.species`), empty where it is unknown."""
        return tuple(map(species, self.names))

    @property
    def sequences(self) -> list[str]:
        """The aligned rows, each as long as the query."""
        return [row.tobytes().decode("ascii") for row in self.letters]


def join_alignments(alignments: Sequence[Alignment]) -> Alignment:
    """Return the rows of alignments with the same columns, one below the other."""
    return Alignment(
        tuple(name for alignment in alignments for name in alignment.names),
        np.concatenate([alignment.letters for alignment in alignments]),
        np.concatenate([alignment.deletions for alignment in alignments]),
        alignments[0].source,
    )


def check_protein(header: str, sequence: str, source: str | None) -> None:
    """Check that the query of an alignment is a protein.

    Raises:
        InputError: its header or its letters are those of another molecule.
    """
    if (molecule := describe_non_protein(header, sequence)) is not None:
        raise InputError(f"the query {header[:60]!r} is {molecule}: {SUPPORTED}", source)


def read_alignment(path: str | os.PathLike[str], of_complex: bool = False) -> Alignment:
    """Read one alignment file; compression and format are recognised by content, `-` is standard input.

    Args:
        path: the file.
        of_complex: accept ColabFold's A3M of a complex, whose rows join those of all distinct chains.

    Raises:
        InputError: not an alignment, rows of different length, a character that is not a letter, or an
            alignment of several chains; names file, line and column where known.
        OSError: the file cannot be read.
    """
    return parse_alignment(read_bytes(path), os.fspath(path), of_complex)


def parse_alignment(data: bytes, source: str | None = None, of_complex: bool = False) -> Alignment:
    """Parse the decompressed content of an alignment file; see `read_alignment`."""
    data = without_separator(data, source)
    start = data[:4096].lstrip()
    if not start and not data.strip():
        raise InputError("empty file", source)
    declared = None
    if start.startswith(stockholm.START):
        names, letters, deletions = stockholm.parse_rows(data, source)
    elif start.startswith((b">", b"#")):
        declared = None if of_complex else _declared_length(data, source)
        names, letters, deletions = a3m.parse_rows(data, source)
    else:
        raise InputError("not an alignment: neither A3M or aligned FASTA (`>`) nor Stockholm", source, 1)
    columns = letters.shape[1]
    if columns == 0:
        raise InputError("the query (first row) has no residues", source)
    if declared not in (None, columns):
        raise InputError(f"the header line declares {declared} residues, the query has {columns}", source, 1)
    return Alignment(tuple(map(clean_header, names)), letters, deletions, source)


def without_separator(data: bytes, source: str | None) -> bytes:
    """Return an alignment without the NUL byte at its end, which separates entries of MMseqs2's databases.

    Raises:
        InputError: another entry follows.
    """
    if b"\0" in data[-4:]:
        data = data.rstrip(b"\0\r\n")
    if (second := _NEXT_ENTRY.search(data)) is not None:
        reason = "a second alignment begins here, after a NUL byte: put each in a separate file"
        raise InputError(reason, source, data.count(b"\n", 0, second.end()) + 1)
    return data


def _declared_length(data: bytes, source: str | None) -> int | None:
    """Return the query length declared by ColabFold's header line; None without such a line."""
    chains = a3m.parse_chain_line(data, source)
    if chains is None:
        return None
    lengths, copies = chains
    if len(lengths) > 1 or copies != [1]:
        line = f"#{','.join(map(str, lengths))}\\t{','.join(map(str, copies))}"
        raise InputError(
            f"alignment of a complex ({sum(copies)} chains, header line '{line}'): "
            "only `foldcli predict` and `cache-features` take it",
            source,
            1,
        )
    return lengths[0]
