"""A3M alignments: one column per query residue, what a target has in between in lower case."""

from collections.abc import Sequence
from typing import IO

from msa.io.fasta import FastaRecord
from msa.io.taxonomy import organism_fields
from msa.search.hits import Hit


def a3m_row(hit: Hit) -> str:
    """A hit as a row: upper case and `-` for each query residue, lower case for residues in between."""
    parts = ["-" * (hit.qstart - 1)]
    j = hit.tstart - 1
    for length, operation in hit.alignment.operations:
        if operation == "I":
            parts.append("-" * length)
            continue
        residues = hit.sequence[j : j + length]
        parts.append(residues if operation == "M" else residues.lower())
        j += length
    parts.append("-" * (hit.query_length - hit.qend))
    return "".join(parts)


def write_a3m(stream: IO[str], query: FastaRecord, hits: Sequence[Hit]) -> None:
    """Write the query, then its hits in the order given.

    A hit's header has the fields, separated by tabs, that MMseqs2 writes and ColabFold's alignments have: id,
    bits, fraction identical, E-value, then start, end and length of query and of target, the starts and ends
    counted from 0. What the target's own header says of its organism (TaxID=, RepID=, OX=) follows as one
    more field, if there is any.

    Args:
        stream: text.
        query: what was searched with; its whole header is written.
        hits: see Hit.
    """
    stream.write(f">{query.header}\n{query.sequence}\n")
    for hit in hits:
        fields = (
            hit.id, int(hit.bits + 0.5), f"{hit.identity:.3f}", f"{hit.evalue:.3E}",
            hit.qstart - 1, hit.qend - 1, hit.query_length, hit.tstart - 1, hit.tend - 1, hit.target_length,
        )  # fmt: skip
        organism = organism_fields(hit.header)
        told = [*map(str, fields), *([organism] if organism else [])]
        stream.write(">" + "\t".join(told) + f"\n{a3m_row(hit)}\n")
