"""Tab-separated tables of hits, with MMseqs2's column names and number formats."""

from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING

from msa.io.fasta import FastaRecord

if TYPE_CHECKING:
    from msa.search.hits import Hit

Column = Callable[[FastaRecord, "Hit"], str]


def _mismatches(hit: "Hit") -> int:
    # a run is 4 * length + operation; operation 0 is a run of aligned pairs
    return sum([run >> 2 for run in hit.alignment.runs.tolist() if not run & 3]) - hit.alignment.identities


def _gaps(hit: "Hit") -> int:
    return sum([run & 3 > 0 for run in hit.alignment.runs.tolist()])


COLUMNS: dict[str, Column] = {
    "query": lambda query, hit: query.id,
    "target": lambda query, hit: hit.id,
    "fident": lambda query, hit: f"{hit.identity:.3f}",
    "pident": lambda query, hit: f"{100 * hit.identity:.3f}",
    "alnlen": lambda query, hit: str(hit.alignment.columns),
    "mismatch": lambda query, hit: str(_mismatches(hit)),
    "gapopen": lambda query, hit: str(_gaps(hit)),
    "qstart": lambda query, hit: str(hit.qstart),
    "qend": lambda query, hit: str(hit.qend),
    "tstart": lambda query, hit: str(hit.tstart),
    "tend": lambda query, hit: str(hit.tend),
    "evalue": lambda query, hit: f"{hit.evalue:.3E}",
    "bits": lambda query, hit: str(int(hit.bits + 0.5)),
    "qlen": lambda query, hit: str(hit.query_length),
    "tlen": lambda query, hit: str(hit.target_length),
    "qcov": lambda query, hit: f"{hit.query_coverage:.3f}",
    "tcov": lambda query, hit: f"{hit.target_coverage:.3f}",
    "cigar": lambda query, hit: hit.cigar,
    "qseq": lambda query, hit: query.sequence,
    "tseq": lambda query, hit: hit.sequence,
    "qaln": lambda query, hit: hit.aligned(query.sequence)[0],
    "taln": lambda query, hit: hit.aligned(query.sequence)[1],
    # a tab in a header would shift the columns after it
    "theader": lambda query, hit: hit.header.replace("\t", " "),
}
"""The function that formats each column."""

DEFAULT_COLUMNS = (
    "query", "target", "fident", "alnlen", "mismatch", "gapopen",
    "qstart", "qend", "tstart", "tend", "evalue", "bits",
)  # fmt: skip


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of column names.

    Raises:
        ValueError: an unknown name; the message lists the known names.
    """
    names = tuple(text.split(","))
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"unknown column {name!r}; available: {', '.join(COLUMNS)}")
    return names


def write_m8(
    stream: IO[str], query: FastaRecord, hits: "Sequence[Hit]", columns: Sequence[str] = DEFAULT_COLUMNS
) -> None:
    """Write one line per hit, without a header line.

    Args:
        stream: text stream.
        query: the query of the hits.
        hits: the hits, in the order of the lines to write.
        columns: keys of COLUMNS.
    """
    formatters = [COLUMNS[name] for name in columns]
    stream.write("".join(["\t".join([column(query, hit) for column in formatters]) + "\n" for hit in hits]))
