"""The alignment of a complex in ColabFold's A3M format, from the A3M files of its chains."""

from collections.abc import Sequence
from typing import IO

from features.complexes.entities import group_chains
from features.complexes.features import aligned_rows, pair_entities
from features.complexes.pairing import DEFAULT_PAIRING, PairingSettings
from features.deterministic import distinct_rows, make_features
from msa.io.alignments import parse_alignment
from msa.io.complex_a3m import a3m_rows, write_complex_a3m


def write_paired_a3m(
    stream: IO[str], chains: Sequence[bytes], settings: PairingSettings = DEFAULT_PAIRING
) -> None:
    """Write the A3M file of a complex, with the paired rows of `complex_features` in their order.

    A row that is paired is not written as an unpaired row again, except for the queries, which ColabFold
    needs. A row that only the copies of one entity share is an unpaired row in this format.

    Args:
        stream: text stream.
        chains: decompressed content of the A3M file of each chain, with rows as `foldcli search` writes them.
        settings: which rows are paired.

    Raises:
        InputError: see `msa.io.alignments.read_alignment`.
    """
    parsed = [parse_alignment(data) for data in chains]
    groups = group_chains([alignment.query for alignment in parsed])
    firsts, copies = [group[0] for group in groups], [len(group) for group in groups]
    features = [make_features([parsed[first]]) for first in firsts]
    pairs = pair_entities(features, copies, settings)[1:]
    pairs = pairs[(pairs >= 0).sum(axis=1) > 1]
    texts = []
    for first in firsts:
        rows = a3m_rows(chains[first])
        texts.append([rows[row] for row in distinct_rows(parsed[first])])
    unpaired = []
    for number, alignment in enumerate(map(aligned_rows, features)):
        paired_rows = alignment.take(pairs[:, number])
        left = alignment.rows_missing_from(paired_rows).tolist() if settings.mode != "paired" else []
        unpaired.append([texts[number][row] for row in sorted({0, *left})])
    paired = [
        [None if row < 0 else texts[number][row] for number, row in enumerate(pair)]
        for pair in pairs.tolist()
    ]
    write_complex_a3m(stream, copies, paired, unpaired)
