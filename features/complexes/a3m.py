"""The A3M file of a complex, from the A3M files of its chains."""

from collections.abc import Sequence
from typing import IO

from features.alphafold2.deterministic import distinct_rows, make_features
from features.complexes.entities import group_chains
from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings
from features.complexes.rows import pair_entities
from msa.alignments.complex_a3m import a3m_rows, write_complex_a3m
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
    parsed = {data: parse_alignment(data) for data in chains}
    queries = [parsed[data].query for data in chains]
    groups = group_chains(queries)
    first_copies = [chains[group[0]] for group in groups]
    entities = [make_features([parsed[data]]) for data in first_copies]
    pairs = pair_entities(entities, [len(group) for group in groups], settings)[1:]
    texts = []
    for data in first_copies:
        rows = a3m_rows(data)
        texts.append([rows[row] for row in distinct_rows(parsed[data])])
    paired = [
        [None if row < 0 else texts[number][row] for number, row in enumerate(pair)]
        for pair in pairs.tolist()
    ]
    unpaired = [rows[:1] if settings.mode == "paired" else rows for rows in texts]
    numbers = {chain: number for number, group in enumerate(groups) for chain in group}
    write_complex_a3m(stream, [numbers[chain] for chain in range(len(chains))], paired, unpaired)
    return len(paired) + sum(len(rows) - 1 for rows in unpaired)
