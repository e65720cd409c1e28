"""The rows of a complex: paired by species, read from an A3M file, or from the feature cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from features.alphafold2.deterministic import first_occurrences
from features.chemistry.residues import encode_msa
from features.complexes.entities import AlignedRows, group_chains
from features.complexes.pairing import PairingSettings, pair_rows, pairing_candidates
from msa.alignments.complex_a3m import ComplexAlignment
from msa.alignments.files import Alignment

_QUERY = np.zeros(1, np.int64)


@dataclass(frozen=True, eq=False)
class ComplexRows:
    """The rows of a complex's alignment by entity, entities in the order of their first chains.

    Attributes:
        order: entity of each chain in the order of the input, from 0.
        paired: each entity's part of the paired rows: row k of all entities belongs together, and row 0 is
            the query.
        unpaired: the other rows, the query first; see `is_complete`.
        is_complete: whether `unpaired` is each entity's complete alignment, which repeats the paired rows.
            False for rows of ColabFold's files, which do not say this.
    """

    sequences: tuple[str, ...]
    order: tuple[int, ...]
    paired: tuple[AlignedRows, ...] = field(repr=False)
    unpaired: tuple[AlignedRows, ...] = field(repr=False)
    is_complete: bool

    @property
    def copies(self) -> list[int]:
        """The number of chains of each entity."""
        return [self.order.count(number) for number in range(len(self.sequences))]

    @property
    def chains(self) -> list[str]:
        """The residues of each chain, in the order of the input."""
        return [self.sequences[number] for number in self.order]

    @property
    def residues(self) -> int:
        """The number of residues of all chains."""
        return sum(map(len, self.chains))


def pair_chains(
    chains: Sequence[Mapping[str, np.ndarray]],
    settings: PairingSettings,
    pairing: Sequence[Mapping[str, np.ndarray]] | None = None,
) -> ComplexRows:
    """Return the rows of a complex, given the features of its chains."""
    sequences = [chain["sequence"][0].decode() for chain in chains]
    groups = group_chains(sequences)
    first_copies, copies = [group[0] for group in groups], [len(group) for group in groups]
    candidates = [(chains if pairing is None else pairing)[chain] for chain in first_copies]
    pairs, _ = pair_entities(candidates, copies, settings)
    complete = [aligned_rows(chains[chain]) for chain in first_copies]
    entity_of = {sequences[chain]: entity for entity, chain in enumerate(first_copies)}
    return ComplexRows(
        tuple(entity_of),
        tuple(entity_of[sequence] for sequence in sequences),
        tuple(aligned_rows(each).take(pairs[:, number]) for number, each in enumerate(candidates)),
        tuple(rows.take(_QUERY) if settings.mode == "paired" else rows for rows in complete),
        is_complete=True,
    )


def rows_of_file(alignment: ComplexAlignment) -> ComplexRows:
    """Return the rows of an A3M file of a complex."""
    return ComplexRows(
        alignment.queries,
        alignment.chain_order,
        tuple(map(_encode, alignment.paired)),
        tuple(map(_encode, alignment.unpaired)),
        alignment.order is not None,
    )


def _encode(alignment: Alignment) -> AlignedRows:
    return AlignedRows(encode_msa(alignment.letters), alignment.deletions)


def aligned_rows(features: Mapping[str, np.ndarray]) -> AlignedRows:
    """Return the alignment of a chain in its features."""
    return AlignedRows(features["msa"], features["deletion_matrix"])


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """The distinct rows of an alignment.

    Attributes:
        first: int64, ascending: indices of the rows that equal no earlier one.
        numbers: int64 [rows], index of each row among the distinct ones.
    """

    first: np.ndarray = field(repr=False)
    numbers: np.ndarray = field(repr=False)
    species: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, alignment: Alignment) -> "DistinctRows":
        """Return the distinct rows of an alignment."""
        (first,), (numbers,) = first_occurrences([alignment])
        return cls(first, numbers, alignment.species)


def rows_of_species(
    alignment: DistinctRows, rows: np.ndarray, species: Sequence[bytes]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices in an alignment of each paired row, and of its header.

    Of rows with equal residues, only the first is among the distinct rows that are paired, but the headers
    of the others may name further species. A paired row gets the header that names the species of the pair.

    Args:
        alignment: the rows of an entity's alignment.
        rows: indices among its distinct rows, -1 for none: a column of `pair_entities`.
        species: the species of each paired row.

    Returns:
        Two arrays int64 of the size of `rows`, -1 where `rows` has -1.
    """
    first = np.where(rows < 0, -1, alignment.first[rows])
    if not any(species):
        return first, first
    named: dict[tuple[int, str], int] = {}
    for index, pair in enumerate(zip(alignment.numbers.tolist(), alignment.species, strict=True)):
        named.setdefault(pair, index)
    headers = [
        named.get((row, name.decode()), index) if name else index
        for row, name, index in zip(rows.tolist(), species, first.tolist(), strict=True)
    ]
    return first, np.array(headers, np.int64)


def pair_entities(
    entities: Sequence[Mapping[str, np.ndarray]], copies: Sequence[int], settings: PairingSettings
) -> tuple[np.ndarray, list[bytes]]:
    """Return the paired rows of the entities of a complex, and their species; see `pairing.pair_rows`.

    Args:
        entities: `msa`, `species_row` and `species` of `CACHED_FEATURES` of each entity.
        copies: number of chains of each entity.
        settings: which rows are paired.
    """
    if len(entities) == 1 or settings.mode == "unpaired":
        return np.zeros((1, len(entities)), np.int64), [b""]
    candidates = [pairing_candidates(entity, count) for entity, count in zip(entities, copies, strict=True)]
    return pair_rows(candidates, settings.strategy)
