"""Pairing of the rows of several chains by species.

Proteins of one species that are similar to the chains of a complex may interact like them, so their rows are
put into one row of the merged alignment. Within a species, the rows of each chain are ranked by their
similarity to the chain, and equal ranks are paired (Evans et al. 2021, Protein complex prediction with
AlphaFold-Multimer).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

PairMode = Literal["unpaired_paired", "paired", "unpaired"]
PairStrategy = Literal["greedy", "complete"]

# a species with more rows of a chain is not paired: its proteins are too similar to be told apart
_MAX_ROWS_OF_SPECIES = 600


@dataclass(frozen=True)
class PairingSettings:
    """The choice of rows for the alignment of a complex; names and values are ColabFold's.

    Args:
        mode: whether the alignment has rows paired by species, unpaired rows of single chains, or both; it
            always has the queries. A complex of one entity has no paired rows, because its copies have the
            same rows anyway.
        strategy: `greedy` pairs species that at least two chains have, `complete` those that all chains have.
    """

    mode: PairMode = "unpaired_paired"
    strategy: PairStrategy = "greedy"


DEFAULT_PAIRING = PairingSettings()


@dataclass(frozen=True, eq=False)
class PairingCandidates:
    """The rows of an entity that can be paired.

    Attributes:
        rows: int [P], indices of rows in the entity's alignment.
        species: bytes [P], not empty.
        identities: int [P], residues that equal the query's.
    """

    rows: np.ndarray = field(repr=False)
    species: np.ndarray = field(repr=False)
    identities: np.ndarray = field(repr=False)
    copies: int = 1

    def by_species(self) -> dict[bytes, np.ndarray]:
        """Return the rows of each species, the most similar to the query first; ties keep their order."""
        order = np.lexsort((-self.identities, self.species))
        names, starts = np.unique(self.species[order], return_index=True)
        edges = pairwise([*starts.tolist(), len(order)])
        return {
            name: self.rows[order[start:end]]
            for name, (start, end) in zip(names.tolist(), edges, strict=True)
        }


def pairing_candidates(features: Mapping[str, np.ndarray], copies: int = 1) -> PairingCandidates:
    """Return the rows of an entity that can be paired.

    Args:
        features: `msa`, `species_row` and `species` of `features.alphafold2.schema.CACHED_FEATURES`.
        copies: number of chains of the entity.
    """
    msa, rows = features["msa"], features["species_row"].astype(np.int64)
    return PairingCandidates(rows, features["species"], (msa[rows] == msa[0]).sum(axis=1), copies)


def pair_rows(
    entities: Sequence[PairingCandidates], strategy: PairStrategy = "greedy"
) -> tuple[np.ndarray, list[bytes]]:
    """Pair rows of the same species.

    Paired rows with more chains come first, then those with a smaller product of the chains' row indices;
    ties are in the order of species. These are DeepMind's rules and order, except that DeepMind leaves the
    order of ties to an unstable sort. Chains of one entity count separately, and always have the same row.

    Args:
        entities: at least two.
        strategy: see `PairingSettings`.

    Returns:
        int64 [paired rows, entities]: row indices, -1 for an entity without a row of the species. No paired
        row occurs twice; the first consists of the queries.
        The species of each paired row, empty for the queries; the first one if several give the same row.
    """
    groups = [entity.by_species() for entity in entities]
    copies = [entity.copies for entity in entities]
    needed = 2 if strategy == "greedy" else sum(copies)
    chains_of_pair: dict[tuple[int, ...], int] = {}
    species_of_pair: dict[tuple[int, ...], bytes] = {}
    chains_of_species = Counter[bytes]()
    for group, count in zip(groups, copies, strict=True):
        chains_of_species.update(dict.fromkeys(group, count))
    for species in sorted(name for name, count in chains_of_species.items() if count >= needed):
        rows = [group.get(species) for group in groups]
        depths = [len(found) for found in rows if found is not None]
        if max(depths) > _MAX_ROWS_OF_SPECIES:
            continue
        columns = [[-1] * min(depths) if found is None else found[: min(depths)].tolist() for found in rows]
        for pair in zip(*columns, strict=True):
            chains_of_pair.setdefault(pair, chains_of_species[species])
            species_of_pair.setdefault(pair, species)
    queries = (0,) * len(entities)
    chains_of_pair.pop(queries, None)

    def rank(pair: tuple[int, ...]) -> tuple[int, int]:
        product = math.prod(abs(row) ** count for row, count in zip(pair, copies, strict=True))
        return -chains_of_pair[pair], product

    pairs = sorted(chains_of_pair, key=rank)
    return np.array([queries, *pairs], np.int64), [b"", *(species_of_pair[pair] for pair in pairs)]
