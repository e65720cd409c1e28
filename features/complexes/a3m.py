"""The A3M file of a complex, from the A3M files of its chains."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from features.alphafold2.deterministic import make_features
from features.complexes.entities import group_chains
from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings
from features.complexes.rows import DistinctRows, pair_entities, rows_of_species
from msa.alignments.complex_a3m import A3mRow, parse_a3m_rows, write_complex_a3m
from msa.alignments.files import parse_alignment


@dataclass(frozen=True, eq=False)
class ChainA3m:
    """The A3M file of a chain, parsed for any number of complexes.

    Attributes:
        rows: its rows as text, the query first.
        distinct: the distinct rows among them.
        features: its features in `features.alphafold2.schema.CACHED_FEATURES`, without templates.
    """

    rows: list[A3mRow] = field(repr=False)
    distinct: DistinctRows = field(repr=False)
    features: dict[str, np.ndarray] = field(repr=False)

    @classmethod
    def parse(cls, data: bytes) -> "ChainA3m":
        """Parse the decompressed content of a file with rows as `foldcli search` writes them."""
        alignment = parse_alignment(data)
        return cls(parse_a3m_rows(data), DistinctRows.of(alignment), make_features([alignment]))

    @property
    def query(self) -> str:
        """The query's residues."""
        return str(self.features["sequence"][0].decode())


def parse_chains(chains: Sequence[bytes]) -> list[ChainA3m]:
    """Parse the A3M files of chains, each distinct one once; raises the exceptions of `ChainA3m.parse`."""
    parsed = {data: ChainA3m.parse(data) for data in dict.fromkeys(chains)}
    return [parsed[data] for data in chains]


def write_job_a3m(
    stream: IO[str], name: str, chains: Sequence[bytes], settings: PairingSettings = DEFAULT_PAIRING
) -> int:
    """Write the A3M file of a job, whose query is called `name` if there is a single chain.

    Same result as `write_paired_a3m`, from the content of the chains' files.
    """
    if len(chains) > 1:
        return write_paired_a3m(stream, parse_chains(chains), settings)
    _, _, rows = chains[0].decode().partition("\n")
    stream.write(f">{name}\n{rows}")
    return rows.count("\n>")


def write_paired_a3m(
    stream: IO[str], chains: Sequence[ChainA3m], settings: PairingSettings = DEFAULT_PAIRING
) -> int:
    """Write the A3M file of a complex; features read from it equal those of `complex_features`.

    Returns:
        The number of paired and unpaired rows after the queries.
    """
    groups = group_chains([chain.query for chain in chains])
    first_copies = [chains[group[0]] for group in groups]
    paired, unpaired = pair_a3m(first_copies, [len(group) for group in groups], settings)
    numbers = {chain: number for number, group in enumerate(groups) for chain in group}
    write_complex_a3m(stream, [numbers[chain] for chain in range(len(chains))], paired, unpaired)
    return len(paired) + sum(len(rows) - 1 for rows in unpaired)


def pair_a3m(
    entities: Sequence[ChainA3m], copies: Sequence[int], settings: PairingSettings = DEFAULT_PAIRING
) -> tuple[list[list[A3mRow | None]], list[list[A3mRow]]]:
    """Return the paired and the unpaired rows of the entities of a complex, as text.

    Returns:
        The paired rows after the queries: for each, the row of every entity, None without a partner. Its
        header names the species that it was paired by.
        For each entity its other rows, the query first; distinct ones only.
    """
    pairs, species = pair_entities([entity.features for entity in entities], copies, settings)
    columns, unpaired = [], []
    for entity, numbers in zip(entities, pairs.T, strict=True):
        rows = entity.rows
        indices, headers = (each.tolist() for each in rows_of_species(entity.distinct, numbers, species))
        columns.append(
            [
                None if index < 0 else A3mRow(rows[header].header, rows[index].text)
                for index, header in zip(indices[1:], headers[1:], strict=True)
            ]
        )
        distinct = [0] if settings.mode == "paired" else entity.distinct.first.tolist()
        unpaired.append([rows[index] for index in distinct])
    return [list(pair) for pair in zip(*columns, strict=True)], unpaired
