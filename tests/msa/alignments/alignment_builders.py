"""Alignments for tests."""

from msa.alignments.files import Alignment, parse_alignment


def single_sequence(name: str, sequence: str) -> Alignment:
    """Return an alignment with one sequence as its only row."""
    return parse_alignment(f">{name}\n{sequence}\n".encode())
