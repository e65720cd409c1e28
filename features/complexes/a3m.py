"""The A3M file of a complex, from the A3M files of its chains."""

from collections.abc import Sequence
from typing import IO

from features.alphafold2.deterministic import distinct_rows, make_features
from features.complexes.entities import group_chains
from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings
from features.complexes.rows import pair_entities, rows_of_species
from msa.alignments.complex_a3m import A3mRow, a3m_rows, write_complex_a3m
from msa.alignments.files import parse_alignment


def write_job_a3m(
    stream: IO[str], name: str, chains: Sequence[bytes], settings: PairingSettings = DEFAULT_PAIRING
) -> int:
    """Write the A3M file of a job, whose query is called `name` if there is a single chain.

    Same other arguments and result as `write_paired_a3m`.
    """
    if len(chains) > 1:
        return write_paired_a3m(stream, chains, settings)
    _, _, rows = chains[0].decode().partition("\n")
    stream.write(f">{name}\n{rows}")
    return rows.count("\n>")


def write_paired_a3m(
    stream: IO[str], chains: Sequence[bytes], settings: PairingSettings = DEFAULT_PAIRING
) -> int:
    """Write the A3M file of a complex; features read from it equal those of `complex_features`.

    Args:
        stream: text stream.
        chains: decompressed content of the A3M file of each chain, with rows as `foldcli search` writes them.
        settings: which rows are paired.

    Returns:
        The number of paired and unpaired rows after the queries.

    Raises:
        InputError: see `msa.alignments.files.read_alignment`.
    """
    queries = {data: parse_alignment(data).query for data in dict.fromkeys(chains)}
    groups = group_chains([queries[data] for data in chains])
    first_copies = [chains[group[0]] for group in groups]
    paired, unpaired = pair_a3m(first_copies, [len(group) for group in groups], settings)
    numbers = {chain: number for number, group in enumerate(groups) for chain in group}
    write_complex_a3m(stream, [numbers[chain] for chain in range(len(chains))], paired, unpaired)
    return len(paired) + sum(len(rows) - 1 for rows in unpaired)


def pair_a3m(
    entities: Sequence[bytes], copies: Sequence[int], settings: PairingSettings = DEFAULT_PAIRING
) -> tuple[list[list[A3mRow | None]], list[list[A3mRow]]]:
    """Return the paired and the unpaired rows of the entities of a complex, as text.

    Args:
        entities: decompressed content of the A3M file of each distinct chain.
        copies: number of chains of each.
        settings: which rows are paired.

    Returns:
        The paired rows after the queries: for each, the row of every entity, None without a partner. Its
        header names the species that it was paired by.
        For each entity its other rows, the query first; distinct ones only.

    Raises:
        InputError: see `msa.alignments.files.read_alignment`.
    """
    parsed = [parse_alignment(data) for data in entities]
    pairs, species = pair_entities([make_features([each]) for each in parsed], copies, settings)
    columns, unpaired = [], []
    for data, alignment, numbers in zip(entities, parsed, pairs.T, strict=True):
        rows = a3m_rows(data)
        indices, headers = (each.tolist() for each in rows_of_species(alignment, numbers, species))
        columns.append(
            [
                None if index < 0 else A3mRow(rows[header].header, rows[index].text)
                for index, header in zip(indices[1:], headers[1:], strict=True)
            ]
        )
        distinct = [0] if settings.mode == "paired" else distinct_rows(alignment).tolist()
        unpaired.append([rows[index] for index in distinct])
    return [list(pair) for pair in zip(*columns, strict=True)], unpaired
