"""The distinct chains of a complex, with their copies and alignments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from msa.base.residues import GAP


@dataclass(frozen=True, eq=False)
class AlignedRows:
    """Rows of the alignment of one chain.

    Attributes:
        codes: int8 [M, R], residue codes (`features.chemistry.residues`).
        deletions: unsigned integers [M, R].
    """

    codes: np.ndarray = field(repr=False)
    deletions: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: np.ndarray) -> "AlignedRows":
        """Return the rows with these indices; -1 gives a row of gaps."""
        absent = (rows < 0)[:, None]
        return AlignedRows(
            np.where(absent, np.int8(GAP), self.codes[rows]),
            np.where(absent, self.deletions.dtype.type(0), self.deletions[rows]),
        )

    def rows_missing_from(self, other: "AlignedRows") -> np.ndarray:
        """Return the indices of the rows whose residues equal no row of another alignment of the chain."""
        present = set(map(bytes, other.codes))
        return np.array(
            [row for row, codes in enumerate(self.codes) if bytes(codes) not in present], np.int64
        )

    def deletion_mean(self) -> np.ndarray:
        """Return the mean number of deletions before each column: float32 [R]."""
        sums = self.deletions.sum(axis=0, dtype=np.int64)
        return sums.astype(np.float32) / np.float32(len(self))


@dataclass(frozen=True, eq=False)
class ComplexEntity:
    """A distinct chain of a complex, ready to be merged with the others.

    Attributes:
        aatype: int32 [R], residue codes of the query.
        paired: the entity's part of the paired rows: row k belongs to row k of all other entities, and row 0
            is the query. Ignored if there is only one entity.
        deletion_mean: float32 [R], mean over the chain's own alignment.
        templates: the features that `features.templates.template_features.no_templates` returns, for any
            number of templates.
    """

    aatype: np.ndarray
    copies: int
    paired: AlignedRows
    unpaired: AlignedRows
    deletion_mean: np.ndarray = field(repr=False)
    templates: Mapping[str, np.ndarray] = field(repr=False)


def group_chains(sequences: Sequence[str]) -> list[list[int]]:
    """Return the indices of the chains of each entity, entities in the order of their first chains.

    The features of a complex have the chains in this order, copies of a sequence one after the other, as
    AlphaFold-Multimer requires: A, B, A becomes A, A, B. `asym_id` is the index in it, from 1.
    """
    groups: dict[str, list[int]] = {}
    for chain, sequence in enumerate(sequences):
        groups.setdefault(sequence, []).append(chain)
    return list(groups.values())
