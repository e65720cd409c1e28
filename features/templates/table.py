"""The table of a target's template candidates: NAME_templates.tsv."""

from collections.abc import Iterator, Sequence
from typing import IO

from features.templates.candidates import TemplateCandidate, TemplateHits

COLUMNS = (
    "template", "used", "identity", "coverage", "evalue", "expected_pairs", "query_start", "query_end",
    "template_start", "template_end", "release_date", "source", "reason",
)  # fmt: skip


def write_template_table(
    stream: IO[str], hits: TemplateHits, unusable: Sequence[tuple[str, str]] = ()
) -> None:
    """Write every candidate: the templates in their order, then rejected hits with the reason.

    Args:
        stream: text stream.
        hits: result of the template search.
        unusable: names and reasons of templates that a user selected and that could not be read.
    """
    for row in [COLUMNS, *_rows(hits, unusable)]:
        stream.write("\t".join(row) + "\n")


def write_complex_template_table(
    stream: IO[str], chains: Sequence[tuple[str, TemplateHits, Sequence[tuple[str, str]]]]
) -> None:
    """Write the candidates of the distinct chains of a complex, with the chain as additional first column."""
    stream.write("\t".join(("chain", *COLUMNS)) + "\n")
    for name, hits, unusable in chains:
        for row in _rows(hits, unusable):
            stream.write("\t".join((name, *row)) + "\n")


def _rows(hits: TemplateHits, unusable: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    rank = 0
    for candidate in hits.candidates:
        rank += candidate.rejection is None
        used = str(rank) if candidate.rejection is None else "no"
        yield _row(candidate, used)
    for name, reason in unusable:
        row = [name, "no", *["-"] * (len(COLUMNS) - 3), reason]
        yield [field.replace("\t", " ") for field in row]


def _row(candidate: TemplateCandidate, used: str) -> list[str]:
    pairs = candidate.expected_pairs
    return [
        candidate.id,
        used,
        f"{candidate.identity:.3f}",
        f"{candidate.query_coverage:.3f}",
        "-" if candidate.evalue is None else f"{candidate.evalue:.2e}",
        "-" if pairs is None else f"{pairs:.1f}",
        str(candidate.query_start),
        str(candidate.query_end),
        str(candidate.template_start),
        str(candidate.template_end),
        candidate.release_date or "-",
        candidate.source.replace("\t", " "),
        candidate.rejection or "",
    ]
